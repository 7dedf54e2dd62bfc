package main

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

const (
	// waiting is the number of sources whose namespaces are not there yet, and of namespaces beside them.
	waiting = 1000
	// namesakes is the number of sources of one name, each in a target.
	namesakes = 1500
)

// withoutTargets is a new namespace beside sources that wait for others: the CPU time of the controller.
func withoutTargets(b *bench) {
	const prefix = "beside-"
	b.lay(scene{})
	b.createNamespaces(numbered(prefix, waiting))
	parallel(numbered("waits-", waiting), func(name string) {
		cm := newSource(name, "1")
		cm.Annotations = map[string]string{plan.PrefixAnnotation: prefix + name}
		get(b.maps(home).Create(b.ctx, cm, metav1.CreateOptions{}))
	})
	b.with([]string{prefix}, func(c *controller) {
		c.quiet()
		idle := cpuDuring([]int{c.Pid()}, func() { b.sleep(samples * breath) })
		used := cpuDuring([]int{c.Pid()}, func() {
			for _, name := range numbered(prefix+"new-", samples) {
				b.createNamespace(name)
				b.sleep(breath)
			}
			c.quiet()
		})
		b.print("bar=20ms", metrics{"cpu-sec/op": max(0, used-idle).Seconds() / samples})
	})
}

// manyNamesakes are sources of one name, each of which ranks behind those that are older: memory.
func manyNamesakes(b *bench) {
	const prefix = "namesake-"
	b.lay(scene{})
	names := numbered(prefix, namesakes)
	b.createNamespaces(names)
	parallel(names, func(namespace string) {
		cm := newSource("shared", "1")
		cm.Namespace = namespace
		get(b.maps(namespace).Create(b.ctx, cm, metav1.CreateOptions{}))
	})
	b.with([]string{prefix}, func(c *controller) {
		b.print("bar=100MiB", metrics{"resident-B": b.settled(c)})
	})
}
