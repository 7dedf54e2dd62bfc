package main

import (
	"fmt"
	"regexp"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// restsOfChurn is how often the memory is read. The first third is left out: caches and pools fill up then.
	restsOfChurn = 9
	// churnBar is how much more live heap there may be in the last third than in the middle third.
	churnBar = 1.05
)

var goroutinesLine = regexp.MustCompile(`(?m)^go_goroutines (\d+)$`)

// newChurn asks whether anything grows: sources, copies and namespaces come, change and go, and what there is in
// memory at rest in the last third of the time is compared with what there was in the middle third.
func newChurn(s sizes) group {
	figure := fmt.Sprintf("%s changes: ", thousands(restsOfChurn*s.few*changesOfChurn))
	heap := &row{figure: figure + "live heap at rest", unit: asBytes, bar: churnBar}
	goroutines := &row{figure: figure + "goroutines at rest", unit: asCount, bar: 1}
	return group{[]*row{heap, goroutines}, func(b *bench) {
		all := scene{10, smallTargets, payload}
		b.fill(all)
		b.filled = scene{} // from here on
		w := b.watch(mirrorSelector)
		defer w.stop()
		const fresh = "churn-"
		b.with([]string{all.prefix(), fresh}, func(c *controller) {
			var live, routines []float64
			for rest := range restsOfChurn {
				for i := range s.few {
					b.churn(w, all, i, fmt.Sprintf("%s%03d-%03d", fresh, rest, i))
				}
				b.progress("rest %d of %d", rest+1, restsOfChurn)
				c.quiet()
				live = append(live, c.liveHeap())
				routines = append(routines, c.ask("/metrics", goroutinesLine))
			}
			heap.compareThirds(live, slices.Max[[]float64])
			goroutines.compareThirds(routines, median)
		})
	}}
}

// compareThirds compares the last third of some samples with the middle third.
func (r *row) compareThirds(samples []float64, of func([]float64) float64) {
	third := len(samples) / 3
	r.add(of(samples[2*third:]), of(samples[third:2*third]))
}

// changesOfChurn is how many changes there are in churn.
const changesOfChurn = 7

// churn edits a source, deletes it and makes it anew; damages two copies; and has a namespace come and go.
func (b *bench) churn(w *watcher, s scene, i int, namespace string) {
	names, namespaces := sourceNames(s.sources), s.names()
	name, target := names[i%len(names)], namespaces[i%len(namespaces)]
	w.timed(s.targets, in(s.prefix(), holds(name, "2")), func() { b.updateSource(name, "2", s.payload) })
	w.timed(s.targets, in(s.prefix(), gone(name)), func() { check(b.maps(home).Delete(b.ctx, name, metav1.DeleteOptions{})) })
	w.timed(s.targets, in(s.prefix(), holds(name, "1")), func() { b.createSource(name, "1", s.payload) })
	b.repair(w, opUpdate, target, name)
	b.repair(w, opDelete, target, names[(i+1)%len(names)])
	w.timed(s.sources, in(namespace, holds("", "1")), func() { b.createNamespace(namespace) })
	w.timed(s.sources, in(namespace, gone("")), func() {
		check(b.admin.CoreV1().Namespaces().Delete(b.ctx, namespace, metav1.DeleteOptions{}))
	})
}
