package mirror

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"

	"github.com/mirror-controller/mirror-controller/mirror/internal/cache"
	"github.com/mirror-controller/mirror-controller/mirror/internal/queue"
	"github.com/mirror-controller/mirror-controller/mirror/internal/slow"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// queues are the work queues of a controller.
type queues struct {
	sources workqueue.TypedDelayingInterface[string] // names, for fan-outs
	copies  *queue.Copies                            // targets
	slow    *slow.Queue                              // namespaces whose calls take long
	reports workqueue.TypedDelayingInterface[string] // names of whose sources something may be reported
	events  workqueue.TypedInterface[string]         // namespaces of sources about which a message is due
}

// decider decides about targets. The handlers, the fan-outs and the reconcilers
// of a controller share one, and so do its reports.
type decider struct {
	rules   *plan.Rules
	cache   *cache.Cache
	records *records
	queues  *queues
	grace   time.Duration // the deletion grace
}

// decision is the answer to one question: does a target need a change now, later,
// or not until an event?
type decision struct {
	view   *plan.View
	target plan.Target
	change plan.Change
	record record // of the target, with its new standing
	act    bool
	wait   time.Duration // if not to act; 0: an event brings the next decision
}

// decide reads a target and its record together, decides, and records how the
// target stands. The name is locked. While a call for the target is on its way,
// the decision leaves nothing to do: the caller decides at its end.
func (d *decider) decide(n *nameRecords, k key) decision {
	version := d.cache.Version()
	target := d.cache.Target(k)
	v := d.cache.View(k.Name) // after the target
	r := n.record(k.Namespace, uidOf(target))
	x := decision{view: v, target: target, change: d.rules.Decide(v, target)}
	d.keepReason(&x, r.unclaimed.why)
	now := time.Now()
	f := &facts{
		have:    target.Have,
		change:  x.change,
		version: version,
		grace:   d.grace,
		now:     now,
	}
	r.observe(f)
	c := r.firstCondition(f)
	if c.rests {
		r.rest(f)
	}
	r.standing, x.act, x.wait = r.next(c, f)
	r.superseded = ""
	if len(v.Sources) > 1 {
		r.superseded = n.setOf(d.rules.Superseded(v, target, x.change))
	}
	n.set(k.Namespace, r)
	if r.unclaimed.uid != "" && r.unclaimed.line == 0 {
		n.announceSoon(now)
	}
	if r.busy {
		x.act = false
		x.wait = 0
	}
	x.record = r
	return x
}

// uidOf returns the UID of the namespace of a target; empty if it is gone.
func uidOf(t plan.Target) types.UID {
	if t.Namespace == nil {
		return ""
	}
	return t.Namespace.UID
}

// keepReason keeps the reason that began the grace, if that still holds beside
// others: a reason that comes before it in the table is no news. A record that has
// a reason is of a namespace that is there.
func (d *decider) keepReason(x *decision, why plan.Unclaimed) {
	c := &x.change
	if why.Rule != plan.NotExcluded &&
		d.rules.StillHolds(why, x.view.Find(c.CopyOf), x.target.Namespace) {
		c.Why = why
	}
}

// visit decides about a target. If the target is to be looked at again later,
// visit queues it for then. If something is due now, the caller queues it.
//
// A write that was cut may have been carried out all the same. If the target is
// in sync now, that shows that the namespace is quick.
func (d *decider) visit(n *nameRecords, k key) decision {
	x := d.decide(n, k)
	switch {
	case x.wait > 0:
		d.queues.copies.AddAfter(k, x.wait)
	case x.record.state == plan.StateSynced:
		for _, k := range d.queues.slow.Written(x.record.namespaceUID) {
			d.queues.copies.Add(k)
		}
	}
	return x
}
