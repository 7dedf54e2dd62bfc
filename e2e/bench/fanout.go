package main

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
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

// fanOut is one source to n namespaces: created, changed and unlabelled in each round. Ours is from just before the
// write of the source to the last copy seen from outside; the limit is that many writes by the plain program. Whoever
// restores copies must watch what it writes, so the plain program writes once more and watches. CPU time takes a large
// fan-out to be read from.
func fanOut(n, rounds int, createBar string) benchmark {
	phases := []struct{ op, version, bar string }{
		{opCreate, "1", createBar}, {opUpdate, "2", "1.12"}, {opDelete, "", "1.15"},
	}
	prefix := fmt.Sprintf("bench-%d-", n)
	return benchmark{fmt.Sprintf("FanOut/n=%d", n), func(b *bench) {
		b.clear()
		targets := b.createNamespaces(prefix, n)
		b.with(prefix, func(c *controller) {
			for round, name := range numbered("fan-out-", rounds) {
				side := func(watch bool, do func(order) use) func() []use {
					return func() (uses []use) {
						for _, p := range phases {
							uses = append(uses, do(order{p.op, []string{name}, targets, p.version, watch}))
						}
						return uses
					}
				}
				uses := alternately(round, side(false, c.publish), side(false, b.limit), side(true, b.limit))
				ours, plain, watching := uses[0], uses[1], uses[2]
				b.delete(source(home, name, ""))
				for i, p := range phases {
					b.compare(p.op+"/bar="+p.bar, ours[i].took, plain[i].took)
				}
				b.compareCPU("bar=1.60", n, ours[0], plain[0])
				b.compareCPU("watching/bar=1.25", n, ours[0], watching[0])
			}
		})
	}}
}

// othersMetadata is an edit of a source with n copies, each of which has a label of other people. The limit is as many
// plain updates: the controller reads each copy before it, because an update must keep that label.
func othersMetadata(n, rounds int) benchmark {
	prefix := fmt.Sprintf("others-%d-", n)
	return benchmark{fmt.Sprintf("OthersMetadata/n=%d", n), func(b *bench) {
		b.clear()
		targets := b.createNamespaces(prefix, n)
		ours := order{Op: opCreate, Names: []string{"labelled"}, Namespaces: targets, Version: "0"}
		plain := ours
		plain.Names = []string{"plain"} // in the same namespaces
		b.limit(plain)
		b.with(prefix, func(c *controller) {
			c.publish(ours)
			b.labelCopies(ours)
			c.quiet()
			ours.Op, plain.Op = opUpdate, opUpdate
			for round := range rounds {
				version := fmt.Sprintf("%d-", round+1)
				ours.Version, plain.Version = version, version
				uses := alternately(round, func() use { return c.publish(ours) }, func() use { return b.limit(plain) })
				b.compare("update/bar=2.00", uses[0].took, uses[1].took)
				b.compareCPU("bar=2.60", n, uses[0], uses[1])
			}
		})
	}}
}

// labelCopies puts a label on each copy of an order, as another controller would.
func (b *bench) labelCopies(o order) {
	patch := []byte(`{"metadata":{"labels":{"example.com/owner":"somebody"}}}`)
	parallel(o.Namespaces, func(namespace string) {
		get(b.maps(namespace).Patch(b.ctx, o.Names[0], types.MergePatchType, patch, metav1.PatchOptions{}))
	})
}

// use is what something takes: time, CPU time of the program that does it, and that of API server and etcd.
type use struct{ took, cpu, server time.Duration }

// compareCPU prints the CPU time of one of n writes: that of the program, and that of API server and etcd besides.
func (b *bench) compareCPU(configuration string, n int, ours, limit use) {
	each := func(d time.Duration) float64 { return d.Seconds() / float64(n) }
	b.print("cpu/"+configuration, metrics{
		"cpu-sec/write": each(ours.cpu), "limit-cpu-sec/write": each(limit.cpu),
		"x-limit":           ours.cpu.Seconds() / limit.cpu.Seconds(),
		"all-cpu-sec/write": each(ours.cpu + ours.server), "limit-all-cpu-sec/write": each(limit.cpu + limit.server),
	})
}

// publish returns what the controller takes after it is done to a source what the order says for copies.
func (c *controller) publish(o order) use {
	cm, write := source(home, o.Names[0], o.Version), c.b.update
	switch o.Op {
	case opCreate:
		write = c.b.create
	case opDelete:
		cm.Labels = nil
	}
	return c.b.used(c.Pid(), mirrorSelector, o, func() { write(cm) })
}

// limit returns what the plain program takes for the order.
func (b *bench) limit(o order) use {
	b.plain.tell(o)
	return b.used(b.plain.cmd.Process.Pid, plainSelector, o, func() { b.plain.tell(true) })
}

// used returns what a process takes from just before act until an outside watch has shown the last write of the order.
func (b *bench) used(pid int, selector string, o order, act func()) (u use) {
	w := b.watch(selector)
	defer w.Stop()
	b.sleep(pause)
	u.server = cpuDuring(func() {
		u.cpu = cpuDuring(func() {
			u.took = w.timed(o.size(), copies("", "", o.Version), act)
			b.sleep(tail)
		}, pid)
	}, b.servers...)
	b.sleep(afterthought)
	return u
}
