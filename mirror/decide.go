package mirror

import (
	"cmp"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/util/workqueue"

	"github.com/mirror-controller/mirror-controller/mirror/internal/cache"
	"github.com/mirror-controller/mirror-controller/mirror/internal/queue"
	"github.com/mirror-controller/mirror-controller/mirror/internal/slow"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// base is what handlers, fan-out, reconciler and reporter share.
type base struct {
	rules   *plan.Rules
	cache   *cache.Cache
	targets *targets
	metrics *controllerMetrics
	grace   time.Duration // the deletion grace

	// The four queues.
	sources workqueue.TypedDelayingInterface[string] // names, for fan-outs
	copies  *queue.Copies                            // targets
	slow    *slow.Queue                              // namespaces whose calls take long
	reports workqueue.TypedDelayingInterface[string] // names whose messages are due
}

// decision is what is left to do at one target: act now, look again after wait, or nothing.
type decision struct {
	view   *plan.View
	target plan.Target
	change plan.Change
	known  target
	act    bool
	wait   time.Duration // 0: an event brings the next decision
	pace   slow.Pace     // of the calls
}

// decide reads a target and what is known of it together, decides, and records how the target stands. The name is
// locked. While a call for the target is on its way, whoever makes it acts.
func (b *base) decide(n *nameTargets, k key, view func() *plan.View, now time.Time) decision {
	version := b.cache.Version()
	t := b.cache.Target(k)
	v := view() // after the target
	uid := cmp.Or(t.Namespace, &corev1.Namespace{}).UID
	x := decision{view: v, target: t, change: b.rules.Decide(v, t), known: n.target(k.Namespace, uid)}
	if why := x.known.unclaimed.why; x.change.Op == plan.OpDelete && why.Rule != plan.NotExcluded &&
		b.rules.StillHolds(why, v.Find(x.change.CopyOf), t.Namespace) {
		x.change.Why = why // of several reasons the first one began the grace
	}
	announce := x.known.judge(x.change, now)
	x.act, x.wait = x.known.next(t, x.change, version, b.grace, now)
	n.set(k.Namespace, x.known)
	if announce {
		n.reportIn(runGap) // without the pause after an expensive report: a deletion would not wait for it
	}
	if x.known.busy {
		x.act, x.wait = false, 0
	}
	return x
}

// fanOut compares all targets of a name with its sources, and queues those out of sync, at most once in a runGap.
func (b *base) fanOut(name string) {
	now := time.Now()
	known, wait := b.beginFanOut(name, now)
	if wait > 0 {
		b.sources.AddAfter(name, wait)
		return
	}
	read := b.cache.ViewReader(name)
	v := read()
	for _, k := range b.cache.Targets(name, known) {
		n := b.targets.lock(name)
		// One time for many copies: their graces end together, and one live read, which begins then, serves them all.
		if time.Since(now) > runGap {
			now = time.Now()
		}
		if x := b.decide(n, k, read, now); x.act {
			b.copies.Add(k)
		} else if x.wait > 0 {
			b.copies.AddAfter(k, x.wait)
		}
		n.unlock()
	}
	n := b.targets.lock(name)
	defer n.unlock()
	n.view, n.comparing = v, false
	for _, s := range v.All() {
		n.ofSource(s.Key) // until a report forgets it
	}
	n.reportSoon()
}

// beginFanOut begins a fan-out, and returns the namespaces of which something is known, or how long it has to wait.
func (b *base) beginFanOut(name string, now time.Time) (known []string, wait time.Duration) {
	n := b.targets.lock(name)
	defer n.unlock()
	if wait := n.fanOutAt.Add(runGap).Sub(now); wait > 0 {
		return nil, wait
	}
	n.fanOutAt, n.comparing = now, true
	n.shared = map[plain]*target{} // of former contents
	return slices.Collect(maps.Keys(n.known)), 0
}
