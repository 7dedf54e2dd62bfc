package mirror

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/mirror-controller/mirror-controller/mirror/internal/outcome"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// key names a target: its namespace, and the name of the sources that contend for it. It also names one source or copy.
type key = types.NamespacedName

// content tells one wanted content of a target from another. The zero value: no copy is wanted.
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

// basics are the only fields that most records use. Targets with equal basics share a record.
type basics struct {
	state     plan.State
	countsFor key     // the source that state counts for
	content   content // the last content with which the copy was in sync, or was written
	queued    bool    // a change is left to do, and the key is in the queue or in work
}

// record holds what the controller knows of one target and the caches do not show. Its methods record what happened
// at the target, and decide the next step there. The wanted state does not depend on it: a record may be lost at any
// moment.
type record struct {
	basics
	uid types.UID // of the namespace: a namespace that is created again begins anew; empty in a shared record

	own       ownWrite
	unclaimed unclaimed
	retry     retry

	repairs    int // of the same content
	repairedAt time.Time

	appeared time.Time // when the namespace appeared, until there is a copy
}

// retry is the reason why a target is tried again without an event, and the state that the last try showed: the cache
// may not show it.
type retry struct {
	outcome   outcome.Outcome
	state     plan.State // foreign, rejected, or as a live read showed; StateNone: the last try showed nothing
	owner     key        // the source that state counts for
	note      string     // the error, or a description of the foreign object, for people
	adoptable bool       // the owner of the foreign object can hand it over
	failures  int        // in a row, for any reasons: they may take turns
	since     time.Time  // the begin of the first failure in a row with this outcome
	notBefore time.Time  // the next try
	tried     trigger    // of the last try: a change of the trigger ends the wait
}

// trigger is the state on which a try depends: the wanted content, and the resourceVersions of the target and of its
// namespace.
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

// result is the result of a change.
type result struct {
	change  plan.Change
	outcome outcome.Outcome
	state   plan.State // how the target stands after it
	note    string     // the error, or a description of the foreign object in the way, for people
	err     error
	began   time.Time     // when the calls began
	after   time.Duration // when to reconcile again although nothing failed

	sent    bool              // the API server carried the change out
	made    *corev1.ConfigMap // the object as it is stored; nil after a delete
	altered bool              // it is stored with other content than was sent
	repair  bool              // the change restored what another client had changed
	cause   string            // what that client had done to the copy, which was in sync before

	adoptable bool      // the owner of the foreign object in the way can hand it over
	taken     types.UID // of an object that was created, stored without a mark of a copy, and deleted at once
}

// ownWrite is our own last write, until the cache shows it.
type ownWrite struct {
	version string    // the resourceVersion of the object that was created or updated
	deleted types.UID // the UID of the object that was deleted
	altered bool      // the API server stored other content than was sent
	at      time.Time
}

// maxOwn bounds the wait for our own write: after a restore of etcd the cache may not reach its resourceVersion for
// days.
const maxOwn = time.Minute

// left returns how long to wait at most until the cache shows our own last write; 0: the cache shows it. The cache has
// have at the target, and has seen everything up to version.
func (w ownWrite) left(have *corev1.ConfigMap, version string, now time.Time) time.Duration {
	if w.at.IsZero() {
		return 0
	}
	order, err := resourceversion.CompareResourceVersion(version, w.version)
	isThere := have != nil && w.deleted != "" && have.UID == w.deleted && have.DeletionTimestamp == nil
	if unseen := err == nil && order < 0 || isThere; !unseen {
		return 0
	}
	return max(0, w.at.Add(maxOwn).Sub(now))
}

// shownBy records an event that shows cm, or its deletion, and reports whether the event shows our own last write. Of a
// re-creation, the event of the deletion shows the first part.
func (w *ownWrite) shownBy(cm *corev1.ConfigMap, deleted bool) bool {
	switch {
	case cm != nil && deleted && cm.UID == w.deleted && cm.UID != "":
		w.deleted = ""
	case cm != nil && !deleted && cm.ResourceVersion == w.version && cm.ResourceVersion != "":
		w.version, w.deleted = "", ""
	default:
		return false
	}
	if w.version == "" && w.deleted == "" {
		*w = ownWrite{}
	}
	return true
}

