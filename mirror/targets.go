package mirror

import (
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"

	"github.com/mirror-controller/mirror-controller/mirror/internal/report"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// targets holds what is known of the targets of each name, and counts them by their states.
type targets struct {
	reports workqueue.TypedDelayingInterface[string] // names whose messages are due

	mu     sync.Mutex // guards names
	names  map[string]*nameTargets
	totals [plan.States]atomic.Int64
}

// nameTargets holds what is known of the targets of one name, and of the sources of that name.
type nameTargets struct {
	all  *targets
	name string

	mu      sync.Mutex         // guards the rest
	gone    bool               // the map of names no longer has it
	known   map[string]*target // by namespace
	shared  map[plain]*target  // for targets that have only these fields
	sources map[key]*sourceTargets
	pending int         // targets
	unseen  report.Sent // about sources that this process has never seen: a tenant can make up any number

	view      *plan.View    // at the begin of the last fan-out
	comparing bool          // a fan-out is running: an announcement would count a part of the copies
	fanOutAt  time.Time     // the begin of the last fan-out
	reportAt  time.Time     // the next report; zero: none is due
	reportGap time.Duration // after an expensive report, the least time to the next one that no announcement needs
}

// sourceTargets counts the targets of one source, and times how its changes reach them.
type sourceTargets struct {
	counts   [plan.States]int
	changeAt time.Time // when the oldest change was seen that has not reached every target; zero: no such change
	writeAt  time.Time // when the last copy was written; zero: none was since a change reached every target
	sent     report.Sent
}

// lock returns the targets of a name, locked.
func (s *targets) lock(name string) *nameTargets {
	for {
		s.mu.Lock()
		n := s.names[name]
		if n == nil {
			n = &nameTargets{all: s, name: name, known: map[string]*target{}, shared: map[plain]*target{},
				sources: map[key]*sourceTargets{}}
			s.names[name] = n
		}
		s.mu.Unlock()
		n.mu.Lock()
		if !n.gone {
			return n
		}
		n.mu.Unlock()
	}
}

// unlock unlocks the targets of a name, and forgets the name if nothing is left to know.
func (n *nameTargets) unlock() {
	if len(n.known)+len(n.sources) == 0 && !n.comparing {
		n.all.mu.Lock()
		delete(n.all.names, n.name)
		n.all.mu.Unlock()
		n.gone = true
	}
	n.mu.Unlock()
}

// total returns how many targets of all sources are in one of these states.
func (s *targets) total(states ...plan.State) (sum int) {
	for _, state := range states {
		sum += int(s.totals[state].Load())
	}
	return sum
}

// target returns what is known of a target in the namespace with this UID. What is known of a former namespace does not
// count, but that a call is on its way.
func (n *nameTargets) target(namespace string, uid types.UID) target {
	t := n.known[namespace]
	switch {
	case t == nil:
		return target{uid: uid}
	case t.uid != "" && t.uid != uid:
		return target{uid: uid, busy: t.busy}
	}
	out := *t
	out.uid = uid
	return out
}

// set stores what is known of a target, and counts it. A change of its standing is to be reported.
func (n *nameTargets) set(namespace string, t target) {
	before := standing{}
	if known := n.known[namespace]; known != nil {
		before = known.standing
	}
	if before != t.standing {
		n.add(before.owner, before.state, -1)
		n.add(t.owner, t.state, 1)
		n.reportSoon()
	}
	switch {
	case !t.isPlain():
		n.known[namespace] = &t
	case t.plain == plain{}:
		delete(n.known, namespace)
	default:
		if n.shared[t.plain] == nil {
			n.shared[t.plain] = &target{plain: t.plain}
		}
		n.known[namespace] = n.shared[t.plain]
	}
}

// add adds to the number of targets of a source in a state.
func (n *nameTargets) add(source key, state plan.State, by int) {
	switch state {
	case plan.StateNone:
		return
	case plan.StatePending:
		n.pending += by
	}
	n.all.totals[state].Add(int64(by))
	n.ofSource(source).counts[state] += by
}

// ofSource returns what is counted and timed for one source. For a source that is not known it begins with zero.
func (n *nameTargets) ofSource(k key) *sourceTargets {
	if n.sources[k] == nil {
		n.sources[k] = &sourceTargets{}
	}
	return n.sources[k]
}

const (
	// runGap is the shortest time between two fan-outs of a name, and between two updates of a copy: a source may change
	// all the time. A target still gets the newest content when its turn comes.
	runGap = 100 * time.Millisecond
	// reportAfter is how long targets of a name may be pending before its sources are reported all the same: targets
	// that hang may keep a name pending all the time.
	reportAfter = 10 * time.Second
)

// reportSoon has the sources of the name reported when no target is pending, at the latest after reportAfter.
func (n *nameTargets) reportSoon() {
	after := runGap
	if n.pending > 0 {
		after = reportAfter
	}
	n.reportIn(max(after, n.reportGap))
}

// reportIn has the sources of the name reported after a time, unless they are reported sooner.
func (n *nameTargets) reportIn(after time.Duration) {
	if at := time.Now().Add(after); n.reportAt.IsZero() || at.Before(n.reportAt) {
		n.reportAt = at
		n.all.reports.AddAfter(n.name, after)
	}
}

// observe handles an event that shows cm, or its deletion, at a target. cm is nil if it is not known. It reports
// whether to reconcile the target: after an event that shows our own last write there is nothing to do where that
// brought the target in sync.
func (n *nameTargets) observe(namespace string, cm *corev1.ConfigMap, deleted bool) (reconcile bool) {
	known := n.known[namespace]
	if known == nil || known.busy {
		return true
	}
	t := *known
	if !t.write.shownBy(cm, deleted) {
		if t.state == plan.StateSynced { // until it is decided about: an event concerns it
			t.state = plan.StatePending
			n.set(namespace, t)
		}
		return true
	}
	switch {
	case t.write != (ownWrite{at: t.write.at}), !t.isDone():
	case t.state == plan.StateNone:
		t = target{uid: t.uid}
	default:
		t.write = ownWrite{}
	}
	n.set(namespace, t)
	return t.state != plan.StateSynced && (!deleted || t.state != plan.StateNone) // no source may want the copy any more
}

// appear records a new namespace, in which the name may get a copy. A fan-out may have seen the namespace before.
func (n *nameTargets) appear(namespace string, uid types.UID) {
	if known := n.known[namespace]; known == nil || known.uid != uid && !known.busy {
		n.set(namespace, target{uid: uid, appeared: time.Now()})
	}
}
