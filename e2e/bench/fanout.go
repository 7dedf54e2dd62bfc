package main

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

const (
	// pause is how long all is left alone before something is timed, so that each side begins when the other's work
	// is over, also in the API server and in kube-controller-manager.
	pause = 200 * time.Millisecond
	// tail is for how long CPU time is counted after the last event in the outside watch.
	tail = 200 * time.Millisecond
	// afterthought is longer than the second after which the controller reads a deleted source again.
	afterthought = 1200 * time.Millisecond
	// breath is the time between two samples of a round, in which what the last one left to do gets done.
	breath = 30 * time.Millisecond
)

// phase is a change of a source.
type phase struct {
	op      string // of the plain program
	version string // of the data, afterwards
	bar     string
}

// fanOut is one source to n namespaces: created, changed and unlabelled in each round. Ours is from just before the
// write of the source to the last copy seen from outside; the limit is that many writes by the plain program. Whoever
// restores copies must watch what it writes, so the plain program writes once more and watches. CPU time takes a large
// fan-out to be read from.
func fanOut(n, rounds int, createBar string) benchmark {
	phases := [...]phase{{opCreate, "1", createBar}, {opUpdate, "2", "1.12"}, {opDelete, "", "1.15"}}
	return benchmark{fmt.Sprintf("FanOut/n=%d", n), func(b *bench) {
		s := scene{targets: n}
		b.lay(s)
		b.with([]string{s.prefix()}, func(c *controller) {
			for round, name := range numbered("fan-out-", rounds) {
				var ours, plain, watching [len(phases)]use
				alternately(round, func() {
					for i, p := range phases {
						ours[i] = b.publish(c, n, name, p)
						b.sleep(afterthought)
					}
				}, func() {
					for i, p := range phases {
						plain[i] = b.limitOf(s, name, p, false)
					}
				}, func() {
					for i, p := range phases {
						watching[i] = b.limitOf(s, name, p, true)
					}
				})
				check(b.maps(home).Delete(b.ctx, name, metav1.DeleteOptions{}))
				for i, p := range phases {
					b.compare(p.op+"/bar="+p.bar, ours[i].took, plain[i].took)
					b.compare(p.op+"/watching", ours[i].took, watching[i].took)
				}
				b.compareCPU("bar=1.60", n, ours[0], plain[0])
				b.compareCPU("watching/bar=1.25", n, ours[0], watching[0])
			}
		})
	}}
}

// compareCPU prints the CPU time of one of n writes: that of the program, and that of API server and etcd besides.
func (b *bench) compareCPU(configuration string, n int, ours, limit use) {
	each := func(d time.Duration) float64 { return d.Seconds() / float64(n) }
	b.print("cpu/"+configuration, metrics{
		"cpu-sec/write": each(ours.cpu), "limit-cpu-sec/write": each(limit.cpu),
		"x-limit":           ours.cpu.Seconds() / limit.cpu.Seconds(),
		"all-cpu-sec/write": each(ours.cpu + ours.server), "limit-all-cpu-sec/write": each(limit.cpu + limit.server),
	})
}

// publish is what a phase of a source with n targets takes with the controller.
func (b *bench) publish(c *controller, n int, name string, p phase) use {
	w := b.watch(mirrorSelector)
	defer w.stop()
	match, change := holds(name, p.version), func() { b.updateSource(name, p.version) }
	switch p.op {
	case opCreate:
		change = func() { b.createSource(name, p.version) }
	case opDelete:
		match, change = gone(name), func() { b.unlabelSource(name) }
	}
	b.sleep(pause)
	return b.used(c.Pid(), func() time.Duration { return w.timed(n, match, change) })
}

// limitOf is what a phase takes with the plain program, which watches besides, or not.
func (b *bench) limitOf(s scene, name string, p phase, watching bool) use {
	return b.limit(order{Op: p.op, Names: []string{name}, Namespaces: s.names(), Version: p.version, Watch: watching})
}

// alternately runs the functions in turn. In each round another of them is the first, because each may leave the API
// server more or less to do.
func alternately(round int, sides ...func()) {
	for i := range sides {
		sides[(round+i)%len(sides)]()
	}
}

// use is what something takes: time, CPU time of the program that does it, and that of API server and etcd.
type use struct{ took, cpu, server time.Duration }

// used returns the cost of f with the program of a process. f itself says how much time it took.
func (b *bench) used(pid int, f func() time.Duration) (u use) {
	u.server = cpuDuring(b.servers, func() {
		u.cpu = cpuDuring([]int{pid}, func() {
			u.took = f()
			b.sleep(tail)
		})
	})
	return u
}

// newNamespace is from just before the creation of a namespace to the copy there; the limit is to the ConfigMap that
// kube-controller-manager puts into the same namespace, seen by the same watch.
func newNamespace(b *bench) {
	const prefix = "single-"
	b.lay(scene{sources: 1})
	w := b.watch(everything)
	defer w.stop()
	b.with([]string{prefix}, func(*controller) {
		for _, name := range numbered(prefix, samples) {
			b.sleep(breath)
			theirs := w.expect(1, in(name, func(_ watch.EventType, cm *corev1.ConfigMap) bool { return cm.Name == rootCA }))
			ours := w.expect(1, in(name, holds("", "1")))
			start := time.Now()
			b.createNamespace(name)
			b.compare("bar=1.20", ours.wait().Sub(start), theirs.wait().Sub(start))
		}
	})
}

// plainUpdate is a sample of the limit.
func (b *bench) plainUpdate(w *watcher, namespace string) time.Duration {
	maps := b.maps(namespace)
	cm := order{Version: "1"}.copyAt(cache.ObjectName{Namespace: namespace, Name: "reference"})
	cm = get(maps.Create(b.ctx, cm, metav1.CreateOptions{}))
	b.sleep(breath)
	var answered time.Time
	start := time.Now()
	shown := w.timed(1, in(namespace, holds("", "2")), func() {
		cm.Data = data("2")
		get(maps.Update(b.ctx, cm, metav1.UpdateOptions{}))
		answered = time.Now()
	})
	check(maps.Delete(b.ctx, cm.Name, metav1.DeleteOptions{}))
	return max(shown, answered.Sub(start))
}

// repair damages a copy of version 1, by an update or a deletion, and returns how long the damage was to be seen.
func (b *bench) repair(w *watcher, damage, namespace, name string) time.Duration {
	shows, do := holds(name, "damaged"), func() {
		patch := []byte(`{"data":{"` + dataKey + `":"damaged"}}`)
		get(b.maps(namespace).Patch(b.ctx, name, types.MergePatchType, patch, metav1.PatchOptions{}))
	}
	if damage == opDelete {
		shows, do = gone(name), func() { check(b.maps(namespace).Delete(b.ctx, name, metav1.DeleteOptions{})) }
	}
	damaged := w.expect(1, in(namespace, shows))
	repaired := w.expect(1, in(namespace, holds(name, "1")))
	do()
	from := damaged.wait()
	return repaired.wait().Sub(from)
}
