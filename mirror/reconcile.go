package mirror

import (
	"context"
	"errors"
	"time"

	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/mirror-controller/mirror-controller/mirror/internal/lanes"
	"github.com/mirror-controller/mirror-controller/mirror/internal/liveread"
	"github.com/mirror-controller/mirror-controller/mirror/internal/outbox"
	"github.com/mirror-controller/mirror-controller/mirror/internal/outcome"
	"github.com/mirror-controller/mirror-controller/mirror/internal/queue"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// reconciler brings one copy in sync at a time.
type reconciler struct {
	*decider
	live      *liveread.Reader
	lanes     *lanes.Lanes
	writer    *writer
	selfCheck *selfCheck
	metrics   *controllerMetrics
	copies    *queue.Copies
	sources   *queue.Sources
	outbox    *outbox.Outbox

	undeleted rate.Sometimes // limits the log about copies that cannot be deleted
}

// result is what became of a change.
type result struct {
	change  plan.Change
	state   plan.State
	sent    bool              // the API server carried out the change
	made    *corev1.ConfigMap // the object as it was written; nil after a delete
	altered bool              // with other content than was sent
	repair  bool              // the change restored what another client had changed
	cause   string            // what that client had done to the copy, which was in sync before
	outcome outcome.Outcome   // why it failed
	live    *corev1.ConfigMap // the foreign object that is in the way
	taken   types.UID         // of what was created without a mark of a copy, and deleted at once
	err     error
	began   time.Time     // when the calls began
	after   time.Duration // when to reconcile again although nothing failed
}

// work reconciles copies until ctx ends, at a stop. Calls that have begun end with term, the term as leader, at the latest.
func (r *reconciler) work(ctx, term context.Context) {
	for {
		p := r.lanes.Enter(ctx)
		if p == nil {
			return
		}
		k, shutdown := r.copies.Get()
		if !shutdown && ctx.Err() == nil {
			r.reconcile(ctx, term, p, k)
		}
		p.Leave()
		if shutdown {
			return
		}
		r.copies.Done(k)
	}
}

// reconcile brings the copy of one name in one namespace in sync: it decides, makes at most one change, and records the result.
func (r *reconciler) reconcile(ctx, term context.Context, p *lanes.Place, k key) {
	done := r.metrics.reconciling()
	x := r.begin(k)
	if x.step != stepAct {
		done(metricOf(result{after: x.wait}))
		return
	}
	res := r.act(ctx, term, p, &x)
	r.finish(ctx, &x, &res)
	done(metricOf(res))
}

// begin decides about a target. If something is to be done, nobody else writes its record until finish.
func (r *reconciler) begin(k key) decision {
	n := r.status.lock(k.Name)
	defer n.unlock()
	now := time.Now()
	x := r.decide(n, k, func() *plan.View { return r.cache.View(k.Name) }, now)
	r.store(n, &x, now)
	if len(x.view.Sources) > 1 || x.change.Source == nil && n.withoutTargets() {
		n.dirty = true // the namespace may have changed, and with it a selection
	}
	if x.step == stepAct {
		n.calls[k.Namespace] = &meanwhile{}
		return x
	}
	x.enqueue(r.copies)
	r.reportIfDue(n)
	return x
}

// reportIfDue queues the name for a report if there may be something to report. The status is locked.
func (r *reconciler) reportIfDue(n *nameStatus) {
	if n.dirty {
		r.sources.AddReport(n.name, n.reportableIn())
	}
}

// act carries out a change, a deletion after live reads confirm it. If a foreign object was in the way, act reads the object
// first. If a create finds an object that the cache does not show, or is rejected before it can find one, act reads the object
// afterwards. Then it does what the object calls for.
func (r *reconciler) act(ctx, term context.Context, p *lanes.Place, x *decision) result {
	c := x.change
	switch {
	case c.Op == plan.OpDelete:
		if res, confirmed := r.confirm(ctx, p, x); !confirmed {
			return res
		}
	case c.Op == plan.OpCreate && x.record.retry.state == plan.StateForeign:
		if res := r.actOnLive(ctx, term, p, x, result{}); res.sent || res.outcome != outcome.OK {
			return res
		}
	}
	res := r.write(ctx, term, p, c, &x.record)
	if c.Op != plan.OpCreate || res.taken != "" || !apierrors.IsAlreadyExists(res.err) && res.outcome != outcome.Rejected {
		return res
	}
	return r.actOnLive(ctx, term, p, x, res)
}

// confirm reads the source live, and the namespace if its labels matter, and reports whether the copy may be deleted. A
// read that began before the end of the grace does not count. If the copy may not be deleted, confirm returns what became
// of the deletion.
func (r *reconciler) confirm(ctx context.Context, p *lanes.Place, x *decision) (res result, confirmed bool) {
	c, began, graceEnd := x.change, time.Now(), x.record.unclaimed.since.Add(r.grace)
	namespace := ""
	if c.ByLabels {
		namespace = c.Key.Namespace
	}
	live, wait, err := r.live.Premise(ctx, p.Read, c.CopyOf, namespace, graceEnd)
	if err == nil && wait == 0 && !c.ByLabels && r.rules.DependsOnLabels(live.Source, x.target.Namespace) {
		c.ByLabels = true // the cache did not show this source
		live, wait, err = r.live.Premise(ctx, p.Read, c.CopyOf, c.Key.Namespace, graceEnd)
	}
	ns := x.target.Namespace
	if c.ByLabels {
		ns = live.Namespace
	}
	res = result{change: c, state: plan.StatePending, began: began}
	switch {
	case err != nil:
		return failed(c, err, began), false
	case wait > 0:
		res.outcome, res.after = outcome.PutOff, wait
	case ns == nil || plan.Terminating(ns) || !r.rules.StillUnwanted(c, x.view, live.Source, ns): // the watch will show why
		x.record.unclaimed.since = live.Began
		res.outcome = outcome.Stale
	case r.cache.View(c.Key.Name) != x.view, r.status.claimed(c.Key): // the answer may be newer or older than the view
		res.outcome = outcome.Conflict
	default:
		return res, true
	}
	return res, false
}

// readBackoff returns how long a failed live read serves all deletions that depend on it.
func readBackoff(err error, failures int) time.Duration {
	return outcome.Of(plan.OpDelete, err).Backoff(failures)
}

// actOnLive reads an object that the cache does not show, and does what it calls for. none is the result if there is no object: a quota refused the create, or the object has just gone.
func (r *reconciler) actOnLive(ctx, term context.Context, p *lanes.Place, x *decision, none result) result {
	k, began := x.change.Key, time.Now()
	live, err := r.live.ConfigMap(ctx, p.Read, k)
	switch {
	case err != nil:
		return failed(x.change, err, began)
	case live == nil:
		return none
	}
	t := r.cache.Target(k)
	t.Have = live
	c := r.rules.Decide(r.cache.View(k.Name), t)
	unseen := result{change: c, state: plan.StatePending, outcome: outcome.Conflict, began: began}
	switch {
	case c.Op == plan.OpUpdate, c.Op == plan.OpRecreate:
		return r.write(ctx, term, p, c, &x.record)
	case c.Op == plan.OpNone && c.State == plan.StateForeign, c.Op == plan.OpNone && !r.rules.Visible(live):
		return result{change: c, state: c.State, outcome: outcome.Foreign, live: live, began: began} // no event tells when that ends
	}
	return unseen // the watch will show it
}

// write makes the call of a change. A call that has begun is not cancelled by a stop, but by the end of the term.
func (r *reconciler) write(ctx, term context.Context, p *lanes.Place, c plan.Change, rec *record) result {
	if ctx.Err() != nil {
		return failed(c, ctx.Err(), time.Now())
	}
	res := result{change: c, began: time.Now()}
	callCtx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	defer context.AfterFunc(term, cancel)()
	err := p.Write(callCtx, c.Key.Namespace, func(ctx context.Context) (err error) {
		res.made, err = r.writer.apply(ctx, c)
		return err
	})
	res.altered = errors.Is(err, errAltered)
	if err != nil && !res.altered {
		r.selfCheck.note(err)
		out := failed(c, err, res.began)
		if isUncounted(c.Op, rec.retry.outcome, err) {
			out.outcome, out.state = outcome.Transient, plan.StatePending
		}
		if errors.Is(err, outcome.ErrUnmarked) && c.Op != plan.OpUpdate {
			out.taken = res.made.UID
		}
		return out
	}
	wasSynced := c.Source != nil && rec.content == contentOf(c.Source)
	cause := r.rules.RepairCause(c, wasSynced)
	if cause != "" {
		r.metrics.repairs.WithLabelValues(cause).Inc()
	}
	res.sent, res.repair, res.state = true, wasSynced || res.altered || cause != "", stateOfWrite(c)
	if wasSynced {
		res.cause = cause
	}
	if res.altered {
		res.state, res.after = plan.StatePending, alteredRetry
	}
	return res
}

// isUncounted reports whether a quota refuses a create because it has not counted our own deletion yet. before is the
// outcome of the last try, of the re-creation of which the create is a part.
func isUncounted(op plan.Op, before outcome.Outcome, err error) bool {
	return (op == plan.OpRecreate || op == plan.OpCreate && before == outcome.Transient) && outcome.ExceedsQuota(err)
}

// alteredRetry is the time before a write is repeated that was altered on its way.
const alteredRetry = 100 * time.Millisecond

// failed is the result of a change that the API server refused or did not answer.
func failed(c plan.Change, err error, began time.Time) result {
	if off := (lanes.PutOffError{}); errors.As(err, &off) {
		return result{change: c, state: plan.StatePending, outcome: outcome.PutOff, after: off.RetryAfter}
	}
	o := outcome.Of(c.Op, err)
	return result{change: c, state: o.State(), outcome: o, err: err, began: began}
}

// finish records the result of a change, and sets the timer for the next try.
func (r *reconciler) finish(ctx context.Context, x *decision, res *result) {
	now, k := time.Now(), x.change.Key
	n := r.status.lock(k.Name)
	defer n.unlock()
	seen := n.calls[k.Namespace]
	delete(n.calls, k.Namespace)
	if seen.claimed {
		x.record.unclaimed = unclaimed{}
	}
	if res.sent {
		r.recordWrite(n, x, *res, now)
	}
	next, wait := r.conclude(x, res, now)
	if seen.queued { // the write may be older than the source
		next = stepAct
	}
	x.record.queued = seen.queued
	x.record.state, x.record.countsFor = x.record.status(next, res.change, now)
	n.set(k.Namespace, uidOf(x.target.Namespace), x.record)
	if wait > 0 {
		r.copies.AddAfter(k, wait)
	}
	r.reportIfDue(n)
	r.log(ctx, *res, wait)
}

// conclude records what became of a change, and returns the next step, and the time until the next try.
func (r *reconciler) conclude(x *decision, res *result, now time.Time) (step, time.Duration) {
	rec := &x.record
	switch {
	case res.outcome == outcome.Terminating && r.closed(x.target):
		*res = result{change: plan.Change{Key: res.change.Key}} // an event tells if the namespace returns
	case res.outcome == outcome.Transient && lasts(rec.retry, *res, now):
		res.outcome, res.state = outcome.Rejected, plan.StateRejected
	}
	switch res.outcome {
	case outcome.OK:
	case outcome.PutOff:
		return stepAwait, res.after
	default:
		if res.taken != "" { // the events of both writes wake nobody
			rec.own = ownWrite{deleted: res.taken, altered: true, at: now}
		}
		return stepWait, rec.fail(r.rules, x, *res, now)
	}
	rec.rest(res.state, contentOf(res.change.Source), now)
	switch calmIn := rec.fight(now); {
	case !res.sent:
		return stepNone, 0
	case res.altered && calmIn > 0:
		return stepAwait, hold(rec.repairs)
	case res.altered:
		return stepAwait, res.after
	case res.state == plan.StateSynced:
		return stepDone, calmIn // the other client may come again
	}
	return stepDone, 0 // if no event shows our own write, a relist does, and its fan-out waits no longer than maxOwn
}

// closed reports whether the cache, too, shows the namespace terminating or absent.
func (r *reconciler) closed(t plan.Target) bool {
	ns := r.cache.Namespace(t.Key.Namespace)
	return ns == nil || plan.Terminating(ns)
}

// transientLimit is how long the API server may answer with errors of its own before they count as a rejection: a webhook that it
// cannot call, for example, is reported and retried slowly then.
const transientLimit = 10 * time.Second

// lasts reports whether a transient failure counts as a rejection.
func lasts(before retry, res result, now time.Time) bool {
	since := res.began
	if before.outcome == outcome.Transient {
		since = before.since
	}
	return outcome.IsAnswer(res.err) && (before.outcome.State() == plan.StateRejected || now.Sub(since) >= transientLimit)
}

// fail records a failure, and returns the time until the next try.
func (rec *record) fail(rules *plan.Rules, x *decision, res result, now time.Time) time.Duration {
	r := &rec.retry
	if r.outcome != res.outcome {
		r.outcome, r.since = res.outcome, res.began
	}
	r.failures++
	wait := res.outcome.Backoff(r.failures)
	r.notBefore, r.tried = now.Add(wait), triggerOf(x.target, x.change)
	if res.outcome == outcome.Transient && (r.state == plan.StateFrozen || r.state == plan.StateHeld || r.owner == res.change.CountsFor()) {
		return wait // the failure says nothing about the target
	}
	r.state, r.owner, r.note, r.adoptable = plan.StateNone, res.change.CountsFor(), "", false
	if res.outcome == outcome.Rejected || res.outcome == outcome.Foreign {
		r.state = res.state
	}
	switch {
	case r.state == plan.StateForeign:
		rec.content = content{}
		if res.live != nil {
			r.note, r.adoptable = rules.Foreign(res.live)
		}
	case r.state == plan.StateRejected && res.err != nil:
		r.note = clip(res.err.Error())
	}
	return wait
}

// recordWrite records what the API server carried out.
func (r *reconciler) recordWrite(n *nameStatus, x *decision, res result, now time.Time) {
	rec, c := &x.record, res.change
	rec.calmDown(now)
	if res.repair {
		rec.repairs++
		rec.repairedAt = now
	} else if rec.content != contentOf(c.Source) {
		rec.repairs = 0
	}
	rec.content = contentOf(c.Source)
	r.tell(x, res, now)
	rec.own = ownWrite{at: now, altered: res.altered}
	if c.Op == plan.OpDelete || c.Op == plan.OpRecreate {
		rec.own.deleted = c.Have.UID
	}
	if c.Op == plan.OpDelete {
		n.source(c.CopyOf).deleted.add(now)
		n.dirty = true
	}
	if res.made != nil {
		rec.own.version = res.made.ResourceVersion
	}
	if res.made != nil && !res.altered {
		n.source(c.Source.Key).writes(c, now)
		if c.Op == plan.OpCreate && !rec.appeared.IsZero() {
			r.metrics.fill.Observe(now.Sub(rec.appeared).Seconds())
		}
	}
	if rec.own.left(r.cache.ConfigMap(c.Key), r.cache.Version(), now) == 0 {
		rec.own = ownWrite{} // the watch was faster than the answer
	}
}

// tell puts an event on a copy that was restored. There is none in a fight, nor after a failed try: our own re-creation may
// have deleted the copy.
func (r *reconciler) tell(x *decision, res result, now time.Time) {
	if res.cause == "" || res.altered || x.record.retry.failures > 0 || x.record.fight(now) > 0 || r.closed(x.target) {
		return
	}
	r.outbox.Put(outbox.Event{Regarding: res.change.Key, UID: res.made.UID, Type: corev1.EventTypeNormal, Reason: plan.ReasonRestored,
		Note: r.rules.Restored(res.change, res.cause)})
}

func metricOf(res result) string {
	switch {
	case res.err != nil && res.outcome.Failed():
		return "error"
	case res.outcome != outcome.OK || res.after > 0:
		return "requeue_after"
	}
	return "success"
}

func (r *reconciler) log(ctx context.Context, res result, wait time.Duration) {
	logger, c := klog.FromContext(ctx), res.change
	if c.Op == plan.OpDelete && res.outcome == outcome.Rejected {
		// The source may be gone, and with it the place for an event.
		r.undeleted.Do(func() {
			logger.Error(clipError(res.err), "Cannot delete a copy, retrying", "copy", c.Key, "source", c.CopyOf)
		})
	}
	switch {
	case res.sent && c.Op == plan.OpDelete:
		logger.V(2).Info("Copy deleted", "copy", c.Key, "source", c.CopyOf)
	case res.sent:
		logger.V(2).Info("Copy written", "copy", c.Key, "op", c.Op, "source", c.Source.Key)
	case res.err != nil:
		logger.V(2).Info("Copy out of sync, retrying", "copy", c.Key, "op", c.Op, "outcome", res.outcome, "after", wait, "err", clipError(res.err))
	case c.State == plan.StatePending && c.Have != nil && c.Have.DeletionTimestamp != nil:
		logger.V(2).Info("Copy is terminating, waiting for its finalizers", "copy", c.Key, "finalizers", c.Have.Finalizers[:min(1, len(c.Have.Finalizers))])
	default:
		logger.V(4).Info("Nothing done", "copy", c.Key, "state", res.state, "outcome", res.outcome, "after", wait)
	}
}
