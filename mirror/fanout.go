package mirror

import (
	"maps"
	"slices"
	"time"
)

// fanOutGap is the shortest time between two fan-outs of a name: a source may
// change all the time.
const fanOutGap = 100 * time.Millisecond

// sameTime is for how long a fan-out decides by one time. The graces of copies
// that it judges by one time end together, and one live read serves them all.
const sameTime = 100 * time.Millisecond

// fanOut compares all targets of a name with its sources, and queues those that
// are out of sync.
func (d *decider) fanOut(name string) {
	now := time.Now()
	known, wait := d.beginFanOut(name, now)
	if wait > 0 {
		d.queues.sources.AddAfter(name, wait)
		return
	}
	view := d.cache.ViewReader(name)
	first := view()
	for _, k := range d.cache.Targets(name, known) {
		n := d.records.lock(name)
		if time.Since(now) > sameTime {
			now = time.Now()
		}
		if x := d.visit(n, k, view, now); x.act {
			d.queues.copies.Add(k)
		}
		n.unlock()
	}
	n := d.records.lock(name)
	defer n.unlock()
	n.view = first
	n.comparing = false
	for _, s := range first.All() {
		n.status(s.Key) // until a report forgets it
	}
	n.reportSoon()
}

// beginFanOut begins a fan-out, and returns the namespaces that have a record; or
// it returns how long the fan-out has to wait.
func (d *decider) beginFanOut(name string, now time.Time) (namespaces []string, wait time.Duration) {
	n := d.records.lock(name)
	defer n.unlock()
	if wait := n.fanOutAt.Add(fanOutGap).Sub(now); wait > 0 {
		return nil, wait
	}
	n.fanOutAt = now
	n.comparing = true
	n.shared = map[settled]*record{} // forgets those of former contents
	return slices.Collect(maps.Keys(n.byNamespace)), 0
}