// unclaimed says since when no source claims a copy, and why. The deletion grace runs from then on.
type unclaimed struct {
	uid   types.UID // of the copy; empty: a source claims it
	since time.Time
	why   plan.Loss // as it was judged
	nth   int       // the number of this loss among those of the name: a report finds new losses by it
}

// step is the next step at a target.
type step int

const (
	stepNone   step = iota // nothing, and the state of the change holds
	stepDone               // nothing: our own last write did it, and the cache does not show that yet
	stepAwait              // wait for the cache to show our own last write, or for the call that was put off
	stepExpire             // wait for the end of the deletion grace
	stepWait               // wait for the time of the next try
	stepHold               // wait, because another client keeps changing the copy
	stepAct                // carry out the change
)

// next returns the next step at a target, and how long that waits; 0: it waits for nothing, or for an event. The cache
// has seen everything up to version. If the cache shows our own last write, next forgets the write.
func (r *record) next(t plan.Target, c plan.Change, version string, grace time.Duration, now time.Time) (
	step, time.Duration) {
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
	if wait := r.retry.notBefore.Sub(now); wait > 0 && !r.isTriggered(triggerOf(t, c)) {
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

// isTriggered reports whether a wait for the next try ends early. Other wanted content ends it, unless a foreign
// object is in the way. A change of the target or of its namespace ends it, unless the target has failed often: a
// tenant can cause events without end.
func (r *record) isTriggered(now trigger) bool {
	tried := r.retry.tried
	switch {
	case now.content != tried.content && r.retry.state != plan.StateForeign:
		return true
	case r.retry.failures >= freeRepairs && (r.retry.outcome != outcome.Foreign || now.have == ""):
		return false
	}
	return now.have != tried.have || now.namespace != tried.namespace
}

// wrote records a change that the API server carried out. It returns the next step, and how long that waits.
func (r *record) wrote(res *result, now time.Time) (step, time.Duration) {
	c := res.change
	r.calmDown(now)
	if res.repair {
		r.repairs++
		r.repairedAt = now
	} else if r.content != contentOf(c.Source) {
		r.repairs = 0
	}
	r.content = contentOf(c.Source)
	r.own = ownWrite{at: now, altered: res.altered}
	if c.Op == plan.OpDelete || c.Op == plan.OpRecreate {
		r.own.deleted = c.Have.UID
	}
	if res.made != nil {
		r.own.version = res.made.ResourceVersion
	}
	r.rest(res.state, r.content, now)
	if res.altered {
		return stepAwait, max(res.after, hold(r.repairs))
	}
	return stepDone, r.fight(now) // if no event shows our own write, a relist does, and its fan-out waits up to maxOwn
}

// failed records a failure, and the state that the try showed. It returns the time until the next try. tried is the
// trigger of this try.
func (r *record) failed(res *result, tried trigger, now time.Time) time.Duration {
	if res.outcome == outcome.Transient && r.retry.lasts(res, now) {
		res.outcome, res.state = outcome.Rejected, plan.StateRejected
	}
	if res.taken != "" { // the events of its creation and its deletion wake nobody
		r.own = ownWrite{deleted: res.taken, altered: true, at: now}
	}
	rt := &r.retry
	if rt.outcome != res.outcome {
		rt.outcome, rt.since = res.outcome, res.began
	}
	rt.failures++
	wait := res.outcome.Backoff(rt.failures)
	rt.notBefore, rt.tried = now.Add(wait), tried
	owner := res.change.CountsFor()
	keeps := rt.owner == owner || rt.state == plan.StateFrozen || rt.state == plan.StateHeld
	if res.outcome == outcome.Transient && keeps {
		return wait // the failure says nothing about the target
	}
	rt.state, rt.owner, rt.note, rt.adoptable = plan.StateNone, owner, "", false
	if res.outcome == outcome.Rejected || res.outcome == outcome.Foreign {
		rt.state, rt.note, rt.adoptable = res.state, res.note, res.adoptable
	}
	if rt.state == plan.StateForeign {
		r.content = content{}
	}
	return wait
}

// transientLimit is how long the API server may answer with errors of its own before they count as a rejection: a
// webhook that it cannot call, for example, is reported and retried slowly then.
const transientLimit = 10 * time.Second

// lasts reports whether a transient failure counts as a rejection.
func (rt *retry) lasts(res *result, now time.Time) bool {
	since := res.began
	if rt.outcome == outcome.Transient {
		since = rt.since
	}
	return outcome.IsAnswer(res.err) && (rt.outcome == outcome.Rejected || now.Sub(since) >= transientLimit)
}

// rest records that nothing is left to do until an event or a fan-out: the target is in this state, with this content.
func (r *record) rest(state plan.State, c content, now time.Time) {
	r.calmDown(now)
	switch state {
	case plan.StateNone:
		r.content, r.unclaimed, r.repairs, r.repairedAt = content{}, unclaimed{}, 0, time.Time{}
	case plan.StateSynced:
		r.content = c
	case plan.StatePending: // as before
	default:
		r.content = content{}
	}
	if state != plan.StateForeign || r.retry.outcome != outcome.Rejected { // a webhook may have made it of our own create
		r.retry = retry{}
	}
	r.appeared = time.Time{}
}

// status returns how a target stands, and the source that this counts for, while c is left to do and s is next. A state
// that the last try showed stays until more is known.
func (r *record) status(s step, c plan.Change, now time.Time) (plan.State, key) {
	state, owner := c.Status(), c.CountsFor()
	switch shown := r.retry.state; {
	case s == stepNone, s == stepExpire: // an answer to a former write says nothing about the deletion
	case s == stepDone:
		state = stateOfWrite(c)
	case s == stepHold:
		state = plan.StateFight
	case shown == plan.StateFrozen, shown == plan.StateHeld: // only a live read shows that copy
		return shown, r.retry.owner
	case shown != plan.StateNone && (s == stepWait || owner == r.retry.owner):
		state = shown
	}
	if r.fight(now) > 0 && (state == plan.StateSynced || state == plan.StatePending && s != stepNone) {
		state = plan.StateFight
	}
	if state == plan.StateNone {
		owner = key{}
	}
	return state, owner
}

// stateOfWrite returns the state after a change was carried out.
func stateOfWrite(c plan.Change) plan.State {
	if c.Source == nil {
		return plan.StateNone
	}
	return plan.StateSynced
}

// isPlain reports whether the record uses only its basics.
func (r *record) isPlain() bool {
	return r.retry == retry{} && r.own == ownWrite{} && r.unclaimed == unclaimed{} && r.repairs == 0 && r.appeared.IsZero()
}

// A fight: another client changes a copy back after each repair. The first freeRepairs are made at once: a person may
// be trying things. Each further repair waits, from firstHold on, doubling to maxHold. A target that is left alone
// for calm begins anew: GitOps tools restore every 3 or 10 minutes by default.
const (
	freeRepairs = 10
	firstHold   = time.Second
	maxHold     = time.Minute
	calm        = 15 * time.Minute
)

// hold returns how long the next repair waits after so many.
func hold(repairs int) time.Duration {
	if repairs < freeRepairs {
		return 0
	}
	return min(firstHold<<min(repairs-freeRepairs, 8), maxHold)
}

// fight returns how long the target must be left alone until the fight over it ends; 0: there is no fight.
func (r *record) fight(now time.Time) time.Duration {
	h := hold(r.repairs)
	if h == 0 {
		return 0
	}
	return max(0, r.repairedAt.Add(h+calm).Sub(now))
}

// calmDown forgets the repairs if the target was left alone for long enough.
func (r *record) calmDown(now time.Time) {
	if now.Sub(r.repairedAt) > hold(r.repairs)+calm {
		r.repairs, r.repairedAt = 0, time.Time{}
	}
}
