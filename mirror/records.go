package mirror

import (
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"

	"github.com/mirror-controller/mirror-controller/mirror/internal/report"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// records holds the records of the targets of each name, and counts the targets
// by their states.
type records struct {
	reports workqueue.TypedDelayingInterface[string] // names of whose sources something may be reported

	mu     sync.Mutex // guards byName
	byName map[string]*nameRecords
	totals [plan.States]atomic.Int64 // of targets, by state
}

// nameRecords holds the records of the targets of one name, and the counts of the
// sources of that name.
type nameRecords struct {
	all  *records
	name string

	mu          sync.Mutex // guards the fields below
	forgotten   bool       // byName has it no longer
	byNamespace map[string]*record
	shared      map[settled]*record // for the records of targets where nothing goes on
	sources     map[key]*sourceStatus
	numbers     []key // the sources by their numbers; a zero key is a free number
	pending     int   // targets in StatePending

	// sentOfUnseen are the messages about sources that this process has never
	// seen. They share one, because a tenant can make up any number of them.
	sentOfUnseen report.Sent

	// The last fan-out.
	view      *plan.View // when it began; nil: there was none
	comparing bool       // it is running: an announcement would count a part of the copies
	fanOutAt  time.Time  // when it began

	// The next report.
	reportAt  time.Time     // zero: none is due
	reportGap time.Duration // how long it has to wait after an expensive one, unless lines were written

	// announceBy is when the line about new deletions is due, even if a fan-out
	// is running; zero: there is none.
	announceBy time.Time
	// lines is how often lines of the log have announced deletions.
	lines int
}

// sourceStatus counts the targets of one source, times how its changes reach
// them, and keeps what was sent about it.
type sourceStatus struct {
	number   int // in sets of sources
	counts   plan.Counts
	changeAt time.Time // when the oldest change was seen that has not reached every target; zero: there is none
	writeAt  time.Time // when a copy was last written
	sent     report.Sent
	reported int // the last of the lines whose deletions an event has announced, too

	// excluded are the rules that keep a source without targets from all
	// namespaces; nil: not known since the last fan-out, or it has a target.
	excluded []plan.Exclusion
}

// lock returns the records of a name, locked.
func (s *records) lock(name string) *nameRecords {
	for {
		s.mu.Lock()
		n := s.byName[name]
		if n == nil {
			n = &nameRecords{
				all:         s,
				name:        name,
				byNamespace: map[string]*record{},
				shared:      map[settled]*record{},
				sources:     map[key]*sourceStatus{},
			}
			s.byName[name] = n
		}
		s.mu.Unlock()
		n.mu.Lock()
		if !n.forgotten {
			return n
		}
		n.mu.Unlock()
	}
}

// unlock unlocks the records of a name, and forgets the name if nothing is left
// to know.
func (n *nameRecords) unlock() {
	if len(n.byNamespace) == 0 && len(n.sources) == 0 && !n.comparing {
		n.all.mu.Lock()
		delete(n.all.byName, n.name)
		n.all.mu.Unlock()
		n.forgotten = true
	}
	n.mu.Unlock()
}

// names returns the names that have records.
func (s *records) names() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Keys(s.byName))
}

// total returns how many targets of all sources are in this state.
func (s *records) total(state plan.State) int { return int(s.totals[state].Load()) }

// record returns the record of a target in the namespace with this UID. The record
// of a former namespace of that name does not count, except for a call on its way.
func (n *nameRecords) record(namespace string, uid types.UID) record {
	r := n.byNamespace[namespace]
	switch {
	case r == nil:
		return record{namespaceUID: uid}
	case r.namespaceUID != "" && r.namespaceUID != uid:
		return record{namespaceUID: uid, busy: r.busy}
	}
	own := *r
	own.namespaceUID = uid
	return own
}

// set stores the record of a target, and counts the target. A change of its
// standing is to be reported.
func (n *nameRecords) set(namespace string, r record) {
	stored := n.byNamespace[namespace]
	before := settled{}
	if stored != nil {
		before = stored.settled
	}
	if before.standing != r.standing {
		n.count(before.owner, before.state, -1)
		n.count(r.owner, r.state, 1)
		n.reportSoon()
	}
	if before.superseded != r.superseded {
		n.countSuperseded(before.superseded, -1)
		n.countSuperseded(r.superseded, 1)
		n.reportSoon()
	}
	switch {
	case r.isSettled() && r.settled == settled{}:
		delete(n.byNamespace, namespace)
	case r.isSettled() && stored != nil && *stored == record{settled: r.settled}:
		// The target shares this record already, as most do at a resync.
	case !r.isSettled() || !r.isShareable():
		kept := r // so that r is on the stack in the other cases
		n.byNamespace[namespace] = &kept
	default:
		if n.shared[r.settled] == nil {
			n.shared[r.settled] = &record{settled: r.settled}
		}
		n.byNamespace[namespace] = n.shared[r.settled]
	}
}

// count adds to the number of targets of a source in a state.
func (n *nameRecords) count(source key, state plan.State, by int) {
	switch state {
	case plan.StateNone:
		return
	case plan.StatePending:
		n.pending += by
	}
	n.all.totals[state].Add(int64(by))
	n.status(source).counts[state] += by
}

// countSuperseded adds to the number of targets in which each source of the set
// is superseded.
func (n *nameRecords) countSuperseded(set sourceSet, by int) {
	for number, source := range n.numbers {
		if set.has(number) {
			n.count(source, plan.StateSuperseded, by)
		}
	}
}

// setOf returns the set of these sources.
func (n *nameRecords) setOf(sources []*plan.Source) sourceSet {
	var bits []byte
	for _, s := range sources {
		number := n.status(s.Key).number
		for len(bits) <= number/8 {
			bits = append(bits, 0)
		}
		bits[number/8] |= 1 << (number % 8)
	}
	return sourceSet(bits)
}

// status returns the status of a source. If there is none it makes one, with the
// least free number.
func (n *nameRecords) status(source key) *sourceStatus {
	if status := n.sources[source]; status != nil {
		return status
	}
	number := slices.Index(n.numbers, key{})
	if number < 0 {
		number = len(n.numbers)
		n.numbers = append(n.numbers, key{})
	}
	n.numbers[number] = source
	n.sources[source] = &sourceStatus{number: number}
	return n.sources[source]
}

// forget forgets a source that has no targets.
func (n *nameRecords) forget(source key) {
	n.numbers[n.sources[source].number] = key{}
	delete(n.sources, source)
}

const (
	// reportDelay is how long a report waits for more changes to come.
	reportDelay = 100 * time.Millisecond
	// reportAfter is how long targets may be pending before the sources of the
	// name are reported all the same: targets that hang may be pending for ever.
	reportAfter = 10 * time.Second
)

// reportSoon has the sources of the name reported when no target is pending, at
// the latest after reportAfter.
func (n *nameRecords) reportSoon() {
	after := reportDelay
	if n.pending > 0 {
		after = reportAfter
	}
	n.reportIn(max(after, n.reportGap))
}

// reportIn has the sources of the name reported after a time, unless they are
// reported sooner.
func (n *nameRecords) reportIn(after time.Duration) {
	at := time.Now().Add(after)
	if n.reportAt.IsZero() || at.Before(n.reportAt) {
		n.reportAt = at
		n.all.reports.AddAfter(n.name, after)
	}
}
