package main

import "fmt"

// Bars of the rows about memory, in bytes.
const (
	liveHeapOfCopy = 819 // 0.80 KiB
	residentOfCopy = 2 << 10
)

// newMemory is what the controller has in memory for a copy: in a process that has made all copies, and in one that
// has started with all in sync, both left alone for a while. A copy costs the difference between few copies and many;
// that scene has the same targets and fewer sources.
func newMemory(s sizes) group {
	many := s.syncedScene()
	few := many
	few.sources = max(1, many.sources/4)
	more := float64(many.copies() - few.copies())
	figure := fmt.Sprintf("memory a copy, %s to %s copies: ", thousands(few.copies()), thousands(many.copies()))
	made := &row{figure: figure + "made: resident", unit: asBytes, bar: 1}
	restarted := &row{figure: figure + "restarted: resident", unit: asBytes, bar: 1}
	live := &row{figure: figure + "live heap", unit: asBytes, bar: 1}
	return group{[]*row{made, restarted, live}, func(b *bench) {
		for range s.few {
			before, after := b.footprint(few), b.footprint(many)
			made.add((after.made-before.made)/more, residentOfCopy)
			restarted.add((after.restarted-before.restarted)/more, residentOfCopy)
			live.add((after.live-before.live)/more, liveHeapOfCopy)
		}
	}}
}

// footprint is what processes have in memory, in bytes: one that made all copies, and one that found them.
type footprint struct{ made, restarted, live float64 }

// footprint has a process make all copies of a scene, and another start with them.
func (b *bench) footprint(s scene) (f footprint) {
	b.lay(s)
	b.makeCopies(s, func(c *controller) { f.made = b.settled(c) })
	b.with([]string{s.prefix()}, func(c *controller) {
		f.restarted = b.settled(c)
		f.live = c.liveHeap()
	})
	return f
}

// settled leaves a process alone for a while and returns what it has in memory then.
func (b *bench) settled(c *controller) float64 {
	c.quiet()
	b.sleep(b.settle)
	return residentOf(c.Pid())
}

// growthObjects is of how many sources, and of how many namespaces, the cost of one is the mean.
const growthObjects = 3000

// newGrowth is what a source and a namespace cost by themselves. It comes last: its namespaces stay.
func newGrowth() group {
	source := &row{figure: fmt.Sprintf("memory a source of %s: live heap", asBytes(payload)), unit: asBytes}
	namespace := &row{figure: "memory a namespace: live heap", unit: asBytes}
	return group{[]*row{source, namespace}, func(b *bench) {
		live := func() (bytes float64) {
			b.with([]string{"none-"}, func(c *controller) {
				c.quiet()
				bytes = c.liveHeap()
			})
			return bytes
		}
		b.lay(scene{})
		empty := live()
		b.lay(scene{sources: growthObjects, payload: payload})
		sources := live()
		source.tell((sources - empty) / growthObjects)
		b.createNamespaces(numbered("growth-", growthObjects))
		namespace.tell((live() - sources) / growthObjects)
	}}
}
