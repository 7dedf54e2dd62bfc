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

// content identifies the wanted content of a target. The zero value: no copy is wanted.
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

// standing is how a target stands: its state, and why.
type standing struct {
	state     plan.State
	owner     key    // the source that state counts for
	note      string // what is wrong there, for people
	adoptable bool   // the owner of the foreign object there can hand it over
}

// plain are the fields that a target has that is simply in sync. Such targets share one struct.
type plain struct {
	standing
	content content // the last content with which the copy was in sync, or was written
}

// target is what the controller knows of one target and the caches do not show. The wanted state does not depend on
// it: it may be lost at any moment.
type target struct {
	plain
	uid  types.UID // of the namespace: one that is created again begins anew; empty in a shared struct
	busy bool      // a call is on its way; whoever makes it decides at its end

	write     ownWrite
	unclaimed unclaimed
	retry     retry

	repairs    int // in a row, of the same content
	repairedAt time.Time

	appeared time.Time // when the namespace appeared, until there is a copy
}

// ownWrite is our own last write, until the cache shows it.
type ownWrite struct {
	version string    // the resourceVersion of the object that was created or updated; empty: the cache shows it
	deleted types.UID // the UID of the object that was deleted; empty: the cache shows that
	at      time.Time
}

// unclaimed says since when no source claims a copy, and why. The deletion grace runs from then on.
type unclaimed struct {
	uid       types.UID // of the copy; empty: a source claims it
	since     time.Time
	why       plan.Unclaimed // as it was judged
	announced bool           // a message has announced the deletion, for this reason
}

// retry says why a target is tried again without an event.
type retry struct {
	outcome   outcome.Outcome
	shown     standing  // what the last try showed, which the cache may not show; StateNone: nothing
	made      types.UID // of an object that admission made of our own write: it is the copy, and not in its way
	failures  int       // in a row, for any reasons: they may take turns
	notBefore time.Time // the next try

	// What the last try was about: the content, the resourceVersion there, and that of the object as it was stored. A
	// change of them ends the wait.
	content      content
	have, stored string
}

const (
	// maxUnseen bounds the wait for our own write: after a restore of etcd the cache may not reach it for days.
	maxUnseen = time.Minute
	// maxTriggers is after how many failures in a row no event ends a wait: a tenant can cause events without end.
	maxTriggers = 10
	// A fight: another client changes a copy back after each repair. The first repairs are made at once: a person may be
	// trying things. From the tenth on each waits, doubling to the longest delay. A target that is left alone for calm
	// begins anew: GitOps tools restore every 3 or 10 minutes by default.
	freeRepairs          = 9
	firstDelay, maxDelay = time.Second, time.Minute
	calm                 = 15 * time.Minute
)

// next sets how the target stands. It returns whether to carry out c now, or after which time to look again; 0: an
// event brings the next decision. The cache shows at, and has seen everything up to version.
func (t *target) next(at plan.Target, c plan.Change, version string, grace time.Duration, now time.Time) (
	act bool, wait time.Duration) {
	t.calmDown(now)
	is, same := standing{c.State, c.Owner, c.Note, c.Adoptable}, t.content == contentOf(c.Source)
	unseen, gap := t.write.unseen(at.Have, version, now), t.write.at.Add(runGap).Sub(now)
	switch {
	case unseen > 0:
	case gap > 0:
		t.write = ownWrite{at: t.write.at}
	default:
		t.write = ownWrite{}
	}
	switch {
	case unseen > 0:
		wait, is = unseen, t.afterWrite(is, c)
	case c.State == plan.StateForeign && t.made(at.Have):
		is = t.shown(is)
		t.write = ownWrite{}
	case c.Op == plan.OpNone:
		t.rest(c)
	case t.retry.notBefore.After(now) && !t.isTriggered(at, c):
		wait = t.retry.notBefore.Sub(now)
		is = t.shown(is)
	case c.Op == plan.OpDelete && t.unclaimed.since.Add(grace).After(now):
		wait = t.unclaimed.since.Add(grace).Sub(now)
	case same && t.repairIn(now) > 0:
		wait = t.repairIn(now)
	case !same && c.Op != plan.OpDelete && gap > 0: // a source may change all the time
		wait = gap
	default:
		act = true
		wasDeletion := t.retry.content == content{}
		if is.owner == t.retry.shown.owner && wasDeletion == (c.Op == plan.OpDelete) {
			is = t.shown(is)
		}
	}
	if t.busy && is.state == plan.StateSynced { // the call may write other content
		is.state = plan.StatePending
	}
	if t.repairs > freeRepairs && (is.state == plan.StateSynced || is.state == plan.StatePending) ||
		t.repairs == freeRepairs && same && is.state == plan.StatePending {
		is.state = plan.StateFight
		if !act && wait == 0 {
			wait = max(t.calmAt().Sub(now), time.Nanosecond)
		}
	}
	if is.state == plan.StateNone {
		is = standing{}
	}
	t.standing = is
	return act, wait
}

// afterWrite returns how the target stands while what the cache shows is older than our own last write.
func (t *target) afterWrite(is standing, c plan.Change) standing {
	same := t.content == contentOf(c.Source)
	switch {
	case c.Source != nil && same:
		return standing{state: plan.StateSynced, owner: c.Owner}
	case c.Source != nil:
		return standing{state: plan.StatePending, owner: c.Owner}
	case same: // deleted
		return standing{}
	}
	return is
}

// shown returns how the target stands by the last try, if that showed something.
func (t *target) shown(is standing) standing {
	if t.retry.shown.state == plan.StateNone {
		return is
	}
	shown := t.retry.shown
	shown.owner = is.owner
	return shown
}

