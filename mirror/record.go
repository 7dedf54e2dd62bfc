package mirror

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/mirror-controller/mirror-controller/mirror/internal/outcome"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// key names a target: its namespace, and the name of the sources that contend
// for it. It also names one source or one copy.
type key = types.NamespacedName

// content identifies the wanted content of a target. The zero value means that
// no copy is wanted.
type content struct {
	source   key
	checksum string
}

func contentOf(s *plan.Source) content {
	if s == nil {
		return content{}
	}
	return content{source: s.Key, checksum: s.Checksum}
}

// standing is how a target stands: its state, and why.
type standing struct {
	state     plan.State
	owner     key    // the source that state counts for
	note      string // the cause of a warning, for people
	adoptable bool   // the owner of the foreign object there can hand it over
}

// settled is all that a record holds of a target at which nothing is going on:
// it is in sync, held, frozen or out of scope, and no write, retry or grace is
// to be remembered. Equal records of that kind share one struct, so that a copy
// in sync costs a pointer.
type settled struct {
	standing
	// content is the one with which the copy was last in sync, or was written.
	content content
	// superseded are the sources that select the target and do not win it.
	superseded sourceSet
}

// sourceSet is a set of the sources of one name, by their numbers: a bit for
// each. Most targets of a name have equal sets, so they share one.
type sourceSet string

// has reports whether the set has the source with this number.
func (s sourceSet) has(number int) bool {
	return number/8 < len(s) && s[number/8]&(1<<(number%8)) != 0
}

// record holds the controller's knowledge of one target that the caches do not
// show. The wanted state does not depend on it: it may be lost at any moment.
//
// A record changes by what happens: [record.observe] and [record.rest] take in what
// the caches and the clock show, [record.succeeded] and [record.failed] the result
// of a call. The conditions read the record, and change nothing. From them follows
// the standing.
type record struct {
	settled

	// namespaceUID makes a namespace that is created again begin anew. It is
	// empty in a struct that records share.
	namespaceUID types.UID
	// busy is set while a call is on its way. The caller decides at its end.
	busy bool

	lastWrite ownWrite
	unclaimed unclaimed
	retry     retry
	repairs   repairs
}

// ownWrite is our own last write. The watch shows it some time after the answer. The
// record forgets it when nothing is left to do, or after maxAwait.
type ownWrite struct {
	version string    // the resourceVersion of the object that was created or updated; empty: none was
	deleted types.UID // of the object that was deleted; empty: none was
	at      time.Time
}

// unclaimed is that no source claims a copy, and why.
type unclaimed struct {
	uid types.UID      // of the copy; empty: a source claims it
	why plan.Unclaimed // as it was judged

	// since is when a line of the log announced the deletion. The grace runs from
	// then on. Zero: no line has, so the copy is not deleted.
	since time.Time
	// line is which of the lines about copies of the name has announced the
	// deletion, for this reason. Zero: none has.
	line int
}

// repairs count how often in a row a copy with one content was restored.
type repairs struct {
	inRow int
	last  time.Time
}

// retry is why a target is tried again without an event.
type retry struct {
	outcome   outcome.Outcome
	failures  int       // in a row, for any reasons: they may take turns
	notBefore time.Time // when the next try is due

	// retryableSince is the time from which on each answer was retryable, such as a
	// conflict. Zero: the last answer was not.
	retryableSince time.Time

	// standing is how the target stands by the last try. The cache may not show
	// that: it holds no foreign objects. StateNone: the try showed nothing.
	standing standing
	// altered names the object of our own write, if admission altered it: it is the
	// copy, and not in the way of one.
	altered altered

	// What the last try was about. A change of it ends the wait.
	content content
	have    string // the resourceVersion of the object there
	stored  string // the resourceVersion of the object that was stored
}

// altered names an object that admission made of our own write.
type altered struct {
	uid     types.UID
	content content // of the write
	note    string  // what admission altered, for people
}

const (
	// maxRetryable is for how long the answers of a target may be retryable. After
	// that, if other namespaces are written to meanwhile, the target counts as
	// rejected.
	maxRetryable = time.Minute
	// updateGap is the shortest time between two updates of a copy: a source may
	// change all the time. The copy still gets the newest content in its turn.
	updateGap = 100 * time.Millisecond
	// maxAwait bounds the wait for our own write: after a restore of etcd the
	// cache may not reach the resourceVersion for days.
	maxAwait = time.Minute
	// maxTriggers is the number of failures in a row from which on a change of the
	// object at the target does not end a wait: a tenant can cause events without
	// end. An edit of the source, and a change of a foreign object, still end it.
	maxTriggers = 10

	// A fight: another client changes a copy back after each repair. The first
	// repairs, freeRepairs of them, are made at once: a person may be trying
	// things. Each later one waits, from firstDelay on, doubling to maxDelay.
	freeRepairs = 9
	firstDelay  = time.Second
	maxDelay    = time.Minute
	// calm is for how long a target has to be left alone until a fight is over.
	// GitOps tools restore what they manage every 3 or 10 minutes by default.
	calm = 15 * time.Minute
)

// observe records what the caches show now, and what time has ended.
func (r *record) observe(f *facts) {
	if f.now.After(r.repairs.calmAt()) {
		r.repairs = repairs{}
	}
	if !r.lastWrite.at.Add(maxAwait).After(f.now) {
		r.lastWrite = ownWrite{}
	}
	r.observeClaim(f)
}

