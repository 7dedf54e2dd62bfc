package mirror

import (
	"maps"
	"slices"
	"time"
)

// fanOutGap is the shortest time between two fan-outs of a name: a source may
// change all the time.
const fanOutGap = 100 * time.Millisecond

// fanOut compares all targets of a name with its sources, and queues those that
// are out of sync.
func (d *decider) fanOut(name string) {
	known, wait := d.beginFanOut(name)
	if wait > 0 {
		d.queues.sources.AddAfter(name, wait)
		return
	}
	first := d.cache.View(name)
	for _, k := range d.cache.Targets(name, known) {
		n := d.records.lock(name)
		if x := d.visit(n, k); x.act {
			d.queues.copies.Add(k)
		}
		n.unlock()
	}
	n := d.records.lock(name)
	defer n.unlock()
	n.view = first
	n.comparing = false
	for _, s := range first.All {
		status := n.status(s.Key)
		status.sent.Begin(s.ConfigMap.UID) // from now on the process has seen the source
		status.excluded = nil
	}
	n.reportSoon()
	if !n.announceBy.IsZero() { // lines are due, which wait for the end of a fan-out
		n.all.reports.AddAfter(nextLines, linesDelay)
	}
}

// beginFanOut begins a fan-out, and returns the namespaces that have a record; or
// it returns how long the fan-out has to wait.
func (d *decider) beginFanOut(name string) (namespaces []string, wait time.Duration) {
	n := d.records.lock(name)
	defer n.unlock()
	if wait := time.Until(n.fanOutAt.Add(fanOutGap)); wait > 0 {
		return nil, wait
	}
	n.fanOutAt = time.Now()
	n.comparing = true
	if n.view != d.cache.View(name) {
		n.shared = map[settled]*record{} // forgets those of former contents
	}
	return slices.Collect(maps.Keys(n.byNamespace)), 0
}
