package mirror

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/mirror-controller/mirror-controller/mirror/internal/liveread"
	"github.com/mirror-controller/mirror-controller/mirror/internal/outcome"
	"github.com/mirror-controller/mirror-controller/mirror/internal/report"
	"github.com/mirror-controller/mirror-controller/mirror/internal/slow"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// secondChance is the pause before the next try of a write that was cut, if the
// namespace does not count as slow for it.
const secondChance = 250 * time.Millisecond

// reconciler brings targets in sync, each by one change at a time.
type reconciler struct {
	*decider
	metrics  *controllerMetrics
	live     *liveread.Reader
	writer   *writer
	restored restored

	recent    recentWrites
	undeleted rate.Sometimes // limits the log about copies that cannot be deleted
}

// attempt is one pass over one target: the decision to act, and how much time its
// calls have.
type attempt struct {
	decision
	pace slow.Pace
}

// result is the result of a change.
type result struct {
	change  plan.Change
	outcome outcome.Outcome // OK: the API server carried the change out
	err     error
	began   time.Time

	// The object in the way, or the error, for people.
	note      string
	adoptable bool // the owner of the object in the way can hand it over

	// Set if the API server carried out a part of the change, or all of it.
	stored  *corev1.ConfigMap // the object as it is stored; nil after a delete
	deleted bool              // of a re-creation that failed, the deletion was carried out

	// A repair restores what another client did to the copy.
	isRepair bool
	cause    string // of the repair, if the copy was in sync before

	// Results of the live reads before a deletion.
	claimedAt time.Time     // a read that began then shows a claim
	askAgain  time.Duration // a read is on its way: when to ask again
}

// turn reconciles the target of a slow namespace whose turn it is.
func (r *reconciler) turn(ctx, writes context.Context, uid types.UID, pace slow.Pace) {
	if k, ok := r.queues.slow.Next(uid); ok {
		r.reconcile(ctx, writes, k, pace)
	}
	for _, k := range r.queues.slow.EndTurn(uid) {
		r.queues.copies.Add(k)
	}
}

// reconcile brings a target in sync: it decides, makes at most one change,
// records the result, and decides again. That second decision takes in what
// happened during the calls, so nobody has to remember that.
//
// After the end of ctx no write begins. The end of writes cuts those in flight.
func (r *reconciler) reconcile(ctx, writes context.Context, k key, pace slow.Pace) {
	done := r.metrics.reconciling()
	x := &attempt{decision: r.begin(k, pace), pace: pace}
	if !x.act {
		done(metricOf(result{}, x.wait))
		return
	}
	began := time.Now()
	res := r.act(ctx, writes, x)
	res.began = began
	wait := r.finish(x, &res)
	r.log(ctx, &res, wait)
	done(metricOf(res, wait))
}

// begin decides about a target, and makes it busy if something is to be done now.
// A target in a slow namespace waits for its turn instead.
func (r *reconciler) begin(k key, pace slow.Pace) decision {
	n := r.records.lock(k.Name)
	defer n.unlock()
	x := r.visit(n, k)
	if x.act && pace == slow.Ordinary {
		x.act = !r.queues.slow.Put(x.record.namespaceUID, k, nil)
	}
	if x.act {
		busy := x.record
		busy.busy = true
		n.set(k.Namespace, busy)
	}
	return x
}

// finish records the result of a change, decides again, and queues the target if
// something is left to do. It returns how long the target waits.
func (r *reconciler) finish(x *attempt, res *result) (wait time.Duration) {
	k := x.change.Key
	now := time.Now()
	n := r.records.lock(k.Name)
	defer n.unlock()
	known := *n.byNamespace[k.Namespace] // a busy target has a record
	known.busy = false
	isSameNamespace := known.namespaceUID == x.record.namespaceUID
	if isSameNamespace {
		r.recordResult(n, &known, x, res, now)
	}
	n.set(k.Namespace, known)
	next := r.decide(n, k)

	wait = max(next.wait, res.askAgain)
	switch {
	case errors.Is(res.err, slow.ErrCut) && isSameNamespace:
		// If the namespace counts as slow now, the target waits for a turn.
		if !r.queues.slow.Put(known.namespaceUID, k, res.err) {
			r.queues.copies.AddAfter(k, secondChance)
		}
	case next.act && res.askAgain == 0:
		r.queues.copies.Add(k)
	case isShownByAnEvent(&next, res):
		wait = 0
	case wait > 0:
		r.queues.copies.AddAfter(k, wait)
	}
	return wait
}

