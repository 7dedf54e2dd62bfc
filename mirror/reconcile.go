package mirror

import (
	"cmp"
	"context"
	"errors"
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

// secondChance is the pause before the next try of a write that was cut, where the cut is forgiven.
const secondChance = 250 * time.Millisecond

// reconciler brings copies in sync, each by one change at a time.
type reconciler struct {
	*base
	live     *liveread.Reader
	writer   *writer
	restored restored

	undeleted rate.Sometimes // limits the log about copies that cannot be deleted
}

// result is the result of a change.
type result struct {
	change    plan.Change
	outcome   outcome.Outcome // OK: the API server carried the change out
	err       error
	note      string // the error, or a description of the foreign object in the way, for people
	adoptable bool   // the owner of that object can hand it over
	began     time.Time
	claimedAt time.Time         // a live read that began then shows a claim
	after     time.Duration     // a live read is on its way: when to ask again
	made      *corev1.ConfigMap // the object as it is stored; nil after a delete
	deleted   bool              // of a re-creation that failed, the deletion was carried out
	repair    bool              // the change restored what another client had changed
	cause     string            // what that client had done to a copy that was in sync before
}

// turn reconciles the target of a slow namespace whose turn it is.
func (r *reconciler) turn(ctx, writes context.Context, uid types.UID, pace slow.Pace) {
	if k, ok := r.slow.Next(uid); ok {
		r.reconcile(ctx, writes, k, pace)
	}
	for _, k := range r.slow.EndTurn(uid) {
		r.copies.Add(k)
	}
}

// reconcile brings the copy of one name in one namespace in sync: it decides, makes at most one change, records the
// result, and decides again.
func (r *reconciler) reconcile(ctx, writes context.Context, k key, pace slow.Pace) {
	done := r.metrics.reconciling()
	x := r.begin(k, pace)
	if !x.act {
		done(metricOf(result{}, x.wait))
		return
	}
	began := time.Now()
	res := r.act(ctx, writes, &x)
	res.began = began
	done(metricOf(res, r.finish(ctx, &x, &res)))
}

// begin decides about a target, and makes it busy if something is to be done now, unless the namespace is slow.
func (r *reconciler) begin(k key, pace slow.Pace) decision {
	n := r.targets.lock(k.Name)
	defer n.unlock()
	x := r.decide(n, k, func() *plan.View { return r.cache.View(k.Name) }, time.Now())
	x.pace = pace
	switch {
	case !x.act:
		if x.wait > 0 {
			r.copies.AddAfter(k, x.wait)
		}
		if x.known.state == plan.StateSynced {
			for _, k := range r.slow.Written(x.known.uid) {
				r.copies.Add(k)
			}
		}
	case pace == slow.Ordinary && r.slow.Put(x.known.uid, k, false):
		x.act = false
	default:
		busy := x.known
		busy.busy = true
		n.set(k.Namespace, busy)
	}
	return x
}

// finish records the result of a change, and decides again. It returns the wait of the target, unless a call was cut.
func (r *reconciler) finish(ctx context.Context, x *decision, res *result) time.Duration {
	now, k := time.Now(), x.change.Key
	n := r.targets.lock(k.Name)
	defer n.unlock()
	t := *n.known[k.Namespace] // a busy target is there
	t.busy = false
	if t.uid == x.known.uid {
		r.record(n, &t, x, res, now)
	}
	n.set(k.Namespace, t)
	y := r.decide(n, k, func() *plan.View { return r.cache.View(k.Name) }, now)
	wait := max(y.wait, res.after)
	switch {
	case errors.Is(res.err, slow.ErrCut) && t.uid == x.known.uid:
		if !r.slow.Put(t.uid, k, true) {
			r.copies.AddAfter(k, secondChance)
		}
	case y.act && res.after == 0:
		r.copies.Add(k)
	case res.outcome == outcome.OK && wait > 0 && y.known.isDone() && res.change.Op != plan.OpDelete:
		wait = 0 // an event shows the write, or a relist does, whose fan-out waits for that: a source is there
	case wait > 0:
		r.copies.AddAfter(k, wait)
	}
	r.log(ctx, *res, wait)
	return wait
}

// record records the result of a change in what is known of its target.
func (r *reconciler) record(n *nameTargets, t *target, x *decision, res *result, now time.Time) {
	if res.deleted { // the creation was not carried out
		t.write, t.content = ownWrite{deleted: res.change.Have.UID, at: now}, content{}
	}
	ns := r.cache.Namespace(res.change.Key.Namespace)
	isClosed := ns == nil || plan.Terminating(ns) || ns.UID != t.uid // its return is an event
	switch {
	case res.outcome == outcome.OK:
		r.carriedOut(n, t, res, now)
		t.wrote(res, now)
		if t.write.unseen(r.cache.ConfigMap(res.change.Key), r.cache.Version(), now) == 0 {
			t.write = ownWrite{at: now} // the watch was faster than the answer
		}
	case res.outcome == outcome.Delayed:
	case res.outcome == outcome.Terminating && isClosed:
		*t = target{uid: t.uid}
	default:
		if res.outcome == outcome.Claimed && t.unclaimed.uid != "" {
			t.unclaimed.since = res.claimedAt
		}
		t.failed(res, x.target, now)
	}
}

// carriedOut counts a change that the API server carried out. A restored copy gets an event, but not after a failure:
// our own re-creation may have deleted the copy.
func (r *reconciler) carriedOut(n *nameTargets, t *target, res *result, now time.Time) {
	c := res.change
	if c.Source == nil {
		return
	}
	n.ofSource(c.Source.Key).writeAt = now
	if c.Op == plan.OpCreate && !t.appeared.IsZero() {
		r.metrics.fill.Observe(now.Sub(t.appeared).Seconds())
	}
	if res.cause != "" && t.retry.failures == 0 && t.repairs < freeRepairs {
		r.restored.put(Event{Regarding: c.Key, UID: res.made.UID, Type: corev1.EventTypeNormal,
			Reason: plan.ReasonRestored, Note: plan.Clip(r.rules.Restored(c, res.cause), report.MaxNote),
			Annotations: map[string]string{plan.InstanceAnnotation: r.rules.Instance()}})
	}
}

// act carries out the change. A deletion needs live reads that confirm it. If a foreign object was in the way, act
// reads that object first. If a create finds an object that the cache does not show, or is rejected before it can
// find one, act reads the object afterwards, and then makes the change that the object needs.
func (r *reconciler) act(ctx, writes context.Context, x *decision) result {
	c := x.change
	switch {
	case c.Op == plan.OpDelete:
		if res, confirmed := r.confirm(ctx, x); !confirmed {
			return res
		}
	case c.Op == plan.OpCreate && x.known.retry.outcome == outcome.Foreign:
		res, there := r.actOnLive(ctx, writes, x)
		if there {
			return res
		}
		// The read may have taken long.
		t := r.cache.Target(c.Key)
		if c = r.rules.Decide(r.cache.View(c.Key.Name), t); c.Op != plan.OpCreate {
			return result{change: c, outcome: outcome.Conflict}
		}
	}
	res := r.write(ctx, writes, x, c)
	if c.Op != plan.OpCreate || errors.Is(res.err, outcome.ErrAltered) ||
		!apierrors.IsAlreadyExists(res.err) && res.outcome != outcome.Rejected {
		return res
	}
	if onLive, there := r.actOnLive(ctx, writes, x); there {
		return onLive
	}
	return res
}

// confirm reads the source live, and the namespace if labels decide, and reports whether the copy may be deleted. A
// read that began before the end of the grace does not count. If the copy may not be deleted, res is the result.
func (r *reconciler) confirm(ctx context.Context, x *decision) (res result, confirmed bool) {
	c, ns, end := x.change, x.target.Namespace, x.known.unclaimed.since.Add(r.grace)
	namespace := ""
	if r.rules.DependsOnLabels(x.view) {
		namespace = ns.Name
	}
	live, wait, err := r.live.Premise(ctx, r.reads(x), c.CopyOf, namespace, end, x.pace != slow.Ordinary)
	if namespace != "" {
		ns = live.Namespace
	}
	res = result{change: c, outcome: outcome.Conflict}
	switch {
	case err != nil:
		return resultOf(c, err), false
	case wait > 0:
		res.outcome, res.after = outcome.Delayed, wait
	case ns == nil || plan.Terminating(ns) || !r.rules.StillUnwanted(c, x.view, live.Source, ns):
		// The watch will show why. The grace begins anew.
		res.outcome, res.claimedAt = outcome.Claimed, live.Began
	case r.cache.View(c.Key.Name) != x.view, !r.isUnclaimed(x): // the answer may be newer or older than the view
	default:
		return res, true
	}
	return res, false
}

// reads returns how the decision makes calls that read.
func (r *reconciler) reads(x *decision) liveread.Call {
	return func(ctx context.Context, f func(context.Context) error) error {
		return r.slow.Read(ctx, x.known.uid, x.pace, f)
	}
}

// isUnclaimed reports whether no source has claimed the copy since the decision.
func (r *reconciler) isUnclaimed(x *decision) bool {
	n := r.targets.lock(x.change.Key.Name)
	defer n.unlock()
	t, before := n.known[x.change.Key.Namespace], x.known.unclaimed
	return t != nil && t.unclaimed.uid == before.uid && t.unclaimed.since.Equal(before.since)
}

// actOnLive reads an object that the cache does not show, and makes the change that the object needs. there is false if
// no object is there: a quota refused the create, or the object has just gone.
func (r *reconciler) actOnLive(ctx, writes context.Context, x *decision) (res result, there bool) {
	k := x.change.Key
	have, err := r.live.ConfigMap(ctx, r.reads(x), k)
	switch {
	case err != nil:
		return resultOf(x.change, err), true
	case have == nil:
		return result{}, false
	}
	t := r.cache.Target(k)
	t.Have = have
	v := r.cache.View(k.Name)
	c := r.rules.Decide(v, t)
	res = result{change: c, outcome: outcome.Conflict} // the watch will show it
	switch {
	case c.Op == plan.OpUpdate, c.Op == plan.OpRecreate:
		return r.write(ctx, writes, x, c), true
	case c.State == plan.StateForeign && x.known.made(have):
		res = resultOf(x.change, outcome.ErrAltered)
		res.note, res.made = cmp.Or(x.known.retry.shown.note, res.note), have
	case c.State == plan.StateForeign:
		res.outcome, res.note, res.adoptable = outcome.Foreign, c.Note, c.Adoptable
	case c.Op == plan.OpNone && !r.rules.Visible(have): // its source keeps it, and there is no event at the end of that
		res = result{change: x.change, outcome: outcome.Foreign, note: r.rules.Reason(v, c)}
	}
	return res, true
}

// write makes the call of a change, unless the process stops.
func (r *reconciler) write(ctx, writes context.Context, x *decision, c plan.Change) result {
	if ctx.Err() != nil {
		return resultOf(c, ctx.Err())
	}
	var made *corev1.ConfigMap
	var applied error
	err := r.slow.Write(writes, x.known.uid, x.pace, func(ctx context.Context) error {
		made, applied = r.writer.apply(ctx, c)
		return applied
	})
	if err != nil {
		res := resultOf(c, err)
		res.deleted = errors.As(applied, &deletedError{})
		if errors.Is(err, outcome.ErrAltered) {
			res.made = made
		}
		return res
	}
	wasSynced := c.Source != nil && x.known.content == contentOf(c.Source)
	cause := r.rules.RepairCause(c, wasSynced)
	if cause != "" {
		r.metrics.repairs.WithLabelValues(cause).Inc()
	}
	res := result{change: c, made: made, repair: wasSynced || cause != ""}
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
	return result{change: c, outcome: outcome.Of(c.Op, err), err: err, note: plan.Clip(err.Error(), report.MaxNote)}
}

func metricOf(res result, wait time.Duration) string {
	switch {
	case res.err != nil && res.outcome.Failed():
		return "error"
	case res.outcome != outcome.OK || wait > 0:
		return "requeue_after"
	}
	return "success"
}

func (r *reconciler) log(ctx context.Context, res result, wait time.Duration) {
	logger, c := klog.FromContext(ctx), res.change
	if c.Op == plan.OpDelete && res.outcome == outcome.Rejected {
		// The source may be gone, and with it the place for an event.
		r.undeleted.Do(func() {
			logger.Error(errors.New(res.note), "Cannot delete a copy, retrying", "copy", c.Key, "source", c.CopyOf)
		})
	}
	switch {
	case res.outcome == outcome.OK && c.Op == plan.OpDelete:
		logger.V(2).Info("Copy deleted", "copy", c.Key, "source", c.CopyOf)
	case res.outcome == outcome.OK:
		logger.V(2).Info("Copy written", "copy", c.Key, "op", c.Op, "source", c.Source.Key)
	case res.err != nil:
		logger.V(2).Info("Copy out of sync, retrying", "copy", c.Key, "op", c.Op, "outcome", res.outcome,
			"after", wait, "err", plan.Clip(res.err.Error(), report.MaxNote))
	default:
		logger.V(4).Info("Nothing done", "copy", c.Key, "state", c.State, "outcome", res.outcome, "after", wait)
	}
}
