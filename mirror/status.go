package mirror

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// status holds a record for each target of each name, and counts.
type status struct {
	mu     sync.Mutex
	names  map[string]*nameStatus
	totals [plan.States]int

	loggedOfGone map[key]*keptLogged // see keepLogged
	withheld     int                 // targets at which a dry run withheld a change
	written      tally               // changes that the API server carried out
}

// nameStatus is the part for the sources of one name.
type nameStatus struct {
	targets map[string]*record // by namespace
	shared  map[basics]*record // for targets with equal basics
	sources map[key]*sourceStatus
	changed map[string]bool // namespaces whose record changed since the fan-out in work began; nil: none is in work
	dirty   bool            // there may be something to report when no target is in the queue
	began   time.Time       // the begin of the last fan-out or report
	fanout  time.Time       // the begin of the last fan-out
	view    *plan.View      // of the last fan-out
}

// sourceStatus is the part for one source.
type sourceStatus struct {
	counts  [plan.States]int
	would   string    // what a dry run would do, as it was logged last
	due     bool      // that is to be logged at level 0 yet
	changed time.Time // when the oldest change was seen that has not reached every target; zero: none
	wrote   time.Time // when the last copy was written since the last report; zero: none was
	reported
}

func newStatus() *status {
	return &status{names: map[string]*nameStatus{}, loggedOfGone: map[key]*keptLogged{}}
}

func (s *status) nameStatus(name string) *nameStatus {
	n := s.names[name]
	if n == nil {
		n = &nameStatus{targets: map[string]*record{}, shared: map[basics]*record{}, sources: map[key]*sourceStatus{}}
		s.names[name] = n
	}
	return n
}

func (n *nameStatus) source(k key) *sourceStatus {
	if n.sources[k] == nil {
		n.sources[k] = &sourceStatus{}
	}
	return n.sources[k]
}

// stored returns the record of a target, which may be about a former namespace; an empty one if there is none.
func (s *status) stored(k key) record {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.record(k)
}

func (s *status) record(k key) record {
	if n := s.names[k.Name]; n != nil && n.targets[k.Namespace] != nil {
		return *n.targets[k.Namespace]
	}
	return record{}
}

// in returns the record if it is about the namespace with this UID, and an empty one if it is about a former namespace.
func (r record) in(uid types.UID) record {
	if r.uid == "" || r.uid == uid {
		return r
	}
	return record{}
}

// set stores the record of a target, and returns the one that it replaces.
func (s *status) set(k key, uid types.UID, r record) (before record) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before = s.record(k)
	s.store(k, uid, r)
	return before
}

// store stores the record of a target, and takes note of it for the fan-out in work.
func (s *status) store(k key, uid types.UID, r record) {
	if n := s.nameStatus(k.Name); n.changed != nil {
		n.changed[k.Namespace] = true
	}
	s.replace(k, uid, r)
}

func (s *status) replace(k key, uid types.UID, r record) {
	n := s.nameStatus(k.Name)
	before := n.targets[k.Namespace]
	if before == nil {
		before = &record{}
	}
	s.count(n, before, -1)
	s.count(n, &r, 1)
	arrived := before.state.IsPending() && !r.state.IsPending()
	changed := (before.state.IsProblem() || r.state.IsProblem()) && (before.state != r.state || before.countsFor != r.countsFor)
	n.dirty = n.dirty || arrived || changed || before.would != r.would || !slices.Equal(before.losers, r.losers)
	r.uid = uid
	switch {
	case r.isPlain() && r.basics == basics{}:
		delete(n.targets, k.Namespace)
		if len(n.targets)+len(n.sources) == 0 && !n.dirty {
			delete(s.names, k.Name)
		}
	case r.isPlain():
		n.targets[k.Namespace] = n.sharedRecord(r.basics)
	default:
		n.targets[k.Namespace] = &r
	}
}

// isDirty reports whether there may be something to report about the sources of a name.
func (s *status) isDirty(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.names[name]
	return n != nil && n.dirty
}

// sharedRecord returns the record that all targets with these basics share.
func (n *nameStatus) sharedRecord(b basics) *record {
	if n.shared[b] == nil {
		n.shared[b] = &record{basics: b}
	}
	return n.shared[b]
}

func (s *status) count(n *nameStatus, r *record, by int) {
	if r.state != plan.StateNone {
		s.totals[r.state] += by
		n.source(r.countsFor).counts[r.state] += by
	}
	if r.would != plan.OpNone {
		s.withheld += by
	}
	for _, loser := range r.losers {
		s.totals[plan.StateSuperseded] += by
		n.source(loser).counts[plan.StateSuperseded] += by
	}
}

// beginRun begins a fan-out or a report of a name, or returns how long it has to wait: the changes of a tenth of a second
// share one.
func (s *status) beginRun(name string, gap time.Duration) (wait time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n, now := s.names[name], time.Now()
	if n == nil {
		return 0
	}
	if wait := n.began.Add(gap).Sub(now); wait > 0 {
		return wait
	}
	n.began = now
	return 0
}

