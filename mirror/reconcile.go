package mirror

import (
	"context"
	"errors"
	"time"

	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/klog/v2"

	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// reconciler brings one copy in sync at a time.
type reconciler struct {
	rules     *plan.Rules
	caches    *caches
	status    *status
	confirmer *confirmer
	lanes     *lanes
	writer    *writer
	reads     slots // for live reads
	large     slots // for writes over large objects
	metrics   *controllerMetrics
	copies    copyQueue
	sources   *sourceQueue

	undeleted rate.Sometimes // limits the log about copies that cannot be deleted
}

// result is what a reconcile made of a target.
type result struct {
	change plan.Change
	state  plan.State
	waits  bool              // nothing was done: what is known of the target stays
	sent   bool              // the API server carried out the change
	made   *corev1.ConfigMap // the object as it was written; nil after a delete
	repair bool              // the change restored what another client had changed
	reason reason            // why it failed
	err    error
	tried  content       // what the calls were to write
	began  time.Time     // when the calls began
	after  time.Duration // when to reconcile again although nothing failed
}

// work reconciles copies until ctx ends, at a stop. Calls that have begun end with term, the term as leader, at the latest.
func (r *reconciler) work(ctx, term context.Context) {
	for {
		p := r.lanes.enter(ctx)
		if p == nil {
			return
		}
		k, event, shutdown := r.copies.next()
		if !shutdown && ctx.Err() == nil {
			r.reconcile(ctx, term, p, k, event)
		}
		p.leave()
		if shutdown {
			return
		}
		if r.copies.finish(k); r.copies.reportable(k.Name) && r.status.isDirty(k.Name) {
			r.sources.addReport(k.Name)
		}
	}
}

// reconcile brings the copy of one name in one namespace in sync: it reads the caches, decides, makes at most one change,
// and records the result. event says that an event named the key.
func (r *reconciler) reconcile(ctx, term context.Context, p *place, k key, event bool) {
	done := r.metrics.reconciling()
	known := r.status.stored(k) // before the caches: they show at least what the record rests on
	version := r.caches.version()
	t := r.caches.target(k)
	v := r.caches.view(k.Name) // after the target
	c := r.rules.Decide(v, t)
	rec := known.in(uidOf(t.Namespace))
	if rec.waits = false; !rec.echo.awaited(t.Have, version, time.Now()) {
		rec.echo = echo{}
	}
	res := result{change: c}
	switch next, wait := rec.next(t, c, version, event, time.Now()); next {
	case stepNone:
		res.state = c.State
	case stepDone:
		res.state = stateOfWrite(c)
	case stepEcho:
		res.waits, res.state, res.after, rec.waits = true, plan.StatePending, wait, true
	case stepWait:
		res.waits, res.state, res.after, res.change = true, rec.state, wait, rec.whileWaiting(c)
	case stepHold:
		res.waits, res.state, res.after = true, plan.StateFight, wait
	case stepAct:
		rec.would = plan.OpNone
		res = r.act(ctx, term, p, v, t, c, &rec)
		res.tried = contentOf(c.Source) // also if a live read led to another change
	}
	if ctx.Err() != nil && !res.sent {
		done("success")
		return // the next leader begins anew
	}
	before := r.finish(ctx, v, t, &rec, res)
	if r.caches.view(k.Name) != v { // a fan-out may have compared the target before this change
		r.sources.Add(k.Name)
	}
	if before.echo != known.echo { // its event was suppressed, and t may be older
		r.copies.addEvent(k)
	}
	done(metricOf(res))
}

// stateOfWrite returns the state after a change was carried out.
func stateOfWrite(c plan.Change) plan.State {
	if c.Source == nil {
		return plan.StateNone
	}
	return plan.StateSynced
}

// act carries out a change, after the premise of a deletion is confirmed. If the cache shows only a part of the object, or if a
// create finds an object that the cache does not show, or is rejected before it can find one, act reads the object and does
// what that calls for.
func (r *reconciler) act(ctx, term context.Context, p *place, v *plan.View, t plan.Target, c plan.Change, rec *record) result {
	switch holds, known := r.confirmer.confirm(ctx, v, t, c); {
	case !known: // the key is queued again when it is
		return result{change: c, state: plan.StatePending, waits: true}
	case !holds, // the watch will show why
		c.Op == plan.OpDelete && r.caches.view(c.Key.Name) != v: // what was read live may be newer than the view
		return result{change: c, state: plan.StatePending, reason: conflict}
	}
	later := result{change: c, state: plan.StatePending, reason: conflict, began: time.Now()}
	if c.Have != nil && c.Op != plan.OpDelete && plan.Truncated(c.Have) {
		return r.actOnLive(ctx, term, p, c, rec, later)
	}
	res := r.write(ctx, term, p, c, rec)
	if c.Op != plan.OpCreate || !apierrors.IsAlreadyExists(res.err) && !res.reason.isLasting() {
		return res
	}
	return r.actOnLive(ctx, term, p, c, rec, res)
}

// actOnLive reads an object that the cache does not show, or only a part of it, and does what it calls for. none is the result
// if there is no object: a quota refused the create, or the object has just gone.
func (r *reconciler) actOnLive(ctx, term context.Context, p *place, c plan.Change, rec *record, none result) result {
	live, err := r.read(ctx, p, c.Key)
	switch {
	case err != nil:
		return failed(c, err, none.began)
	case live == nil:
		return none
	}
	t := r.caches.target(c.Key)
	t.Have = live
	c = r.rules.Decide(r.caches.view(c.Key.Name), t)
	later := result{change: c, state: plan.StatePending, reason: conflict}
	switch {
	case c.Op == plan.OpUpdate, c.Op == plan.OpRecreate:
		if live.Size() > largeObject {
			if !r.large.tryAcquire() { // a write may take as long as a webhook does
				return later
			}
			defer r.large.release()
		}
		return r.write(ctx, term, p, c, rec)
	case c.Op == plan.OpNone && c.State == plan.StateForeign, c.Op == plan.OpNone && !r.rules.Visible(live):
		return result{change: c, state: c.State, reason: foreign} // no event tells when that ends
	}
	return later // the watch will show it
}

// largeObject is the size in bytes from which on objects that are written at once are bounded in number, as those are that are
// read: what their owners put into them, up to 1.5 MiB, is in memory several times then.
const largeObject = 64 << 10

func (r *reconciler) read(ctx context.Context, p *place, k key) (live *corev1.ConfigMap, err error) {
	if !r.reads.acquire(ctx) {
		return nil, ctx.Err()
	}
	defer r.reads.release()
	err = p.call(ctx, k.Namespace, func(ctx context.Context) (err error) {
		live, err = r.writer.read(ctx, k)
		return err
	})
	return live, err
}

// write makes the call of a change. A call that has begun is not cancelled by a stop, but by the end of the term.
func (r *reconciler) write(ctx, term context.Context, p *place, c plan.Change, rec *record) result {
	if ctx.Err() != nil {
		return failed(c, ctx.Err(), time.Now())
	}
	res := result{change: c, began: time.Now()}
	callCtx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	defer context.AfterFunc(term, cancel)()
	err := p.call(callCtx, c.Key.Namespace, func(ctx context.Context) (err error) {
		res.made, err = r.writer.apply(ctx, c)
		return err
	})
	altered := errors.Is(err, errAltered)
	if err != nil && !altered {
		return failed(c, err, res.began)
	}
	wasSynced := c.Source != nil && rec.content == contentOf(c.Source)
	cause := r.rules.RepairCause(c, wasSynced)
	if cause != "" {
		r.metrics.repairs.WithLabelValues(cause).Inc()
	}
	res.sent, res.repair, res.state = true, wasSynced || altered || cause != "", stateOfWrite(c)
	if altered {
		res.state, res.after = plan.StatePending, alteredRetry
	}
	return res
}

// alteredRetry is the time before a write is repeated that was altered on its way.
const alteredRetry = 100 * time.Millisecond

// failed is the result of a change that the API server refused or did not answer.
func failed(c plan.Change, err error, began time.Time) result {
	why := reasonOf(c.Op, err)
	return result{change: c, state: reasons[why].state, reason: why, err: err, began: began}
}

// finish records the result of a reconcile and sets the timer for the next one. It returns the record that rec replaces.
func (r *reconciler) finish(ctx context.Context, v *plan.View, t plan.Target, rec *record, res result) (before record) {
	now, c := time.Now(), res.change
	switch {
	case res.reason == terminating && r.closed(t):
		res = result{change: c} // an event tells if the namespace returns
	case res.reason == transient && lasts(rec, res, now):
		res.reason, res.state = rejected, plan.StateFailed
	case res.sent:
		r.recordWrite(rec, res, now)
	}
	wait := res.after
	switch {
	case res.waits:
		rec.await(res.state, countsFor(c))
	case res.reason == withheld:
		wait = rec.withhold(res, now)
	case res.reason != noRetry:
		wait = rec.fail(res, now)
	default:
		rec.conclude(res.state, countsFor(c), contentOf(c.Source), now)
		switch calmIn := rec.fight(now); {
		case calmIn > 0 && res.after > 0: // altered
			rec.state, wait = plan.StateFight, hold(rec.repairs)
		case calmIn > 0 && res.state == plan.StateSynced: // the other client may come again
			rec.state, wait = plan.StateFight, calmIn
		}
	}
	rec.losers = losers(r.rules, v, t, c)
	if wait > 0 {
		r.copies.AddAfter(c.Key, wait)
	}
	r.log(ctx, res, wait)
	return r.status.set(c.Key, uidOf(t.Namespace), *rec)
}

// closed reports whether the cache, too, shows the namespace terminating or absent.
func (r *reconciler) closed(t plan.Target) bool {
	ns := r.caches.namespace(t.Key.Namespace)
	return ns == nil || plan.Terminating(ns)
}

// transientLimit is how long the API server may answer with errors of its own before they count as a rejection: a webhook that it
// cannot call, for example, is reported and retried slowly then.
const transientLimit = 10 * time.Second

// lasts reports whether a transient failure counts as a rejection.
func lasts(rec *record, res result, now time.Time) bool {
	since := res.began
	if rec.reason == transient {
		since = rec.since
	}
	return answered(res.err) && (rec.reason.isLasting() || now.Sub(since) >= transientLimit)
}

// fail records a failure, and returns the time until the next try.
func (rec *record) fail(res result, now time.Time) time.Duration {
	if rec.reason != res.reason {
		rec.reason, rec.failures, rec.since = res.reason, 0, res.began
	}
	rec.failures++
	wait := reasons[res.reason].pace.backoff(rec.failures)
	rec.notBefore, rec.tried = now.Add(wait), res.tried
	rec.await(res.state, countsFor(res.change))
	if !res.state.IsPending() {
		rec.note = ""
	}
	switch {
	case res.state == plan.StateForeign:
		rec.content = content{}
	case res.state == plan.StateFailed && res.err != nil:
		rec.note = clip(res.err.Error())
	}
	return wait
}

// recordWrite records what the API server carried out.
func (r *reconciler) recordWrite(rec *record, res result, now time.Time) {
	c := res.change
	r.status.carriedOut(c.Op)
	rec.calmDown(now)
	if res.repair {
		rec.repairs++
		rec.repairedAt = now
	} else if rec.content != contentOf(c.Source) {
		rec.repairs = 0
	}
	rec.content = contentOf(c.Source)
	rec.echo = echo{at: now}
	if c.Op == plan.OpDelete || c.Op == plan.OpRecreate {
		rec.echo.deleted = c.Have.UID
	}
	if res.made != nil && res.state == plan.StateSynced {
		rec.echo.version = res.made.ResourceVersion
		r.status.wrote(c.Source.Key)
		if c.Op == plan.OpCreate && !rec.appeared.IsZero() {
			r.metrics.fill.Observe(now.Sub(rec.appeared).Seconds())
		}
	}
	if have := r.caches.configMap(c.Key); !rec.echo.awaited(have, r.caches.version(), now) {
		rec.echo = echo{} // the watch was faster than the answer
	}
}

func metricOf(res result) string {
	switch {
	case res.err != nil && reasons[res.reason].failed:
		return "error"
	case res.reason != noRetry || res.after > 0 || res.waits:
		return "requeue_after"
	}
	return "success"
}

func (r *reconciler) log(ctx context.Context, res result, wait time.Duration) {
	logger, c := klog.FromContext(ctx), res.change
	if c.Op == plan.OpDelete && res.reason.isLasting() {
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
	case res.reason == withheld:
		logger.V(2).Info("Would change a copy", "copy", c.Key, "op", c.Op, "source", countsFor(c))
	case res.err != nil:
		logger.V(2).Info("Copy out of sync, retrying", "copy", c.Key, "op", c.Op, "reason", res.reason, "after", wait, "err", clipError(res.err))
	case c.State == plan.StatePending && c.Have != nil && c.Have.DeletionTimestamp != nil:
		logger.V(2).Info("Copy is terminating, waiting for its finalizers", "copy", c.Key, "finalizers", c.Have.Finalizers[:min(1, len(c.Have.Finalizers))])
	default:
		logger.V(4).Info("Nothing to do", "copy", c.Key, "state", res.state)
	}
}

// withhold records a change that a dry run did not make, and returns the time until the target is compared again without an
// event.
func (rec *record) withhold(res result, now time.Time) time.Duration {
	wait := seldom.backoff(1)
	rec.conclude(plan.StatePending, countsFor(res.change), content{}, now)
	rec.reason, rec.would, rec.notBefore, rec.tried = withheld, res.change.Op, now.Add(wait), res.tried
	return wait
}
