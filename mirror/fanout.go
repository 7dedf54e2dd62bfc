package mirror

import (
	"context"
	"time"

	"k8s.io/client-go/util/workqueue"

	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// roundGap is the shortest time between two fan-outs of a name. A source that changes all the time is compared with all its
// targets that often; each target still gets the newest content when its turn comes.
const roundGap = 100 * time.Millisecond

// fanout compares all targets of a name with its sources, and queues those that are out of sync. When it finds nothing left
// to do, or targets keep the queue busy for long, the sources are reported.
type fanout struct {
	rules     *plan.Rules
	caches    *caches
	status    *status
	confirmer *confirmer
	reporter  *reporter
	sources   workqueue.TypedDelayingInterface[string]
	copies    copyQueue
}

// work runs fan-outs until ctx ends.
func (f *fanout) work(ctx context.Context) {
	for {
		name, shutdown := f.sources.Get()
		if shutdown {
			return
		}
		if ctx.Err() == nil {
			f.run(ctx, name)
		}
		f.sources.Done(name)
	}
}

func (f *fanout) run(ctx context.Context, name string) {
	if wait := f.status.beginRound(name, roundGap); wait > 0 {
		f.sources.AddAfter(name, wait)
		return
	}
	version := f.caches.version() // before the targets
	var targets []plan.Target
	for _, namespace := range f.caches.targetNamespaces(name, f.status.namespaces(name)) {
		targets = append(targets, f.caches.target(key{Namespace: namespace, Name: name}))
	}
	v := f.caches.view(name) // after the targets
	for i, c := range f.rules.Plan(v, targets) {
		var losers []key
		for _, s := range f.rules.Superseded(v, targets[i], c) {
			losers = append(losers, s.Key)
		}
		if !f.status.planned(targets[i], c, losers, version) {
			continue
		}
		// The confirmer queues a deletion when its live read is answered.
		if _, known := f.confirmer.confirm(ctx, v, targets[i], c); known {
			f.copies.Add(c.Key)
		}
	}
	if f.copies.reportable(name) {
		f.copies.reported(name)
		if f.reporter.report(ctx, name, v) {
			f.sources.AddAfter(name, logSpacing)
		}
	}
}
