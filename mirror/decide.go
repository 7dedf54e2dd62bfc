package mirror

import (
	"time"

	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// decider decides about targets, for the fan-out and for the reconcile.
type decider struct {
	rules  *plan.Rules
	caches *caches
	status *status
	grace  time.Duration // the deletion grace
}

// decision is what is left to do at one target.
type decision struct {
	view   *plan.View
	target plan.Target
	change plan.Change
	record record // of the target, to be stored under the lock of the name
	step   step
	wait   time.Duration // before the next decision; 0: an event comes
}

// decide reads a target and its record together, under the lock of the name.
func (d *decider) decide(n *nameStatus, k key, now time.Time) decision {
	version := d.caches.version()
	t := d.caches.target(k)
	v := d.caches.view(k.Name) // after the target
	x := decision{view: v, target: t, change: d.rules.Decide(v, t), record: n.record(k.Namespace, uidOf(t.Namespace))}
	x.record.settle(n, t, now)
	x.step, x.wait = x.record.next(t, x.change, version, d.grace, now)
	return x
}

// settle takes note of a copy that is gone, if a deletion of it was sent whose answer was lost.
func (r *record) settle(n *nameStatus, t plan.Target, now time.Time) {
	switch lost := r.lost; {
	case lost == nil:
	case t.Have == nil || t.Have.UID != lost.uid || t.Have.DeletionTimestamp != nil:
		n.source(lost.source).lose(t.Key.Namespace, lost.why, now)
		r.lost = nil
	case now.Sub(lost.at) > maxOwn: // it was not carried out
		r.lost = nil
	}
}

// store records a decision. If a change is left to do, the target counts as queued.
func (d *decider) store(n *nameStatus, x *decision, now time.Time) {
	r, c := &x.record, x.change
	r.queued = false
	switch x.step {
	case stepNone:
		r.conclude(c.State, c.CountsFor(), contentOf(c.Source), now)
		d.watchFight(x, now)
	case stepDone:
		r.conclude(stateOfWrite(c), c.CountsFor(), contentOf(c.Source), now)
		d.watchFight(x, now)
	case stepAwait:
		r.await(c)
	case stepExpire:
		r.state, r.countsFor, r.note = plan.StateExpiring, c.CountsFor(), ""
	case stepWait:
		c = r.shown(c)
		r.countsFor = c.CountsFor()
	case stepHold:
		r.state, r.countsFor = plan.StateFight, c.CountsFor()
	case stepAct:
		c = r.shown(c)
		r.await(c)
		r.queued, r.would = true, plan.OpNone
	}
	r.losers = losers(d.rules, x.view, x.target, c)
	n.set(c.Key.Namespace, uidOf(x.target.Namespace), *r)
}

// watchFight has a copy that is in sync count as fought over, until it was left alone for long enough.
func (d *decider) watchFight(x *decision, now time.Time) {
	if calmIn := x.record.fight(now); calmIn > 0 && x.record.state == plan.StateSynced {
		x.record.state, x.wait = plan.StateFight, calmIn
	}
}

// stateOfWrite returns the state after a change was carried out.
func stateOfWrite(c plan.Change) plan.State {
	if c.Source == nil {
		return plan.StateNone
	}
	return plan.StateSynced
}
