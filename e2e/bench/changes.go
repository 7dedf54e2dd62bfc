package main

import (
	"fmt"
	"regexp"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var goroutinesLine = regexp.MustCompile(`(?m)^go_goroutines (\d+)$`)

// changes asks whether anything grows: sources, copies and namespaces come, change and go, and what there is in memory
// at rest in the last third of the time is compared with what there was in the middle third. Caches and pools fill up
// in the first third.
func changes(b *bench) {
	all := scene{10, smallTargets}
	b.lay(all)
	w := b.watch(mirrorSelector)
	defer w.stop()
	made := w.expect(all.sources*all.targets, holds("", "1"))
	const fresh = "churn-"
	b.with([]string{all.prefix(), fresh}, func(c *controller) {
		made.wait()
		for _, third := range []string{"first", "middle", "last"} {
			for rest := range 3 {
				for i := range *few {
					b.change(w, all, i, fmt.Sprintf("%s%s-%d-%d", fresh, third, rest, i))
				}
				c.quiet()
				b.print("third="+third, metrics{"live-B": c.liveHeap(), "goroutines": c.ask("/metrics", goroutinesLine)})
			}
		}
	})
}

// change edits a source, deletes it and makes it anew; damages two copies; and has a namespace come and go.
func (b *bench) change(w *watcher, s scene, i int, namespace string) {
	names, namespaces := sourceNames(s.sources), s.names()
	name, target := names[i%len(names)], namespaces[i%len(namespaces)]
	w.timed(s.targets, in(s.prefix(), holds(name, "2")), func() { b.updateSource(name, "2") })
	w.timed(s.targets, in(s.prefix(), gone(name)),
		func() { check(b.maps(home).Delete(b.ctx, name, metav1.DeleteOptions{})) })
	w.timed(s.targets, in(s.prefix(), holds(name, "1")), func() { b.createSource(name, "1") })
	b.repair(w, opUpdate, target, name)
	b.repair(w, opDelete, target, names[(i+1)%len(names)])
	w.timed(s.sources, in(namespace, holds("", "1")), func() { b.createNamespace(namespace) })
	w.timed(s.sources, in(namespace, gone("")), func() {
		check(b.admin.CoreV1().Namespaces().Delete(b.ctx, namespace, metav1.DeleteOptions{}))
	})
}
