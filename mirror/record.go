package mirror

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// content tells one wanted content of a target from another. The zero value means that no copy is wanted.
type content struct {
	source   key
	checksum string
}

func contentOf(s *plan.Source) content {
	if s == nil {
		return content{}
	}
	return content{s.Key, s.Checksum}
}

// basics is all that most records hold, so that targets with equal basics share a record.
type basics struct {
	state     plan.State
	countsFor key     // the source that state counts for
	content   content // what the copy was in sync with, or was written with, last
}

// countsFor returns the source that the state of a change counts for: the winner of the target, or else the source whose copy
// is there.
func countsFor(c plan.Change) key {
	if c.Source != nil {
		return c.Source.Key
	}
	return c.CopyOf
}

// record is the status of one target. No decision about what is wanted depends on it: it may be lost at any moment.
type record struct {
	basics
	uid    types.UID // of the namespace, whose predecessor does not count; empty in a shared record, which fits any
	losers []key     // sources that claim the target and do not have it
	note   string    // the last error, for people

	reason    reason
	failures  int       // in a row, for that reason
	since     time.Time // the begin of the first of them
	notBefore time.Time // the next try; a timer is set
	tried     content   // what the last try was to write
	would     plan.Op   // the change that a dry run withheld

	echo  echo
	waits bool // the next reconcile waits for the echo

	repairs    int // of the same content
	repairedAt time.Time

	appeared time.Time // when the namespace appeared, until there is a copy
}

// echo is our own last write, until the watch has shown it.
type echo struct {
	version string    // of what was created or updated
	deleted types.UID // of what was deleted
	at      time.Time
}

// maxEcho bounds the wait for an echo: after a restore of etcd, resourceVersions may not come to be for days.
const maxEcho = time.Minute

// awaited reports whether the cache is behind our own last write. It shows have at the target, and everything up to
// version.
func (e echo) awaited(have *corev1.ConfigMap, version string, now time.Time) bool {
	if e.at.IsZero() || now.Sub(e.at) > maxEcho {
		return false
	}
	if have != nil && e.deleted != "" && have.UID == e.deleted && have.DeletionTimestamp == nil {
		return true
	}
	order, err := resourceversion.CompareResourceVersion(version, e.version)
	return err == nil && order < 0
}

// step is what happens next at a target.
type step int

const (
	stepNone step = iota // nothing, and the state of the change holds
	stepDone             // nothing: our own last write did it, and the cache does not show it yet
	stepEcho             // wait until the cache shows our own last write
	stepWait             // wait for the time of the next try
	stepHold             // wait, because another client keeps changing the copy
	stepAct              // carry out the change
)

// next returns the next step at a target, and how long to wait before it. event says that an event named the target: it ends a
// wait, unless the target has failed often. A tenant can cause events without end.
func (r *record) next(t plan.Target, c plan.Change, version string, event bool, now time.Time) (step, time.Duration) {
	want := contentOf(c.Source)
	same := r.content == want
	if r.failures >= freeRepairs && (r.reason.isLasting() || r.reason == foreign && t.Have == nil) {
		event = false
	}
	switch {
	case r.echo.awaited(t.Have, version, now):
		if same {
			return stepDone, 0
		}
		return stepEcho, time.Second
	case c.Op == plan.OpNone:
		return stepNone, 0
	case !event && r.notBefore.After(now) && (r.tried == want || r.state == plan.StateForeign):
		// New content ends a wait, too, unless a foreign object is in the way.
		return stepWait, r.notBefore.Sub(now)
	}
	if wait := r.repairedAt.Add(hold(r.repairs)).Sub(now); same && wait > 0 {
		return stepHold, wait
	}
	return stepAct, 0
}

// fight returns how long a target must be left alone until a fight over it ends; 0 if there is none.
func (r *record) fight(now time.Time) time.Duration {
	h := hold(r.repairs)
	if h == 0 {
		return 0
	}
	return max(0, r.repairedAt.Add(h+calm).Sub(now))
}

// calmDown forgets the repairs of a target that was left alone for long enough.
func (r *record) calmDown(now time.Time) {
	if now.Sub(r.repairedAt) > hold(r.repairs)+calm {
		r.repairs, r.repairedAt = 0, time.Time{}
	}
}

// whileWaiting returns what a target counts as until its next try: c, unless a live read has shown a copy without label of a
// frozen source, which stays.
func (r *record) whileWaiting(c plan.Change) plan.Change {
	if r.state != plan.StateFrozen {
		return c
	}
	return plan.Change{Key: c.Key, CopyOf: r.countsFor, State: plan.StateFrozen}
}

// losers returns the sources that claim a target and do not have it. c was decided by v and t.
func losers(rules *plan.Rules, v *plan.View, t plan.Target, c plan.Change) (keys []key) {
	for _, s := range rules.Superseded(v, t, c) {
		keys = append(keys, s.Key)
	}
	return keys
}

// conclude records a state that holds until an event or a fan-out changes it.
func (r *record) conclude(state plan.State, source key, c content, now time.Time) {
	r.calmDown(now)
	before := r.content
	r.basics = basics{state: state, countsFor: source}
	switch state {
	case plan.StateNone:
		r.countsFor, r.repairs, r.repairedAt = key{}, 0, time.Time{}
	case plan.StateSynced:
		r.content = c
	case plan.StatePending:
		r.content = before
	}
	r.reason, r.failures, r.since, r.notBefore, r.tried, r.note = noRetry, 0, time.Time{}, time.Time{}, content{}, ""
	r.would = plan.OpNone
	r.appeared = time.Time{}
}

// await records a state that the next try may change. A problem stays one until it is known to be over.
func (r *record) await(state plan.State, source key) {
	if !state.IsPending() || !r.state.IsProblem() {
		r.state, r.countsFor = state, source
	}
}

// isPlain reports whether the record holds no more than its basics.
func (r *record) isPlain() bool {
	return len(r.losers) == 0 && r.note == "" && r.notBefore.IsZero() && r.echo == echo{} && !r.waits && r.repairs == 0 && r.appeared.IsZero()
}