// made reports whether admission made have of our own write. While have is being deleted, that is what is in the way.
func (t *target) made(have *corev1.ConfigMap) bool {
	return have != nil && have.UID != "" && have.UID == t.retry.made && have.DeletionTimestamp == nil
}

// judge records since when a copy is unclaimed, and why. It reports whether that is to be announced. A change of the
// reason is announced, too: another remedy ends it.
func (t *target) judge(c plan.Change, now time.Time) (announce bool) {
	switch u := &t.unclaimed; {
	case c.Op != plan.OpDelete:
		*u = unclaimed{}
	case u.uid != c.Have.UID:
		*u = unclaimed{uid: c.Have.UID, since: now, why: c.Why}
		return true
	case u.why != c.Why:
		u.why, u.announced = c.Why, false
		return true
	}
	return false
}

// isTriggered reports whether a wait for the next try ends early. Other wanted content ends it, unless a foreign object
// is in the way. A change at the target ends it, unless that has failed often.
func (t *target) isTriggered(at plan.Target, c plan.Change) bool {
	r := &t.retry
	if r.content != contentOf(c.Source) && r.shown.state != plan.StateForeign {
		return true
	}
	have := versionOf(at.Have)
	changed := have != r.have && (r.stored == "" || have != r.stored)
	return changed && (r.failures < maxTriggers || r.outcome == outcome.Foreign && have != "")
}

// rest records that nothing is left to do until an event or a fan-out.
func (t *target) rest(c plan.Change) {
	switch c.State {
	case plan.StateNone:
		*t = target{uid: t.uid, busy: t.busy}
	case plan.StateSynced:
		t.content = contentOf(c.Source)
	default:
		t.content = content{}
	}
	t.write, t.retry, t.appeared = ownWrite{}, retry{}, time.Time{}
}

// wrote records a change that the API server carried out.
func (t *target) wrote(res *result, now time.Time) {
	c := res.change
	switch {
	case res.repair:
		t.repairs, t.repairedAt = t.repairs+1, now
	case t.content != contentOf(c.Source):
		t.repairs, t.repairedAt = 0, time.Time{}
	}
	t.content, t.retry, t.appeared = contentOf(c.Source), retry{}, time.Time{}
	t.write = ownWrite{version: versionOf(res.made), at: now}
	if c.Op == plan.OpDelete || c.Op == plan.OpRecreate {
		t.write.deleted = c.Have.UID
	}
}

// failed records that a change was not carried out, what the try showed, and when the next one is due.
func (t *target) failed(res *result, at plan.Target, now time.Time) {
	r, owner := &t.retry, res.change.Owner
	isNews := r.outcome == outcome.Rejected || r.shown.state == plan.StateRejected ||
		outcome.IsNews(res.err, now.Sub(res.began))
	switch {
	case res.outcome == outcome.Foreign:
		r.shown = standing{plan.StateForeign, owner, res.note, res.adoptable}
		t.content = content{}
	case res.outcome == outcome.Rejected && isNews:
		r.shown = standing{state: plan.StateRejected, owner: owner, note: res.note}
	case res.outcome != outcome.Unavailable || r.shown.owner != owner: // else it says nothing about the target
		r.shown = standing{}
	}
	have := at.Have
	if res.deleted {
		have = nil
	}
	if res.made != nil {
		r.made = res.made.UID
	}
	r.outcome, r.failures = res.outcome, r.failures+1
	r.notBefore = now.Add(res.outcome.Backoff(r.failures))
	r.content, r.have, r.stored = contentOf(res.change.Source), versionOf(have), versionOf(res.made)
}

// repairDelay returns how long the next repair waits after the last one.
func (t *target) repairDelay() time.Duration {
	if t.repairs < freeRepairs {
		return 0
	}
	return min(firstDelay<<min(t.repairs-freeRepairs, 8), maxDelay)
}

// repairIn returns how long the next repair has to wait.
func (t *target) repairIn(now time.Time) time.Duration {
	return t.repairedAt.Add(t.repairDelay()).Sub(now)
}

// calmAt returns when the repairs in a row are over, if the target is left alone until then.
func (t *target) calmAt() time.Time { return t.repairedAt.Add(t.repairDelay() + calm) }

// calmDown forgets the repairs if the target was left alone for long enough.
func (t *target) calmDown(now time.Time) {
	if t.repairs > 0 && now.After(t.calmAt()) {
		t.repairs, t.repairedAt = 0, time.Time{}
	}
}

// unseen returns how long to wait at most until the cache shows our own last write; 0: the cache shows it, or the wait
// was long enough. The cache has have at the target, and has seen everything up to version.
func (w ownWrite) unseen(have *corev1.ConfigMap, version string, now time.Time) time.Duration {
	order, err := resourceversion.CompareResourceVersion(version, w.version)
	isThere := have != nil && w.deleted != "" && have.UID == w.deleted && have.DeletionTimestamp == nil
	if isUnseen := err == nil && order < 0 || isThere; !isUnseen {
		return 0
	}
	return max(0, w.at.Add(maxUnseen).Sub(now))
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
	return true
}

// isPlain reports whether the target has only what plain targets share.
func (t *target) isPlain() bool { return *t == target{plain: t.plain, uid: t.uid} }

// isDone reports whether nothing is left to do at the target, as far as the caches will show.
func (t *target) isDone() bool { return t.state == plan.StateSynced || t.state == plan.StateNone }

// versionOf returns the resourceVersion of a ConfigMap, which may be nil.
func versionOf(cm *corev1.ConfigMap) string {
	if cm == nil {
		return ""
	}
	return cm.ResourceVersion
}
