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
	queued    bool    // the key is in the queue or in work, because something is to be done
}

// record is what is known of one target beside the caches. No decision about what is wanted depends on it: it may be lost at any
// moment.
type record struct {
	basics
	uid  types.UID // of the namespace, whose predecessor does not count; empty in a shared record, which fits any
	note string    // the last error, for people

	own       ownWrite
	unclaimed unclaimed

	reason    reason
	failures  int       // in a row, for any reasons: they may take turns
	since     time.Time // the begin of the first one for that reason
	notBefore time.Time // the next try
	tried     trigger   // of the last try: a change of it ends the wait

	repairs    int // of the same content
	repairedAt time.Time

	appeared time.Time // when the namespace appeared, until there is a copy
}

// trigger is what a try depends on: the wanted content, and the resourceVersions of the target and of its namespace.
type trigger struct {
	content         content
	have, namespace string
}

func triggerOf(t plan.Target, c plan.Change) trigger {
	on := trigger{content: contentOf(c.Source)}
	if t.Have != nil {
		on.have = t.Have.ResourceVersion
	}
	if t.Namespace != nil {
		on.namespace = t.Namespace.ResourceVersion
	}
	return on
}

// ownWrite is our own last write, until the cache shows it.
type ownWrite struct {
	version string    // of what was created or updated
	deleted types.UID // of what was deleted
	altered bool      // it was stored with other content
	at      time.Time
}

// maxOwn bounds the wait for an own write: after a restore of etcd its resourceVersion may not come to be for days.
const maxOwn = time.Minute

// left returns how long to wait at most until the cache shows our own last write; 0 if it does. It shows have at the target, and
// everything up to version.
func (w ownWrite) left(have *corev1.ConfigMap, version string, now time.Time) time.Duration {
	if w.at.IsZero() {
		return 0
	}
	order, err := resourceversion.CompareResourceVersion(version, w.version)
	unseen := err == nil && order < 0 || have != nil && w.deleted != "" && have.UID == w.deleted && have.DeletionTimestamp == nil
	if !unseen {
		return 0
	}
	return max(0, w.at.Add(maxOwn).Sub(now))
}

// unclaimed says since when no source claims a copy, by the UID of the copy, and why. The deletion grace runs from then on.
type unclaimed struct {
	uid   types.UID
	since time.Time
	why   plan.Loss // as it was judged
	nth   int       // of the losses of the name: reports know by it which losses are new
}

// step is what happens next at a target.
type step int

const (
	stepNone   step = iota // nothing, and the state of the change holds
	stepDone               // nothing: our own last write did it, and the cache does not show it yet
	stepAwait              // wait until the cache shows our own last write
	stepExpire             // wait for the end of the deletion grace
	stepWait               // wait for the time of the next try
	stepHold               // wait, because another client keeps changing the copy
	stepAct                // carry out the change
)

// next returns the next step at a target, and how long to wait before it; 0: there is nothing to wait for. It forgets our own
// last write if the cache shows it. version is up to which the cache shows everything.
func (r *record) next(t plan.Target, c plan.Change, version string, grace time.Duration, now time.Time) (step, time.Duration) {
	same := r.content == contentOf(c.Source)
	wait := r.own.left(t.Have, version, now)
	switch {
	case wait > 0 && same && !r.own.altered:
		return stepDone, wait
	case wait > 0:
		return stepAwait, wait
	}
	r.own = ownWrite{}
	if c.Op == plan.OpNone {
		return stepNone, 0
	}
	if wait := r.notBefore.Sub(now); wait > 0 && !r.isTriggered(triggerOf(t, c)) {
		return stepWait, wait
	}
	if wait := r.unclaimed.since.Add(grace).Sub(now); c.Op == plan.OpDelete && wait > 0 {
		return stepExpire, wait
	}
	if wait := r.repairedAt.Add(hold(r.repairs)).Sub(now); same && wait > 0 {
		return stepHold, wait
	}
	return stepAct, 0
}

// isTriggered reports whether a wait for the next try ends early. Other wanted content ends it, unless a foreign object is in the
// way. Another state of the target or of its namespace ends it, unless the target has failed often: a tenant can cause events
// without end.
func (r *record) isTriggered(now trigger) bool {
	switch {
	case now.content != r.tried.content && r.state != plan.StateForeign:
		return true
	case r.failures >= freeRepairs && (r.reason != foreign || now.have == ""):
		return false
	}
	return now.have != r.tried.have || now.namespace != r.tried.namespace
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

// conclude records a state that holds until an event or a fan-out changes it.
func (r *record) conclude(state plan.State, source key, c content, now time.Time) {
	r.calmDown(now)
	before := r.content
	r.basics = basics{state: state, countsFor: source}
	switch state {
	case plan.StateNone:
		r.countsFor, r.unclaimed, r.repairs, r.repairedAt = key{}, unclaimed{}, 0, time.Time{}
	case plan.StateSynced:
		r.content = c
	case plan.StatePending:
		r.content = before
	}
	r.reason, r.failures, r.since, r.notBefore, r.tried, r.note = noRetry, 0, time.Time{}, time.Time{}, trigger{}, ""
	r.appeared = time.Time{}
}

// shown returns what a target counts for until its next try: c, unless a live read has shown a copy of a frozen source, which the
// cache does not show.
func (r *record) shown(c plan.Change) plan.Change {
	if r.state != plan.StateFrozen || r.reason != foreign {
		return c
	}
	return plan.Change{Key: c.Key, CopyOf: r.countsFor, State: plan.StateFrozen}
}

// await records that a change is to be made at a target, or that it is not known how it is. A problem of the same source stays
// one until it is known to be over. A copy expires until it is deleted.
func (r *record) await(c plan.Change) {
	if (r.state == plan.StateFrozen || r.state.IsProblem()) && r.countsFor == c.CountsFor() {
		return
	}
	r.state, r.countsFor, r.note = plan.StatePending, c.CountsFor(), ""
	if c.Op != plan.OpNone {
		r.state = c.Status()
	}
}

// isPlain reports whether the record holds no more than its basics.
func (r *record) isPlain() bool {
	return r.note == "" && r.notBefore.IsZero() && r.own == ownWrite{} && r.unclaimed == unclaimed{} &&
		r.repairs == 0 && r.appeared.IsZero()
}
