package mirror

import (
	"time"

	"github.com/mirror-controller/mirror-controller/mirror/internal/cache"
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
	record record // of the target
	step   step
	wait   time.Duration // before the step; 0: it waits for nothing, or for an event
}

// decide reads a target and its record together, decides, and records the decision. The status is locked.
func (d *decider) decide(n *nameStatus, k key, view func() *plan.View, now time.Time) decision {
	version := d.cache.Version()
	t := d.cache.Target(k)
	v := view() // after the target
	x := decision{view: v, target: t, change: d.rules.Decide(v, t), record: n.record(k.Namespace, uidOf(t.Namespace))}
	n.judge(&x.record, x.change, now)
	x.step, x.wait = x.record.next(t, x.change, version, d.grace, now)
	n.decided(&x, now)
	return x
}

// decided records a decision. A target without anything to do is at rest. A fight ends when the target was left alone
// for long enough.
func (n *nameStatus) decided(x *decision, now time.Time) {
	r, c := &x.record, x.change
	switch x.step {
	case stepNone:
		r.rest(c.State, contentOf(c.Source), now)
	case stepDone:
		r.rest(stateOfWrite(c), contentOf(c.Source), now)
	}
	n.store(x, x.step, c, now)
	if r.state == plan.StateFight && (x.step == stepNone || x.step == stepDone) {
		x.wait = r.fight(now)
	}
}

// store stores the record of a target where c is left to do and s is next. The target counts as queued if that is a
// change.
func (n *nameStatus) store(x *decision, s step, c plan.Change, now time.Time) {
	r := &x.record
	r.queued = s == stepAct
	r.state, r.countsFor = r.status(s, c, now)
	n.set(x.target.Key.Namespace, uidOf(x.target.Namespace), *r)
}

// judge records since when a copy is unclaimed, and why. A change of the reason is a new loss: another remedy ends it.
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
