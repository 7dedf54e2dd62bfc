package mirror

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/mirror-controller/mirror-controller/mirror/internal/outcome"
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
	uid types.UID // of the namespace, whose predecessor does not count; empty in a shared record, which fits any

	own       ownWrite
	unclaimed unclaimed
	retry     retry

	repairs    int // of the same content
	repairedAt time.Time

	appeared time.Time // when the namespace appeared, until there is a copy
}

// retry is why a target is tried again although no event asks for it, and what the answer to the last try showed that the cache does
// not.
type retry struct {
	outcome   outcome.Outcome
	state     plan.State // foreign, rejected, or as a live read showed; none if the last try showed nothing
	owner     key        // the source that state counts for
	note      string     // the error, or what the foreign object is, for people
	adoptable bool       // the owner of the foreign object can hand it over
	failures  int        // in a row, for any reasons: they may take turns
	since     time.Time  // the begin of the first one for that reason
	notBefore time.Time  // the next try
	tried     trigger    // of the last try: a change of it ends the wait
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

// isTriggered reports whether a wait for the next try ends early. Other wanted content ends it, unless a foreign object is in the
// way. Another state of the target or of its namespace ends it, unless the target has failed often: a tenant can cause events
// without end.
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
	if state != plan.StateForeign || r.retry.outcome != outcome.Rejected { // a webhook may have made the object of our own create
		r.retry = retry{}
	}
	r.appeared = time.Time{}
}

// status returns how a target stands, and the source that this counts for, while c is left to do and step is next. A state
// that an answer showed stays until more is known.
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

// isPlain reports whether the record holds no more than its basics.
func (r *record) isPlain() bool {
	return r.retry == retry{} && r.own == ownWrite{} && r.unclaimed == unclaimed{} && r.repairs == 0 && r.appeared.IsZero()
}

// Another client that changes a copy back each time must not make the controller write in a circle. The first
// freeRepairs happen at once: that is a person trying things. Each further one waits, from firstHold on, doubling to
// maxHold. A target that is left alone for calm begins anew: GitOps tools restore every 3 or 10 minutes by default.
const (
	freeRepairs = 10
	firstHold   = time.Second
	maxHold     = time.Minute
	calm        = 15 * time.Minute
)

// hold returns how long the next repair waits after this many.
func hold(repairs int) time.Duration {
	if repairs < freeRepairs {
		return 0
	}
	return min(firstHold<<min(repairs-freeRepairs, 8), maxHold)
}
