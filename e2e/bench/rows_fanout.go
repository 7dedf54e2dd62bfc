package main

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// fanOut is one source to many namespaces. Ours is from just before the write of the source to the last copy seen
// from outside; the limit is that many writes by the plain program.
type fanOut struct {
	*bench
	scene scene
}

// phase is a change of the source.
type phase struct {
	op      string // of the plain program
	version string // of the data, afterwards
	reads   int    // requests besides one write a copy
	bar     float64
}

// deletion unlabels the source: whether it is really gone is asked for once.
var deletion = phase{opDelete, "", 1, 1.15}

// newFanOut creates, updates and deletes in each round.
func newFanOut(s sizes) group {
	phases := []phase{{opCreate, "1", 0, 1.10}, {opUpdate, "2", 0, 1.12}, deletion}
	var times, counts []*row
	for _, p := range phases {
		figure := fmt.Sprintf("fan-out to %s, %s", thousands(s.fanOut), p.op)
		times = append(times, &row{figure: figure, unit: asTime, bar: p.bar})
		counts = append(counts, &row{figure: "requests, " + figure, unit: asCount, exact: true})
	}
	return group{append(times, counts...), func(b *bench) {
		f := fanOut{b, scene{targets: s.fanOut, payload: payload}}
		f.rounds(s.rounds, func(c *controller, name string) {
			for i, p := range phases {
				b.requests(counts[i], s.fanOut+p.reads, func() { times[i].tell(f.ours(c, name, p).took.Seconds()) })
			}
		}, func(name string) {
			for i, p := range phases {
				times[i].limit = append(times[i].limit, f.limit(name, p, false).took.Seconds())
			}
		})
	}}
}

// newLarge is a fan-out so large that CPU time can be read from it. Whoever restores copies must watch what it
// writes, so there is a plain program that watches, too.
func newLarge(s sizes) group {
	figure := fmt.Sprintf("fan-out to %s, create", thousands(s.large))
	created := &row{figure: figure, unit: asTime, bar: 1.12}
	watching := &row{figure: figure + ", against a plain program that watches", unit: asTime}
	cpu := &row{figure: "CPU a write", unit: asCPU, bar: 1.6}
	cpuWatching := &row{figure: "CPU a write, against a plain program that watches", unit: asCPU, bar: 1.25}
	cpuAll := &row{figure: "CPU a write, with API server and etcd", unit: asCPU}
	return group{[]*row{created, watching, cpu, cpuWatching, cpuAll}, func(b *bench) {
		f, create := fanOut{b, scene{targets: s.large, payload: payload}}, phase{op: opCreate, version: "1"}
		var ours, plain, watched []use
		limit := func(name string, watching bool, into *[]use) {
			*into = append(*into, f.limit(name, create, watching))
			f.limit(name, deletion, watching)
		}
		f.rounds(s.few, func(c *controller, name string) {
			ours = append(ours, f.ours(c, name, create))
			f.ours(c, name, deletion)
			b.sleep(afterthought)
		}, func(name string) { limit(name, false, &plain) }, func(name string) { limit(name, true, &watched) })
		for i, our := range ours {
			created.addTimes(our.took, plain[i].took)
			watching.addTimes(our.took, watched[i].took)
			cpu.addTimes(our.cpuEach(s.large), plain[i].cpuEach(s.large))
			cpuWatching.addTimes(our.cpuEach(s.large), watched[i].cpuEach(s.large))
			cpuAll.addTimes(our.allEach(s.large), plain[i].allEach(s.large))
		}
	}}
}

// rounds calls all sides so often, with a name of the source for each round, and lets no copy or source of it stay.
func (f fanOut) rounds(n int, ours func(c *controller, name string), limits ...func(name string)) {
	f.lay(f.scene)
	f.with([]string{f.scene.prefix()}, func(c *controller) {
		for i, name := range numbered("fan-out-", n) {
			sides := []func(){func() { ours(c, name); check(f.maps(home).Delete(f.ctx, name, metav1.DeleteOptions{})) }}
			for _, limit := range limits {
				sides = append(sides, func() { limit(name) })
			}
			alternately(i, sides...)
		}
	})
}

// ours is what a phase takes with the controller.
func (f fanOut) ours(c *controller, name string, p phase) use {
	w := f.watch(mirrorSelector)
	defer w.stop()
	match, change := holds(name, p.version), func() { f.updateSource(name, p.version, payload) }
	switch p.op {
	case opCreate:
		change = func() { f.createSource(name, p.version, payload) }
	case opDelete:
		match, change = gone(name), func() { f.unlabelSource(name) }
	}
	f.sleep(pause)
	return f.used(c.Pid(), func() time.Duration { return w.timed(f.scene.targets, match, change) })
}

// limit is what a phase takes with the plain program, which watches besides, or not.
func (f fanOut) limit(name string, p phase, watching bool) use {
	o := order{Op: p.op, Names: []string{name}, Namespaces: f.scene.names(), Version: p.version, Watch: watching}
	return f.bench.limit(o)
}

// alternately runs the functions in turn. In each round another of them is the first, because each may leave the API server
// more or less to do.
func alternately(round int, sides ...func()) {
	for i := range sides {
		sides[(round+i)%len(sides)]()
	}
}

// interleave fills a row with the times of so many rounds of both functions.
func interleave(rounds int, r *row, ours, limit func() time.Duration) {
	for i := range rounds {
		var us, them time.Duration
		alternately(i, func() { us = ours() }, func() { them = limit() })
		r.addTimes(us, them)
	}
}

const (
	// pause is how long all is left alone before something is timed, so that each side begins when the other's work
	// is over, also in the API server and in kube-controller-manager.
	pause = 200 * time.Millisecond
	// tail is for how long CPU time is counted after the last event in the outside watch.
	tail = 200 * time.Millisecond
)

// use is what something takes: time, CPU time of the program that does it, and that of API server and etcd.
type use struct{ took, cpu, server time.Duration }

// cpuEach is the program's CPU time for one of n writes, allEach that of all three.
func (u use) cpuEach(n int) time.Duration { return u.cpu / time.Duration(n) }
func (u use) allEach(n int) time.Duration { return (u.cpu + u.server) / time.Duration(n) }

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
