package mirror

import (
	"time"

	"github.com/mirror-controller/mirror-controller/mirror/internal/cache"
	"github.com/mirror-controller/mirror-controller/mirror/internal/slow"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// decider decides about targets, for the fan-out and for the reconcile. What it reads, others read, too.
type decider struct {
	rules   *plan.Rules
	cache   *cache.Cache
	targets *targets
	grace   time.Duration // the deletion grace
}

// decision is what is left to do at one target: act now, look again after wait, or nothing.
type decision struct {
	view   *plan.View
	target plan.Target
	change plan.Change
	known  target
	act    bool
	wait   time.Duration // 0: an event will tell
	pace   slow.Pace     // of the calls
}

// decide reads a target and what is known of it together, decides, and records how the target stands. The name is
// locked. While a call for the target is on its way, whoever makes it acts.
func (d *decider) decide(n *nameTargets, k key, view func() *plan.View, now time.Time) decision {
	version := d.cache.Version()
	t := d.cache.Target(k)
	v := view() // after the target
	x := decision{view: v, target: t, change: d.rules.Decide(v, t), known: n.target(k.Namespace, uidOf(t.Namespace))}
	if why := x.known.unclaimed.why; x.change.Op == plan.OpDelete && why.Rule != plan.NotExcluded &&
		d.rules.StillHolds(why, v.Find(x.change.CopyOf), t.Namespace) {
		x.change.Why = why // of several reasons the first one began the grace
	}
	announce := x.known.judge(x.change, now)
	x.act, x.wait = x.known.decide(t, x.change, version, d.grace, now)
	n.set(k.Namespace, x.known)
	if announce {
		n.announceIn(runGap)
	}
	if x.known.busy {
		x.act, x.wait = false, 0
	}
	return x
}
