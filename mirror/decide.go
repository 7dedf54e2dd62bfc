package mirror

import (
	"time"

	"github.com/mirror-controller/mirror-controller/mirror/internal/cache"
	"github.com/mirror-controller/mirror-controller/mirror/internal/queue"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// decider decides about targets, for the fan-out and for the reconcile.
type decider struct {
	rules  *plan.Rules
	cache  *cache.Cache
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
func (d *decider) decide(n *nameStatus, k key, view func() *plan.View, now time.Time) decision {
	version := d.cache.Version()
	t := d.cache.Target(k)
	v := view() // after the target
	x := decision{view: v, target: t, change: d.rules.Decide(v, t), record: n.record(k.Namespace, uidOf(t.Namespace))}
	n.judge(&x.record, x.change, now)
	x.step, x.wait = x.record.next(t, x.change, version, d.grace, now)
	return x
}

// enqueue queues the target by what is left to do there: at once, after a wait, or not at all.
func (x *decision) enqueue(copies *queue.Copies) {
	switch {
	case x.step == stepAct:
		copies.Add(x.target.Key)
	case x.wait > 0:
		copies.AddAfter(x.target.Key, x.wait)
	}
}

// judge records since when a copy is unclaimed, and why. A change of the reason is a new loss: its remedy is another
// one.
func (n *nameStatus) judge(r *record, c plan.Change, now time.Time) {
	u := &r.unclaimed
	switch {
	case c.Op != plan.OpDelete:
		*u = unclaimed{}
		return
	case u.uid != c.Have.UID:
		*u = unclaimed{uid: c.Have.UID, since: now}
	case u.why == c.Why:
		return
	}
	n.losses++
	n.dirty = true
	u.why, u.nth = c.Why, n.losses
}

// store records a decision. If a change is left to do, the target counts as queued. A fight ends when the target was
// left alone for long enough.
func (d *decider) store(n *nameStatus, x *decision, now time.Time) {
	r, c := &x.record, x.change
	switch x.step {
	case stepNone:
		r.rest(c.State, contentOf(c.Source), now)
	case stepDone:
		r.rest(stateOfWrite(c), contentOf(c.Source), now)
	}
	r.queued = x.step == stepAct
	r.state, r.countsFor = r.status(x.step, c, now)
	if r.state == plan.StateFight && (x.step == stepNone || x.step == stepDone) {
		x.wait = r.fight(now)
	}
	n.set(c.Key.Namespace, uidOf(x.target.Namespace), *r)
}

// stateOfWrite returns the state after a change was carried out.
func stateOfWrite(c plan.Change) plan.State {
	if c.Source == nil {
		return plan.StateNone
	}
	return plan.StateSynced
}