// isShownByAnEvent reports whether only our own write is left to be seen. The
// watch shows a write by an event or, after a gap, by a relist, which queues a
// fan-out of each source. A deletion does not count: its source may be gone, and
// then no fan-out would look at the target again.
func isShownByAnEvent(next *decision, res *result) bool {
	return res.outcome == outcome.OK && next.record.isDone() && res.change.Op != plan.OpDelete
}

// recordResult records the result of a change in the record of its target.
func (r *reconciler) recordResult(
	n *nameRecords, known *record, x *attempt, res *result, now time.Time) {
	if res.deleted { // the creation was not carried out
		known.lastWrite = ownWrite{deleted: res.change.Have.UID, at: now}
		known.content = content{}
	}
	switch {
	case res.outcome == outcome.OK:
		r.recent.add(res.change.Key.Namespace, now)
		r.carriedOut(n, known, res, now)
		known.succeeded(res, now)
	case res.outcome == outcome.Delayed:
	default:
		// Only a grace that has begun begins anew. After a claim that came and went
		// meanwhile a new line begins it.
		begun := known.unclaimed.since
		if !begun.IsZero() && begun.Before(res.claimedAt) {
			known.unclaimed.since = res.claimedAt
		}
		known.failed(res, x.target.Have, r.recent.elsewhere(res.change.Key.Namespace), now)
	}
}

// carriedOut counts a change that the API server carried out. A restored copy
// gets an event, but not after a failure: our own re-creation may have deleted
// the copy.
func (r *reconciler) carriedOut(n *nameRecords, known *record, res *result, now time.Time) {
	c := res.change
	if c.Source == nil {
		return
	}
	n.status(c.Source.Key).writeAt = now
	if res.cause == "" || known.retry.failures > 0 || known.repairs.inRow >= freeRepairs {
		return
	}
	r.restored.put(Event{
		Regarding:   c.Key,
		UID:         res.stored.UID,
		Type:        corev1.EventTypeNormal,
		Reason:      plan.ReasonRestored,
		Note:        plan.Clip(r.rules.Restored(c, res.cause), report.MaxNote),
		Annotations: map[string]string{plan.InstanceAnnotation: r.rules.Instance()},
	})
}

// act carries out the change. The cache cannot show the premise of a deletion, nor
// a foreign object in the way of a create, so act reads these live. If a foreign
// object was in the way at the last try, act reads it before the create. Otherwise
// the create finds it.
func (r *reconciler) act(ctx, writes context.Context, x *attempt) result {
	c := x.change
	switch {
	case c.Op == plan.OpDelete:
		if res, confirmed := r.confirm(ctx, x); !confirmed {
			return res
		}
	case c.Op == plan.OpCreate && x.record.retry.outcome == outcome.Foreign:
		if res, isThere := r.actOnLive(ctx, writes, x); isThere {
			return res
		}
		c = r.changeNow(c.Key) // the read may have taken long
		if c.Op != plan.OpCreate {
			return result{change: c, outcome: outcome.Conflict}
		}
	}
	res := r.write(ctx, writes, x, c)
	if c.Op == plan.OpCreate && mayHideObject(&res) {
		if onLive, isThere := r.actOnLive(ctx, writes, x); isThere {
			return onLive
		}
	}
	return res
}

// mayHideObject reports whether a create was refused so that there may be an object
// that the cache does not show: a quota refuses a create before the API server
// looks for one.
func mayHideObject(res *result) bool {
	isRejected := res.outcome == outcome.Rejected && !errors.Is(res.err, outcome.ErrAltered)
	return isRejected || apierrors.IsAlreadyExists(res.err)
}

// changeNow returns the change at a target by what the cache shows now.
func (r *reconciler) changeNow(k key) plan.Change {
	target := r.cache.Target(k)
	return r.rules.Decide(r.cache.View(k.Name), target)
}

