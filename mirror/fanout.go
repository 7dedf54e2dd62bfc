package mirror

import (
	"time"

	"k8s.io/client-go/util/workqueue"

	"github.com/mirror-controller/mirror-controller/mirror/internal/queue"
)

// fanout compares all targets of a name with its sources, and queues those that are out of sync.
type fanout struct {
	*decider
	sources workqueue.TypedDelayingInterface[string]
	copies  *queue.Copies
}

// run compares the targets of a name, or has them compared later: a source may change all the time.
func (f *fanout) run(name string) {
	now := time.Now()
	if wait := f.begin(name, now); wait > 0 {
		f.sources.AddAfter(name, wait)
		return
	}
	read := f.cache.ViewReader(name)
	v := read()
	for _, k := range f.cache.Targets(name, f.targets.namespaces(name)) {
		n := f.targets.lock(name)
		// One time for many copies: their graces end together, and one live read, which begins then, serves them all.
		if time.Since(now) > runGap {
			now = time.Now()
		}
		if x := f.decide(n, k, read, now); x.act {
			f.copies.Add(k)
		} else if x.wait > 0 {
			f.copies.AddAfter(k, x.wait)
		}
		n.unlock()
	}
	n := f.targets.lock(name)
	defer n.unlock()
	n.view, n.comparing = v, false
	for _, s := range v.All() {
		n.source(s.Key) // until a report forgets it
	}
	n.reportSoon()
}

// begin begins a fan-out, or returns how long it has to wait.
func (f *fanout) begin(name string, now time.Time) (wait time.Duration) {
	n := f.targets.lock(name)
	defer n.unlock()
	if wait := n.fanOutAt.Add(runGap).Sub(now); wait > 0 {
		return wait
	}
	n.fanOutAt, n.comparing = now, true
	n.shared = map[plain]*target{} // of former contents
	return 0
}
