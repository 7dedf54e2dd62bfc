package mirror

import (
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mirror-controller/mirror-controller/mirror/internal/report"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// status holds a record for each target of each name, and counts.
type status struct {
	mu     sync.Mutex // guards names
	names  map[string]*nameStatus
	totals [plan.States]atomic.Int64
}

// nameStatus is the status of the sources of one name and of their targets.
type nameStatus struct {
	status *status
	name   string

	mu         sync.Mutex         // guards the rest
	gone       bool               // the map of names no longer has it
	targets    map[string]*record // by namespace
	shared     map[basics]*record // for targets with equal basics
	sources    map[key]*sourceStatus
	selections map[key]*report.Selection // of the last report
	calls      map[string]*meanwhile     // by namespace, where a call is on its way: only its reconcile writes the record
	queued     int                       // records that are queued
	losses     int                       // how often a copy was judged unclaimed
	announced  int                       // the losses that reports have seen
	unseen     map[string]time.Time      // by reason: the last message about a source that was never seen
	dirty      bool                      // there may be something to report
	busySince  time.Time                 // when the first of the queued targets was queued, or the last report
	reported   time.Time                 // the last report
	repeated   time.Time                 // the last repetition, or when the status was made
	fanout     time.Time                 // the begin of the last fan-out
	view       *plan.View                // of the last fan-out
}

// meanwhile holds what happened at a target while a call for it is on its way. Its reconcile reads it at the end.
type meanwhile struct {
	queued  bool // a fan-out queued the key
	claimed bool // a source claimed the target: the grace ends, although the claim may be gone by now
}

func newStatus() *status { return &status{names: map[string]*nameStatus{}} }

// lock returns the status of a name, locked.
func (s *status) lock(name string) *nameStatus {
	for {
		s.mu.Lock()
		n := s.names[name]
		if n == nil {
			n = &nameStatus{status: s, name: name, targets: map[string]*record{}, shared: map[basics]*record{},
				sources: map[key]*sourceStatus{}, calls: map[string]*meanwhile{}, unseen: map[string]time.Time{},
				repeated: time.Now()}
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

// unlock forgets the status if nothing is left in it.
func (n *nameStatus) unlock() {
	if len(n.targets)+len(n.sources)+len(n.calls) == 0 && !n.dirty {
		n.status.mu.Lock()
		delete(n.status.names, n.name)
		n.status.mu.Unlock()
		n.gone = true
	}
	n.mu.Unlock()
}

// sortedNames returns the names with a status.
func (s *status) sortedNames() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(maps.Keys(s.names))
}

// namespaces returns the namespaces with a record for the name.
func (s *status) namespaces(name string) (out []string) {
	n := s.lock(name)
	defer n.unlock()
	for namespace := range n.targets {
		out = append(out, namespace)
	}
	return out
}

// total returns how many targets of all sources are in one of these states.
func (s *status) total(states ...plan.State) (sum int) {
	for _, state := range states {
		sum += int(s.totals[state].Load())
	}
	return sum
}

// record returns the record of a target in the namespace with this UID. A record of a former namespace does not count.
func (n *nameStatus) record(namespace string, uid types.UID) record {
	if r := n.targets[namespace]; r != nil && (r.uid == "" || r.uid == uid) {
		return *r
	}
	return record{}
}

// set stores the record of a target in the namespace with this UID.
func (n *nameStatus) set(namespace string, uid types.UID, r record) {
	before := n.targets[namespace]
	if before == nil {
		before = &record{}
	}
	n.count(&r, 1) // first: see busySince
	n.count(before, -1)
	moved := before.state != r.state || before.countsFor != r.countsFor
	n.dirty = n.dirty || moved && (before.state.IsProblem() || !r.state.IsPending())
	r.uid = uid
	switch {
	case r.isPlain() && r.basics == basics{}:
		delete(n.targets, namespace)
	case r.isPlain():
		if n.shared[r.basics] == nil {
			n.shared[r.basics] = &record{basics: r.basics}
		}
		n.targets[namespace] = n.shared[r.basics]
	default:
		n.targets[namespace] = &r
	}
}

// count counts a record, or by -1 no longer.
func (n *nameStatus) count(r *record, by int) {
	if r.state != plan.StateNone {
		n.add(n.source(r.countsFor), r.state, by)
	}
	if !r.queued {
		return
	}
	if n.queued == 0 && by > 0 {
		n.busySince = time.Now()
	}
	n.queued += by
}

// uidOf returns the UID of a namespace; empty if it is absent.
func uidOf(ns *corev1.Namespace) types.UID {
	if ns == nil {
		return ""
	}
	return ns.UID
}

// calling reports whether a call for a target is on its way.
func (n *nameStatus) calling(namespace string) bool { return n.calls[namespace] != nil }

// isUnclaimed reports whether no source claims the copy in the namespace.
func (n *nameStatus) isUnclaimed(namespace string) bool {
	r := n.targets[namespace]
	return r != nil && r.unclaimed.uid != ""
}

// claimed reports whether a source claimed a target while a call for it is on its way.
func (s *status) claimed(k key) bool {
	n := s.lock(k.Name)
	defer n.unlock()
	m := n.calls[k.Namespace]
	return m != nil && m.claimed
}

// observe handles an event that shows cm, or its deletion, at a target. cm is nil if it is not known. It reports
// whether to reconcile the target: an event that only shows our own last write changes nothing.
func (n *nameStatus) observe(namespace string, cm *corev1.ConfigMap, deleted bool) (reconcile bool) {
	if n.targets[namespace] == nil || n.calling(namespace) {
		return true
	}
	r := *n.targets[namespace]
	if !r.own.shownBy(cm, deleted) {
		return true
	}
	n.set(namespace, r.uid, r)
	return r.state != plan.StateSynced && (!deleted || r.state != plan.StateNone) // no source may want the copy any more
}

// appear records a new namespace, in which the name may get a copy. A fan-out may have seen the namespace before.
func (n *nameStatus) appear(namespace string, uid types.UID) {
	if r := n.targets[namespace]; (r == nil || r.uid != uid) && !n.calling(namespace) {
		n.set(namespace, uid, record{appeared: time.Now()})
	}
}

// recordClaim records a claim of a source: the change is no deletion. A claim ends a grace.
func (n *nameStatus) recordClaim(c plan.Change) {
	namespace := c.Key.Namespace
	switch m := n.calls[namespace]; {
	case c.Op == plan.OpDelete:
	case m != nil:
		m.claimed = true
	case n.isUnclaimed(namespace):
		r := *n.targets[namespace]
		r.unclaimed = unclaimed{}
		n.set(namespace, r.uid, r)
	}
}

// runGap is the shortest time between two fan-outs of a name, and between two reports. A source that changes all the
// time is compared with all its targets that often; each target still gets the newest content when its turn comes.
const runGap = 100 * time.Millisecond

// beginFanout begins a fan-out, or returns how long it has to wait.
func (n *nameStatus) beginFanout() (wait time.Duration) {
	now := time.Now()
	if wait := n.fanout.Add(runGap).Sub(now); wait > 0 {
		return wait
	}
	n.fanout, n.dirty = now, true
	n.shared = map[basics]*record{} // of former contents
	return 0
}

// reportAfter is how long targets of a name are queued before its sources are reported all the same: targets that
// hang may keep a name busy all the time.
const reportAfter = 10 * time.Second

// reportableIn returns how long to wait before a report. Announcements do not wait.
func (n *nameStatus) reportableIn() time.Duration {
	if n.losses > n.announced {
		return 0
	}
	return n.busyFor()
}

// busyFor returns how long to wait before a report that is no announcement.
func (n *nameStatus) busyFor() time.Duration {
	if n.queued == 0 {
		return 0
	}
	return max(0, time.Until(n.busySince.Add(reportAfter)))
}

// reportDue reports whether there may be something to report about the sources in v, or how long to wait. While the
// targets are not compared with v, a fan-out follows.
func (n *nameStatus) reportDue(v *plan.View) (wait time.Duration, due bool) {
	if !n.dirty || n.view != nil && n.view != v {
		return 0, false
	}
	wait = max(n.reportableIn(), time.Until(n.reported.Add(runGap)), 0)
	return wait, wait == 0
}

// sourceStatus is the status of one source.
type sourceStatus struct {
	counts  [plan.States]int
	changed time.Time // when the oldest change was seen that has not reached every target; zero: no such change
	wrote   time.Time // when the last copy was written; zero: no copy was written since a change reached every target
	report.Reported
}

// source returns the status of one source.
func (n *nameStatus) source(k key) *sourceStatus {
	if n.sources[k] == nil {
		n.sources[k] = &sourceStatus{}
	}
	return n.sources[k]
}

// meet adds the sources of the view.
func (n *nameStatus) meet(v *plan.View) {
	for _, s := range v.All() {
		n.source(s.Key).Begin(s.ConfigMap.UID, n.unseen)
	}
}

// sourceChanged records an event about a source.
func (s *status) sourceChanged(k key) {
	n := s.lock(k.Name)
	defer n.unlock()
	if src := n.source(k); src.changed.IsZero() {
		src.changed = time.Now()
	}
}

// wrote records a change that the API server carried out, for the next report.
func (n *nameStatus) wrote(c plan.Change, now time.Time) {
	if c.Op == plan.OpDelete {
		n.dirty = true
		n.source(c.CopyOf).Deleted(now)
		return
	}
	src := n.source(c.Source.Key)
	src.wrote = now
	if c.CopyOf != c.Source.Key && n.sources[c.CopyOf] != nil { // else nobody, or the name in an annotation was made up
		src.TookOver(c.CopyOf)
	}
}

// withoutTargets reports whether a source may have no target.
func (n *nameStatus) withoutTargets() bool {
	for _, src := range n.sources {
		if src.counts[plan.StateSynced] == 0 {
			return true
		}
	}
	return false
}

// repeat has the messages that hold for the sources of the name sent again if that was not done for so long. It reports
// whether there are any.
func (n *nameStatus) repeat(after time.Duration, now time.Time) (due bool) {
	if now.Sub(n.repeated) < after || len(n.sources) == 0 {
		return false
	}
	n.repeated, n.dirty = now, true
	for _, src := range n.sources {
		src.Repeat(now)
	}
	return true
}

// supersede records in how many namespaces each source is superseded.
func (n *nameStatus) supersede(selections map[key]*report.Selection) {
	n.selections = selections
	for k, src := range n.sources {
		lost := 0
		if s := selections[k]; s != nil {
			lost = s.Lost
		}
		n.add(src, plan.StateSuperseded, lost-src.counts[plan.StateSuperseded])
	}
}

// add counts targets of a source in a state.
func (n *nameStatus) add(src *sourceStatus, state plan.State, by int) {
	n.status.totals[state].Add(int64(by))
	src.counts[state] += by
}