// beginFanout begins the comparison of all targets of a name. Call it before the targets are read, and endFanout at the end.
func (s *status) beginFanout(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n, now := s.nameStatus(name), time.Now()
	n.dirty, n.fanout, n.began = true, now, now
	n.shared = map[basics]*record{} // of former contents
	n.changed = map[string]bool{}
}

// endFanout takes note that all targets of a name have been compared with the sources in v.
func (s *status) endFanout(name string, v *plan.View) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.nameStatus(name)
	n.view, n.changed = v, nil
}

// compared reports whether the targets of a name have been compared with the sources in v. If not, the counts are not about v.
func (s *status) compared(name string, v *plan.View) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.names[name]
	return n == nil || n.view == v
}

// planned takes note of what a fan-out planned for a target, and reports whether the target is to be queued. version is the
// cache's before the target was read. If the record has changed since then, the plan may be outdated.
func (s *status) planned(t plan.Target, c plan.Change, losers func(plan.Change) []key, version string) (queue bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now, uid := time.Now(), uidOf(t.Namespace)
	r := s.record(t.Key).in(uid)
	next, _ := r.next(t, c, version, false, now)
	switch changed := s.nameStatus(t.Key.Name).changed[t.Key.Namespace]; {
	case changed && c.Op == plan.OpNone:
		return true
	case changed:
		next = stepAct
	}
	switch {
	case next == stepDone, next == stepHold: // as it is, but for the losers
	case next == stepWait, next == stepEcho && r.waits: // its timer is set
		c = r.whileWaiting(c)
		r.countsFor = countsFor(c)
	case next == stepNone:
		r.echo = echo{}
		r.conclude(c.State, countsFor(c), contentOf(c.Source), now)
		if c.State == plan.StateSynced && r.fight(now) > 0 {
			r.state = plan.StateFight // the timer for its end is set
		}
	default:
		queue = true
		r.would = plan.OpNone
		r.await(plan.StatePending, countsFor(c))
	}
	r.losers = losers(c)
	s.replace(t.Key, uid, r)
	return queue
}

func uidOf(ns *corev1.Namespace) types.UID {
	if ns == nil {
		return ""
	}
	return ns.UID
}

// observe takes note of an event that shows cm, or its deletion, at a target. cm is nil if it is not known. It reports
// whether the target is to be reconciled: an event that only shows our own last write changes nothing.
func (s *status) observe(k key, cm *corev1.ConfigMap, deleted bool) (reconcile bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.names[k.Name]
	if n == nil || n.targets[k.Namespace] == nil {
		return true
	}
	r := *n.targets[k.Namespace]
	switch {
	case cm != nil && deleted && cm.UID == r.echo.deleted && cm.UID != "":
		r.echo.deleted = ""
	case cm != nil && !deleted && cm.ResourceVersion == r.echo.version && cm.ResourceVersion != "":
		r.echo = echo{}
	default:
		return true
	}
	if r.echo.version == "" && r.echo.deleted == "" {
		r.echo = echo{}
	}
	reconcile = r.waits
	s.store(k, r.uid, r)
	return reconcile
}

// appear takes note of a new namespace, in which the name may get a copy. A fan-out may have seen the namespace before.
func (s *status) appear(k key, uid types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := s.nameStatus(k.Name).targets[k.Namespace]; r == nil || r.uid != uid {
		s.store(k, uid, record{appeared: time.Now()})
	}
}

// namespaces returns the namespaces with a record for the name.
func (s *status) namespaces(name string) (out []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := s.names[name]; n != nil {
		for namespace := range n.targets {
			out = append(out, namespace)
		}
	}
	return out
}

// sourceChanged takes note of an event about a source.
func (s *status) sourceChanged(k key) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if src := s.nameStatus(k.Name).source(k); src.changed.IsZero() {
		src.changed = time.Now()
	}
}

// wrote takes note of a copy that was written for a source.
func (s *status) wrote(k key) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.nameStatus(k.Name).source(k).wrote = time.Now()
}

// total returns how many targets of all sources are in one of these states.
func (s *status) total(states ...plan.State) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, state := range states {
		n += s.totals[state]
	}
	return n
}

// tally is a number of changes for each operation.
type tally [plan.OpDelete + 1]int

// String lists the operations that are not zero; empty if all are.
func (t tally) String() string {
	var parts []string
	for op, n := range t {
		if n > 0 {
			parts = append(parts, fmt.Sprintf("%v %d", plan.Op(op), n))
		}
	}
	return strings.Join(parts, ", ")
}

// idle reports whether there is nothing to report, and no target is to change soon.
func (s *status) idle() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, n := range s.names {
		if n.dirty {
			return false
		}
	}
	return s.totals[plan.StatePending] == s.withheld
}

// carriedOut takes note of a change that the API server carried out.
func (s *status) carriedOut(op plan.Op) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.written[op]++
}

// reported is what was reported about a source.
type reported struct {
	uid      types.UID
	texts    map[string]string    // by reason; empty or absent: the source did not have the problem
	synced   string               // the text of the last Mirrored
	checksum string               // of the content that was in sync
	solved   bool                 // a problem is over, and no Mirrored has said so yet
	logged   map[string]time.Time // by reason: the last line at level 0
}
