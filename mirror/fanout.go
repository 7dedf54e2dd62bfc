package mirror

import (
	"context"
	"time"

	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// runGap is the shortest time between two fan-outs or reports of a name. A source that changes all the time is compared with all
// its targets that often; each target still gets the newest content when its turn comes.
const runGap = 100 * time.Millisecond

// fanout compares all targets of a name with its sources, and queues those that are out of sync. When no target is queued any
// more, or targets keep the queue busy for long, it reports the sources.
type fanout struct {
	rules     *plan.Rules
	caches    *caches
	status    *status
	confirmer *confirmer
	reporter  *reporter
	sources   *sourceQueue
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
	if wait := f.status.beginRun(name, runGap); wait > 0 {
		f.sources.AddAfter(name, wait)
		return
	}
	v := f.caches.view(name)
	if f.sources.takeFanout(name) || !f.status.compared(name, v) {
		v = f.compare(ctx, name)
	}
	if f.copies.reportable(name) {
		f.copies.reported(name)
		if f.reporter.report(ctx, name, v) {
			f.sources.AddAfter(name, logSpacing)
		}
	}
}

// compare compares all targets of a name with its sources, and returns the view of them.
func (f *fanout) compare(ctx context.Context, name string) *plan.View {
	f.status.beginFanout(name)    // before the targets
	version := f.caches.version() // before the targets
	targets := f.caches.targets(name, f.status.namespaces(name))
	v := f.caches.view(name) // after the targets
	for i, c := range f.rules.Plan(v, targets) {
		losers := func(c plan.Change) []key { return losers(f.rules, v, targets[i], c) }
		if !f.status.planned(targets[i], c, losers, version) {
			continue
		}
		// The confirmer queues a deletion when its live read is answered.
		if _, known := f.confirmer.confirm(ctx, v, targets[i], c); known {
			f.copies.Add(c.Key)
		}
	}
	f.status.endFanout(name, v)
	return v
}
