package main

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/watch"
)

// breath is the time between two samples, in which what the last one left to do gets done.
const breath = 30 * time.Millisecond

// newNewNamespace is from just before the creation of a namespace to the copy there; the limit is to the ConfigMap
// that kube-controller-manager puts into the same namespace, seen by the same watch.
func newNewNamespace() group {
	r := &row{figure: "new namespace", unit: asTime, bar: 1.2}
	return group{[]*row{r}, func(b *bench) {
		const prefix = "single-"
		b.lay(scene{sources: 1, payload: payload})
		w := b.watch(everything)
		defer w.stop()
		b.with([]string{prefix}, func(*controller) {
			for _, name := range numbered(prefix, samples) {
				b.sleep(breath)
				theirs := w.expect(1, in(name, func(_ watch.EventType, cm *corev1.ConfigMap) bool { return cm.Name == rootCA }))
				ours := w.expect(1, in(name, holds("", "1")))
				start := time.Now()
				b.createNamespace(name)
				r.addTimes(ours.wait().Sub(start), theirs.wait().Sub(start))
			}
		})
	}}
}
