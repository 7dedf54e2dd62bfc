package mirror

import (
	"maps"
	"slices"
	"time"
)

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
		n.source(s.Key) // until a report forgets it
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
