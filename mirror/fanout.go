package mirror

import (
	"context"
	"time"

	"github.com/mirror-controller/mirror-controller/mirror/internal/queue"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// fanout compares all targets of a name with its sources, and queues those that are out of sync. When no target is
// queued any more, or targets keep the queue busy for long, it reports the sources.
type fanout struct {
	*decider
	reporter *reporter
	sources  *queue.Sources
	copies   *queue.Copies
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

// run compares the targets of a name if the name waits for a fan-out, and reports its sources.
func (f *fanout) run(ctx context.Context, name string) {
	if f.sources.WantsFanout(name) {
		n := f.status.lock(name)
		wait := n.beginFanout()
		n.unlock()
		if wait == 0 {
			f.sources.BeginFanout(name)
			f.compare(name)
		} else {
			f.sources.AddReport(name, wait)
		}
	}
	if wait := f.reporter.report(ctx, name, f.compared(name)); wait > 0 {
		f.sources.AddReport(name, wait)
	}
}

// compared returns the view that the targets of a name were compared with last. A source that is edited all the time
// must not keep the others from being reported.
func (f *fanout) compared(name string) *plan.View {
	n := f.status.lock(name)
	defer n.unlock()
	if n.view != nil {
		return n.view
	}
	return f.cache.View(name)
}

// compare compares all targets of a name with its sources. A target with a call on its way is left to its reconcile.
func (f *fanout) compare(name string) {
	read := f.cache.ViewReader(name)
	v := read()
	now := time.Now()
	for _, k := range f.cache.Targets(name, f.status.namespaces(name)) {
		n := f.status.lock(name)
		// One time for many copies: their graces end together, and one live read, which begins after that, serves them all.
		if time.Since(now) > runGap {
			now = time.Now()
		}
		if n.calling(k.Namespace) {
			n.calls[k.Namespace].queued = true
			t := f.cache.Target(k)
			n.recordClaim(f.rules.Decide(read(), t))
			f.copies.Add(k)
		} else {
			switch x := f.decide(n, k, read, now); {
			case x.step == stepAct:
				f.copies.Add(k)
			case x.wait > 0:
				f.copies.AddAfter(k, x.wait)
			}
		}
		n.unlock()
	}
	n := f.status.lock(name)
	defer n.unlock()
	n.view = v
}
