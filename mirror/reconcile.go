package mirror

import (
	"context"
	"errors"
	"time"

	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/klog/v2"

	"github.com/mirror-controller/mirror-controller/mirror/internal/lanes"
	"github.com/mirror-controller/mirror-controller/mirror/internal/liveread"
	"github.com/mirror-controller/mirror-controller/mirror/internal/outbox"
	"github.com/mirror-controller/mirror-controller/mirror/internal/outcome"
	"github.com/mirror-controller/mirror-controller/mirror/internal/queue"
	"github.com/mirror-controller/mirror-controller/mirror/internal/report"
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

// work reconciles copies until ctx ends. The end of ctx is a stop, and calls that have begun go on. The end of term,
// the term as leader, ends them.
func (r *reconciler) work(ctx, term context.Context) {
	for {
		slot := r.lanes.Enter(ctx)
		if slot == nil {
			return
		}
		k, shutdown := r.copies.Get()
		if !shutdown && ctx.Err() == nil {
			r.reconcile(ctx, term, slot, k)
		}
		slot.Leave()
		if shutdown {
			return
		}
		r.copies.Done(k)
	}
}

// reconcile brings the copy of one name in one namespace in sync: it decides, makes at most one change, and records
// the result.
func (r *reconciler) reconcile(ctx, term context.Context, slot *lanes.Slot, k key) {
	done := r.metrics.reconciling()
	x := r.begin(k)
	if x.step != stepAct {
		done(metricOf(result{after: x.wait}))
		return
	}
	res := r.act(ctx, term, slot, &x)
	r.finish(ctx, &x, &res)
	done(metricOf(res))
}

// begin decides about a target. If something is to be done, nobody else writes its record until finish.
func (r *reconciler) begin(k key) decision {
	n := r.status.lock(k.Name)
	defer n.unlock()
	x := r.decide(n, k, func() *plan.View { return r.cache.View(k.Name) }, time.Now())
	if len(x.view.Sources) > 1 || x.change.Source == nil && n.withoutTargets() {
		n.dirty = true // the namespace may have changed, and with it a selection
	}
	if x.step == stepAct {
		n.calls[k.Namespace] = &meanwhile{}
		return x
	}
	if x.wait > 0 {
		r.copies.AddAfter(k, x.wait)
	}
	r.reportIfDue(n)
	return x
}

// reportIfDue queues the name for a report if there may be something to report. The status is locked.
func (r *reconciler) reportIfDue(n *nameStatus) {
	if n.dirty {
		r.sources.AddReport(n.name, n.reportableIn())
	}
}

// act carries out a change. A deletion needs live reads that confirm it. If a foreign object was in the way, act
// reads that object first. If a create finds an object that the cache does not show, or is rejected before it can
// find one, act reads the object afterwards, and then makes the change that the object needs.
func (r *reconciler) act(ctx, term context.Context, slot *lanes.Slot, x *decision) result {
	c := x.change
	switch {
	case c.Op == plan.OpDelete:
		if res, confirmed := r.confirm(ctx, slot, x); !confirmed {
			return res
		}
	case c.Op == plan.OpCreate && x.record.retry.state == plan.StateForeign:
		if res := r.actOnLive(ctx, term, slot, x, result{}); res.sent || res.outcome != outcome.OK {
			return res
		}
	}
	res := r.write(ctx, term, slot, c, &x.record)
	if c.Op != plan.OpCreate || res.taken != "" || !apierrors.IsAlreadyExists(res.err) && res.outcome != outcome.Rejected {
		return res
	}
	return r.actOnLive(ctx, term, slot, x, res)
}

// confirm reads the source live, and the namespace if its labels matter, and reports whether the copy may be deleted.
// A read that began before the end of the grace does not count. If the copy may not be deleted, res is the result.
func (r *reconciler) confirm(ctx context.Context, slot *lanes.Slot, x *decision) (res result, confirmed bool) {
	c, began, graceEnd := x.change, time.Now(), x.record.unclaimed.since.Add(r.grace)
	namespace := ""
	if c.ByLabels {
		namespace = c.Key.Namespace
	}
	live, wait, err := r.live.Premise(ctx, slot.Read, c.CopyOf, namespace, graceEnd)
	if err == nil && wait == 0 && !c.ByLabels && r.rules.DependsOnLabels(live.Source, x.target.Namespace) {
		c.ByLabels = true // the cache did not show this source
		live, wait, err = r.live.Premise(ctx, slot.Read, c.CopyOf, c.Key.Namespace, graceEnd)
	}
	ns := x.target.Namespace
	if c.ByLabels {
		ns = live.Namespace
	}
	res = result{change: c, state: plan.StatePending, began: began}
	switch {
	case err != nil:
		return resultOf(c, err, began), false
	case wait > 0:
		res.outcome, res.after = outcome.PutOff, wait
	case ns == nil || plan.Terminating(ns) || !r.rules.StillUnwanted(c, x.view, live.Source, ns):
		// The watch will show why. The grace begins anew.
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

// actOnLive reads an object that the cache does not show, and makes the change that the object needs. none is the
// result if there is no object: a quota refused the create, or the object has just gone.
func (r *reconciler) actOnLive(ctx, term context.Context, slot *lanes.Slot, x *decision, none result) result {
	k, began := x.change.Key, time.Now()
	live, err := r.live.ConfigMap(ctx, slot.Read, k)
	switch {
	case err != nil:
		return resultOf(x.change, err, began)
	case live == nil:
		return none
	}
	t := r.cache.Target(k)
	t.Have = live
	c := r.rules.Decide(r.cache.View(k.Name), t)
	res := result{change: c, state: plan.StatePending, outcome: outcome.Conflict, began: began} // the watch will show it
	switch {
	case c.Op == plan.OpUpdate, c.Op == plan.OpRecreate:
		return r.write(ctx, term, slot, c, &x.record)
	case c.Op == plan.OpNone && (c.State == plan.StateForeign || !r.rules.Visible(live)): // no event tells when that ends
		res.state, res.outcome = c.State, outcome.Foreign
	}
	if res.state == plan.StateForeign {
		res.note, res.adoptable = r.rules.Foreign(live)
	}
	return res
}

// write makes the call of a change. A call that has begun is not cancelled by a stop, but by the end of the term.
func (r *reconciler) write(ctx, term context.Context, slot *lanes.Slot, c plan.Change, rec *record) result {
	if ctx.Err() != nil {
		return resultOf(c, ctx.Err(), time.Now())
	}
	res := result{change: c, began: time.Now()}
	callCtx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	defer context.AfterFunc(term, cancel)()
	err := slot.Write(callCtx, c.Key.Namespace, func(ctx context.Context) (err error) {
		res.made, err = r.writer.apply(ctx, c)
		return err
	})
	res.altered = errors.Is(err, errAltered)
	if err != nil && !res.altered {
		r.selfCheck.note(err)
		out := resultOf(c, err, res.began)
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

// resultOf returns the result of a change whose calls ended with an error.
func resultOf(c plan.Change, err error, began time.Time) result {
	if off := (lanes.PutOffError{}); errors.As(err, &off) {
		return result{change: c, state: plan.StatePending, outcome: outcome.PutOff, after: off.RetryAfter}
	}
	o := outcome.Of(c.Op, err)
	return result{change: c, state: o.State(), outcome: o, err: err, note: report.Clip(err.Error()), began: began}
}

// finish records the result of a change, and sets the timer for the next try.
func (r *reconciler) finish(ctx context.Context, x *decision, res *result) {
	now, k, rec := time.Now(), x.change.Key, &x.record
	n := r.status.lock(k.Name)
	defer n.unlock()
	during := n.calls[k.Namespace]
	delete(n.calls, k.Namespace)
	if during.claimed {
		rec.unclaimed = unclaimed{}
	}
	var next step
	var wait time.Duration
	switch {
	case res.sent:
		r.count(n, res, rec.appeared, now)
		afterFailure := rec.retry.failures > 0
		next, wait = rec.wrote(res, now)
		if !afterFailure && rec.fight(now) == 0 { // after a failure: our own re-creation may have deleted the copy
			r.tell(res)
		}
		if rec.own.left(r.cache.ConfigMap(k), r.cache.Version(), now) == 0 {
			rec.own = ownWrite{} // the watch was faster than the answer
		}
	case res.outcome == outcome.PutOff:
		next, wait = stepAwait, res.after
	case res.outcome == outcome.Terminating && r.closed(k.Namespace): // an event tells if the namespace returns
		*res = result{change: plan.Change{Key: k}}
		rec.rest(plan.StateNone, content{}, now)
	default:
		before := rec.retry.note
		next, wait = stepWait, rec.failed(res, triggerOf(x.target, x.change), now)
		n.dirty = n.dirty || rec.retry.note != before
	}
	if during.queued { // the write may be older than the source
		next = stepAct
	}
	n.store(x, next, res.change, now)
	if wait > 0 {
		r.copies.AddAfter(k, wait)
	}
	r.reportIfDue(n)
	r.log(ctx, *res, wait)
}

// count counts a change that the API server carried out. appeared is when the namespace appeared, if it had no copy
// yet.
func (r *reconciler) count(n *nameStatus, res *result, appeared, now time.Time) {
	if res.altered {
		return
	}
	n.wrote(res.change, now)
	if res.change.Op == plan.OpCreate && !appeared.IsZero() {
		r.metrics.fill.Observe(now.Sub(appeared).Seconds())
	}
}

// closed reports whether the cache, too, shows the namespace terminating or absent.
func (r *reconciler) closed(namespace string) bool {
	ns := r.cache.Namespace(namespace)
	return ns == nil || plan.Terminating(ns)
}

// tell puts an event on a copy that was restored.
func (r *reconciler) tell(res *result) {
	if res.cause == "" || res.altered {
		return
	}
	r.outbox.Put(outbox.Event{Regarding: res.change.Key, UID: res.made.UID, Type: corev1.EventTypeNormal,
		Reason: plan.ReasonRestored, Note: r.rules.Restored(res.change, res.cause)})
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

// clipError shortens the text of an error for the log: a webhook, for example, may quote a whole object.
func clipError(err error) error { return errors.New(report.Clip(err.Error())) }

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
		logger.V(2).Info("Copy out of sync, retrying", "copy", c.Key, "op", c.Op, "reason", res.outcome,
			"after", wait, "err", clipError(res.err))
	case c.State == plan.StatePending && c.Have != nil && c.Have.DeletionTimestamp != nil:
		logger.V(2).Info("Copy is terminating, waiting for its finalizers", "copy", c.Key,
			"finalizers", c.Have.Finalizers[:min(1, len(c.Have.Finalizers))])
	default:
		logger.V(4).Info("Nothing done", "copy", c.Key, "state", res.state, "reason", res.outcome, "after", wait)
	}
}