// confirm reads the source live, and the namespace if labels decide, and reports
// whether the copy may be deleted. A read that began before the end of the grace
// does not count. If the copy may not be deleted, res is the result.
func (r *reconciler) confirm(ctx context.Context, x *attempt) (res result, confirmed bool) {
	c := x.change
	ns := x.target.Namespace
	namespace := "" // to read; empty: none
	if r.rules.DependsOnLabels(x.view) {
		namespace = ns.Name
	}
	endOfGrace := x.record.unclaimed.since.Add(r.grace)
	isPatient := x.pace != slow.Ordinary
	live, wait, err := r.live.Premise(ctx, r.reads(x), c.CopyOf, namespace, endOfGrace, isPatient)
	if namespace != "" {
		ns = live.Namespace
	}
	switch {
	case err != nil:
		return resultOf(c, err), false
	case wait > 0:
		return result{change: c, outcome: outcome.Delayed, askAgain: wait}, false
	case ns == nil || plan.Terminating(ns) || !r.rules.StillUnwanted(c, x.view, live.Source, ns):
		// The watch will show why. The grace begins anew.
		return result{change: c, outcome: outcome.Claimed, claimedAt: live.Began}, false
	case !r.isStillDue(x):
		return result{change: c, outcome: outcome.Conflict}, false
	}
	return result{}, true
}

// isStillDue reports whether a deletion that was decided is still due by what
// the cache shows now, and no source has claimed the copy meanwhile. The read may
// have taken long, and its answer may be older than the cache.
func (r *reconciler) isStillDue(x *attempt) bool {
	k := x.change.Key
	c := r.changeNow(k)
	if c.Op != plan.OpDelete || versionOf(c.Have) != versionOf(x.change.Have) {
		return false
	}
	n := r.records.lock(k.Name)
	defer n.unlock()
	known := n.byNamespace[k.Namespace] // a busy target has a record
	return known.unclaimed == x.record.unclaimed
}

// reads returns how an attempt makes calls that read.
func (r *reconciler) reads(x *attempt) liveread.Call {
	return func(ctx context.Context, f func(context.Context) error) error {
		return r.queues.slow.Read(ctx, x.record.namespaceUID, x.pace, f)
	}
}

// actOnLive reads an object that the cache does not show, and makes the change
// that this object needs. isThere is false if there is none.
func (r *reconciler) actOnLive(ctx, writes context.Context, x *attempt) (res result, isThere bool) {
	k := x.change.Key
	have, err := r.live.ConfigMap(ctx, r.reads(x), k)
	switch {
	case err != nil:
		return resultOf(x.change, err), true
	case have == nil:
		return result{}, false
	}
	target := r.cache.Target(k)
	target.Have = have
	view := r.cache.View(k.Name)
	c := r.rules.Decide(view, target)
	// The watch will show it. The try was about x.change: a result about c would
	// have the target tried again at once, until the watch shows it.
	res = result{change: x.change, outcome: outcome.Conflict}
	switch {
	case c.Op == plan.OpUpdate, c.Op == plan.OpRecreate:
		return r.write(ctx, writes, x, c), true
	case c.State == plan.StateForeign && x.record.hasAltered(have):
		res = resultOf(x.change, outcome.ErrAltered)
		res.note = cmp.Or(x.record.retry.altered.note, res.note)
		res.stored = have
	case c.State == plan.StateForeign:
		res.outcome = outcome.Foreign
		res.note = c.Note
		res.adoptable = c.Adoptable
	case !r.rules.Visible(have):
		// A source holds this copy, which has lost its label. There is no event
		// at the end of that.
		res.outcome = outcome.Foreign
		res.note = r.rules.Reason(view, c)
	}
	return res, true
}

// write carries out a change, unless the process stops.
//
// Before an update of a copy with other people's metadata it reads the copy.
// Somebody may write metadata faster than the watch shows it. Therefore such an
// update carries the resourceVersion of the read, and one conflict is followed by
// another read. The ordinary retry follows the second conflict.
func (r *reconciler) write(ctx, writes context.Context, x *attempt, c plan.Change) result {
	if c.Op != plan.OpUpdate || !plan.HasOthers(c.Have) {
		return r.call(ctx, writes, x, c, nil)
	}
	for tries := 1; ; tries++ {
		var live *corev1.ConfigMap
		err := r.reads(x)(ctx, func(ctx context.Context) (err error) {
			live, err = r.writer.readJudged(ctx, c)
			return err
		})
		if err != nil {
			return resultOf(c, err)
		}
		res := r.call(ctx, writes, x, c, live)
		if tries == 2 || !apierrors.IsConflict(res.err) {
			return res
		}
	}
}