// observeClaim records whether the copy is unclaimed, and why. Another reason is
// to be announced, too, because another remedy ends it.
func (r *record) observeClaim(f *facts) {
	c := f.change
	switch {
	case c.Op != plan.OpDelete:
		r.unclaimed = unclaimed{}
	case r.unclaimed.uid != c.Have.UID:
		r.unclaimed = unclaimed{uid: c.Have.UID, why: c.Why}
	case r.unclaimed.why != c.Why:
		r.unclaimed.why = c.Why
		r.unclaimed.line = 0
	}
}

// rest records that nothing is to be done until an event or a fan-out. What
// admission made of our own write stays known while it is there.
func (r *record) rest(f *facts) {
	c := f.change
	kept := retry{}
	if c.State != plan.StateSynced && r.hasAltered(f.have) {
		kept.altered = r.retry.altered
	}
	switch c.State {
	case plan.StateNone:
		*r = record{namespaceUID: r.namespaceUID, busy: r.busy}
	case plan.StateSynced:
		r.content = contentOf(c.Source)
	default:
		r.content = content{}
	}
	r.lastWrite = ownWrite{}
	r.retry = kept
}

// succeeded records a change that the API server carried out.
func (r *record) succeeded(res *result, now time.Time) {
	c := res.change
	switch {
	case res.isRepair:
		r.repairs.inRow++
		r.repairs.last = now
	case r.content != contentOf(c.Source):
		r.repairs = repairs{}
	}
	r.content = contentOf(c.Source)
	r.retry = retry{}
	r.lastWrite = ownWrite{version: versionOf(res.stored), at: now}
	if c.Op == plan.OpDelete || c.Op == plan.OpRecreate {
		r.lastWrite.deleted = c.Have.UID
	}
}

// failed records that a change was not carried out, what the try showed, and
// when the next one is due. have is the object that the change was about. A write
// in another namespace was carried out at writtenElsewhere.
//
// Answers that were retryable for too long make the outcome of res Rejected.
func (r *record) failed(res *result, have *corev1.ConfigMap, writtenElsewhere, now time.Time) {
	isRetryable := outcome.IsRetryable(res.err)
	switch {
	case isRetryable && r.retry.retryableSince.IsZero():
		r.retry.retryableSince = now
	case res.err != nil && !isRetryable:
		r.retry.retryableSince = time.Time{}
	}
	since := r.retry.retryableSince
	if isRetryable && now.Sub(since) >= maxRetryable && writtenElsewhere.After(since) {
		res.outcome = outcome.Rejected
	}
	if res.deleted {
		have = nil
	}
	if res.stored != nil {
		r.retry.altered = altered{
			uid:     res.stored.UID,
			content: contentOf(res.change.Source),
			note:    res.note,
		}
	}
	r.retry.standing = r.standingAfter(res, now) // compares res with the try before
	if res.outcome == outcome.Foreign {
		r.content = content{}
	}
	r.retry.outcome = res.outcome
	r.retry.failures++
	r.retry.notBefore = now.Add(res.outcome.Backoff(r.retry.failures))
	r.retry.content = contentOf(res.change.Source)
	r.retry.have = versionOf(have)
	r.retry.stored = versionOf(res.stored)
}

// standingAfter returns what a failed try shows of the target. The first refusal
// in a row may pass, so it rejects the target only if that cannot be.
func (r *record) standingAfter(res *result, now time.Time) standing {
	owner := res.change.Owner
	isSecond := r.retry.outcome == outcome.Rejected || r.retry.standing.state == plan.StateRejected
	isLasting := outcome.IsRetryable(res.err) // and rejected: for longer than maxRetryable
	isNews := isSecond || isLasting || outcome.IsNews(res.err, now.Sub(res.began))
	switch {
	case res.outcome == outcome.Foreign:
		return standing{plan.StateForeign, owner, res.note, res.adoptable}
	case res.outcome == outcome.Rejected && isNews:
		return standing{state: plan.StateRejected, owner: owner, note: res.note}
	case res.outcome == outcome.Unavailable && r.retry.standing.owner == owner:
		return r.retry.standing // no answer says nothing about the target
	}
	return standing{}
}

// delay returns how long the next repair waits after the last one.
func (r repairs) delay() time.Duration {
	if r.inRow < freeRepairs {
		return 0
	}
	return min(firstDelay<<min(r.inRow-freeRepairs, 8), maxDelay)
}

// calmAt returns when the row is over, if the target is left alone until then.
func (r repairs) calmAt() time.Time { return r.last.Add(r.delay() + calm) }

// isAwaited reports whether the cache does not show the write yet. It has have at
// the target, and has seen all ConfigMaps up to version.
func (w ownWrite) isAwaited(have *corev1.ConfigMap, version string) bool {
	order, _ := resourceversion.CompareResourceVersion(version, w.version) // 0: one has no order
	isBehind := order < 0
	isStillThere := have != nil && have.UID == w.deleted && have.DeletionTimestamp == nil
	return isBehind || isStillThere
}

// isSettled reports whether the record holds only what records share.
func (r *record) isSettled() bool {
	return *r == record{settled: r.settled, namespaceUID: r.namespaceUID}
}

// isShareable reports whether nothing in a settled record is chosen by a tenant:
// the note about an object in the way, or the source that such an object names.
func (r *record) isShareable() bool { return r.note == "" && r.state.IsTarget() }

// isDone reports whether nothing is left to do at the target, as far as the
// caches will show.
func (r *record) isDone() bool {
	return r.state == plan.StateSynced || r.state == plan.StateNone
}

// versionOf returns the resourceVersion of a ConfigMap, which may be nil.
func versionOf(cm *corev1.ConfigMap) string {
	if cm == nil {
		return ""
	}
	return cm.ResourceVersion
}