// call makes the calls of a change that write, unless the process stops. live is
// the object as it was just read, if the change keeps metadata of it.
func (r *reconciler) call(
	ctx, writes context.Context, x *attempt, c plan.Change, live *corev1.ConfigMap) result {
	if err := ctx.Err(); err != nil {
		return resultOf(c, err)
	}
	var stored *corev1.ConfigMap
	var applied error
	apply := func(ctx context.Context) error {
		stored, applied = r.writer.apply(ctx, c, live)
		return applied
	}
	err := r.queues.slow.Write(writes, x.record.namespaceUID, x.pace, apply)
	if err != nil {
		res := resultOf(c, err)
		res.deleted = errors.As(applied, &deletedError{}) // also if the creation was cut
		if errors.Is(err, outcome.ErrAltered) {
			res.stored = stored
		}
		return res
	}
	res := result{change: c, stored: stored}
	wasSynced := c.Source != nil && x.record.content == contentOf(c.Source)
	cause := r.rules.RepairCause(c, wasSynced)
	if cause != "" {
		r.metrics.repairs.WithLabelValues(cause).Inc()
	}
	res.isRepair = cause != ""
	if wasSynced {
		res.cause = cause
	}
	return res
}

// resultOf returns the result of a change whose calls ended with an error.
func resultOf(c plan.Change, err error) result {
	if errors.Is(err, slow.ErrCut) {
		return result{change: c, outcome: outcome.Delayed, err: err}
	}
	note := plan.Clip(err.Error(), report.MaxNote)
	return result{change: c, outcome: outcome.Of(c.Op, err), err: err, note: note}
}

// metricOf returns the result of a reconcile, as controller-runtime counts it.
func metricOf(res result, wait time.Duration) string {
	switch {
	case res.err != nil && res.outcome.Failed():
		return "error"
	case res.outcome != outcome.OK || wait > 0:
		return "requeue_after"
	}
	return "success"
}

// log logs the result of a change. An operator reads that by -v=2.
func (r *reconciler) log(ctx context.Context, res *result, wait time.Duration) {
	logger := klog.FromContext(ctx)
	c := res.change
	if c.Op == plan.OpDelete && res.outcome == outcome.Rejected {
		// The source may be gone, and with it the place for an event.
		r.undeleted.Do(func() {
			logger.Error(errors.New(res.note), "Cannot delete a copy, retrying",
				"copy", c.Key, "source", c.CopyOf)
		})
	}
	switch {
	case res.outcome == outcome.OK && c.Op == plan.OpDelete:
		logger.V(2).Info("Copy deleted", "copy", c.Key, "source", c.CopyOf)
	case res.outcome == outcome.OK:
		logger.V(2).Info("Copy written", "copy", c.Key, "op", c.Op, "source", c.Source.Key)
	case res.err != nil:
		logger.V(2).Info("Copy out of sync, retrying", "copy", c.Key, "op", c.Op,
			"outcome", res.outcome, "after", wait, "err", plan.Clip(res.err.Error(), report.MaxNote))
	default:
		logger.V(4).Info("Nothing done", "copy", c.Key, "state", c.State,
			"outcome", res.outcome, "after", wait)
	}
}

// recentWrites are the last write that the API server carried out, and the last one
// in another namespace.
type recentWrites struct {
	mu           sync.Mutex
	last, before struct {
		namespace string
		at        time.Time
	}
}

// add adds a write.
func (w *recentWrites) add(namespace string, at time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.last.namespace != namespace {
		w.before = w.last
	}
	w.last.namespace = namespace
	w.last.at = at
}

// elsewhere returns when the last write was that was not in the namespace.
func (w *recentWrites) elsewhere(namespace string) time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.last.namespace == namespace {
		return w.before.at
	}
	return w.last.at
}
