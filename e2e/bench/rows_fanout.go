package main

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// fanOut is one source to many namespaces. Ours is from just before the write of the source to the last copy seen
// from outside; the limit is that many writes by the plain program. Each round creates, updates and deletes, on all
// sides, and each side begins as often as the others.
type fanOut struct {
	targets, rounds, payload int
	phases                   []*phase
	// cpu is the CPU time that a created copy takes in the program that makes it, cpuWatching beside one that watches, cpuAll in that program, the API
	// server and etcd; nil: not asked for.
	cpu, cpuWatching, cpuAll *row
	// watching is the time to create against that of a plain program that watches what it writes, as whoever repairs must;
	// nil: not asked for.
	watching *row
}

// phase is a change of the source, and what it costs to have it in all copies.
type phase struct {
	op       string // of the plain program
	version  string // of the data, afterwards
	reads    int    // requests besides one write a copy
	time     *row
	requests *row
}

func newFanOut(s sizes) group {
	f := &fanOut{targets: s.fanOut, rounds: s.rounds, payload: s.payload}
	f.phases = []*phase{
		f.phase("create", opCreate, "1", 0, 1.10),
		f.phase("update", opUpdate, "2", 0, 1.12),
		// The source is unlabelled: whether it is really gone is asked for once.
		f.phase("delete", opDelete, "", 1, 1.15),
	}
	return f
}

// newLarge is a fan-out so large that CPU time can be read from it.
func newLarge(s sizes) group {
	f := &fanOut{targets: s.large, rounds: s.few, payload: s.payload}
	f.phases = []*phase{
		f.phase("create", opCreate, "1", 0, 1.12),
		f.phase("delete", opDelete, "", 1, 1.15),
	}
	f.phases[1].time.bar = 0 // for information
	// A live read of the source is good for five seconds. One more for each five is not a request for each copy.
	f.phases[1].requests.exact, f.phases[1].requests.bar = false, 1.01
	f.phases[1].requests.note = "a live read of the source is good for five seconds, on purpose"
	f.cpu = &row{figure: "CPU a write", unit: asCPU, bar: 1.6}
	f.cpuAll = &row{figure: "CPU a write, with API server and etcd", unit: asCPU}
	f.cpuWatching = &row{figure: "CPU a write, against a plain program that watches", unit: asCPU, bar: 1.25}
	f.watching = &row{figure: f.phases[0].time.figure + ", against a plain program that watches", unit: asTime}
	return f
}

func (f *fanOut) phase(name, op, version string, reads int, bar float64) *phase {
	figure := fmt.Sprintf("fan-out to %s, %s", thousands(f.targets), name)
	return &phase{
		op: op, version: version, reads: reads,
		time:     &row{figure: figure, unit: asTime, bar: bar},
		requests: &row{figure: "requests, " + figure, unit: asCount, exact: true},
	}
}

func (f *fanOut) rows() []*row {
	var times, requests []*row
	for _, p := range f.phases {
		times, requests = append(times, p.time), append(requests, p.requests)
	}
	if f.cpu != nil {
		times = append(times, f.cpu, f.cpuWatching, f.cpuAll, f.watching)
	}
	return append(times, requests...)
}

func (f *fanOut) measure(ctx context.Context, b *bench) error {
	if err := b.lay(ctx, scene{targets: f.targets}); err != nil {
		return err
	}
	namespaces, err := b.targetNames(ctx, f.targets)
	if err != nil {
		return err
	}
	return b.with(ctx, b.pool.prefixes(f.targets), func(c *controller) error {
		if err := b.audit.forget(); err != nil {
			return err
		}
		for i := range f.rounds {
			name := fmt.Sprintf("fan-out-%d", i)
			sides := []func() error{
				func() error { return f.ours(ctx, b, c, name) },
				func() error { return f.limit(ctx, b, name, namespaces, false) },
			}
			if f.watching != nil {
				sides = append(sides, func() error { return f.limit(ctx, b, name, namespaces, true) })
			}
			if err := alternately(i, sides...); err != nil {
				return err
			}
		}
		return b.audit.judgeStrays(f.phases[0].requests)
	})
}

// alternately runs the functions in turn. In each round another of them is the first, because each may leave the API server
// more or less to do.
func alternately(round int, sides ...func() error) error {
	for i := range sides {
		if err := sides[(round+i)%len(sides)](); err != nil {
			return err
		}
	}
	return nil
}

// interleave fills a row with the times of so many rounds of both functions.
func interleave(rounds int, r *row, ours, limit func() (time.Duration, error)) error {
	for i := range rounds {
		var us, them time.Duration
		err := alternately(i,
			func() (err error) { us, err = ours(); return err },
			func() (err error) { them, err = limit(); return err })
		if err != nil {
			return err
		}
		r.addTimes(us, them)
	}
	return nil
}

// ours is a round of the controller.
func (f *fanOut) ours(ctx context.Context, b *bench, c *controller, name string) error {
	w, err := b.watch(ctx, mirrorSelector)
	if err != nil {
		return err
	}
	defer w.stop()
	for _, p := range f.phases {
		match := holds(name, p.version)
		if p.op == opDelete {
			match = gone(name)
		}
		if err := b.breathe(ctx); err != nil {
			return err
		}
		// A source has an event in ten seconds at most, and the last one of the source before may come now.
		err := b.audit.during(ctx, p.requests, want{writes: f.targets, reads: p.reads, events: 2}, func() error {
			u, err := b.used(c.Pid(), func() (time.Duration, error) {
				return w.timed(ctx, f.targets, match, func() error { return f.change(ctx, b, name, p) })
			})
			if err == nil {
				f.enter(p, u, func(r *row) *[]float64 { return &r.ours })
				if p.op == opCreate && f.watching != nil {
					f.watching.ours = append(f.watching.ours, u.took.Seconds())
					f.cpuWatching.ours = append(f.cpuWatching.ours, u.cpu.Seconds()/float64(f.targets))
				}
			}
			return err
		})
		if err != nil {
			return fmt.Errorf("%s: %w", p.op, err)
		}
	}
	return b.admin.CoreV1().ConfigMaps(home).Delete(ctx, name, metav1.DeleteOptions{})
}

// change makes the change of the phase in the source.
func (f *fanOut) change(ctx context.Context, b *bench, name string, p *phase) (err error) {
	maps := b.admin.CoreV1().ConfigMaps(home)
	cm := newSource(name, p.version, f.payload, p.op != opDelete)
	if p.op == opCreate {
		_, err = maps.Create(ctx, cm, metav1.CreateOptions{})
	} else {
		_, err = maps.Update(ctx, cm, metav1.UpdateOptions{})
	}
	return err
}

// limit is a round of the plain program, which watches besides, or not.
func (f *fanOut) limit(ctx context.Context, b *bench, name string, namespaces []string, watching bool) error {
	w, err := b.watch(ctx, plainSelector)
	if err != nil {
		return err
	}
	defer w.stop()
	for _, p := range f.phases {
		o := order{Op: p.op, Names: []string{name}, Namespaces: namespaces, Payload: f.payload, Version: p.version, Watch: watching}
		u, err := b.limit(ctx, w, o)
		switch {
		case err != nil:
			return fmt.Errorf("%s: %w", p.op, err)
		case !watching:
			f.enter(p, u, func(r *row) *[]float64 { return &r.limit })
		case p.op == opCreate:
			f.watching.limit = append(f.watching.limit, u.took.Seconds())
			f.cpuWatching.limit = append(f.cpuWatching.limit, u.cpu.Seconds()/float64(f.targets))
		}
	}
	return nil
}

// enter notes what a phase took on one side of the rows.
func (f *fanOut) enter(p *phase, u use, side func(*row) *[]float64) {
	note := func(r *row, v float64) { *side(r) = append(*side(r), v) }
	note(p.time, u.took.Seconds())
	if p.op == opCreate && f.cpu != nil {
		note(f.cpu, u.cpu.Seconds()/float64(f.targets))
		note(f.cpuAll, (u.cpu+u.server).Seconds()/float64(f.targets))
	}
}

// tail is for how long CPU time is counted after the last event in the outside watch.
const tail = 200 * time.Millisecond

// use is what something takes: time, CPU time of the program that does it, and that of API server and etcd.
type use struct{ took, cpu, server time.Duration }

// used returns the cost of f with the program of a process. f itself says how much time it took. The CPU time of the program
// counts until it is at rest, also after everything was seen from outside.
func (b *bench) used(pid int, f func() (time.Duration, error)) (u use, err error) {
	u.server, err = cpuDuring(b.servers, func() error {
		u.cpu, err = cpuDuring([]int{pid}, func() error {
			u.took, err = f()
			time.Sleep(tail)
			return err
		})
		return err
	})
	return u, err
}

// pause is how long all is left alone before something is timed, behind the afterthought of what was done before, so that each side
// begins when the other's work is over, also in the API server and in kube-controller-manager.
const pause = 200 * time.Millisecond

// afterwards leaves all alone behind what may have failed.
func (b *bench) afterwards(err error) error {
	if err == nil {
		time.Sleep(afterthought)
	}
	return err
}

// breathe is the pause before something is timed, on both sides. The audit log is read up to its end before.
func (b *bench) breathe(ctx context.Context) error {
	if err := b.audit.pass(); err != nil {
		return err
	}
	select {
	case <-time.After(pause):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// vanished measures the deletion of a source and its copies: one live read of the source and one write a copy. Its time has
// no limit, because the controller waits a second on purpose.
type vanished struct {
	targets, payload int
	requests         *row
}

func newVanished(s sizes) group {
	figure := fmt.Sprintf("requests, source with %s copies deleted", thousands(s.samples))
	return &vanished{targets: s.samples, payload: s.payload, requests: &row{figure: figure, unit: asCount, exact: true,
		note: "read twice on purpose, see mirror/DECISIONS.md"}}
}

func (g *vanished) rows() []*row { return []*row{g.requests} }

func (g *vanished) measure(ctx context.Context, b *bench) error {
	if err := b.fill(ctx, scene{1, g.targets, g.payload}); err != nil {
		return err
	}
	w, err := b.watch(ctx, mirrorSelector)
	if err != nil {
		return err
	}
	defer w.stop()
	b.filled = false // from here on
	return b.with(ctx, b.pool.prefixes(g.targets), func(*controller) error {
		return b.audit.during(ctx, g.requests, want{writes: g.targets, reads: 1, events: 1}, func() error {
			name := sourceNames(1)[0]
			_, err := w.timed(ctx, g.targets, gone(name), func() error {
				return b.admin.CoreV1().ConfigMaps(home).Delete(ctx, name, metav1.DeleteOptions{})
			})
			return err
		})
	})
}

// coldStart is many sources to many namespaces, from the start of the controller's process to the last copy seen;
// the limit is that many creates by the plain program.
type coldStart struct {
	scene
	rounds         int
	time, requests *row
}

func newColdStart(s sizes) group {
	figure := fmt.Sprintf("cold start, %s sources to %s namespaces", thousands(s.sources), thousands(s.targets))
	return &coldStart{
		scene: scene{s.sources, s.targets, s.payload}, rounds: s.few,
		time:     &row{figure: figure, unit: asTime, bar: 1.15},
		requests: &row{figure: "requests, " + figure, unit: asCount, exact: true},
	}
}

func (g *coldStart) rows() []*row { return []*row{g.time, g.requests} }

func (g *coldStart) measure(ctx context.Context, b *bench) error {
	if err := b.lay(ctx, g.scene); err != nil {
		return err
	}
	return interleave(g.rounds, g.time,
		func() (time.Duration, error) { return g.ours(ctx, b) },
		func() (time.Duration, error) { return g.limit(ctx, b) })
}

// ours is a round of the controller; afterwards the copies are gone again.
func (g *coldStart) ours(ctx context.Context, b *bench) (took time.Duration, err error) {
	w, err := b.watch(ctx, mirrorSelector)
	if err != nil {
		return 0, err
	}
	defer w.stop()
	copies := g.sources * g.targets
	if err := b.breathe(ctx); err != nil {
		return 0, err
	}
	err = b.audit.during(ctx, g.requests, want{writes: copies, lists: watchedResources, events: g.sources, ended: true}, func() error {
		var c *controller
		took, err = w.timed(ctx, copies, holds("", "1"), func() (err error) {
			c, err = b.launch(b.pool.prefixes(g.targets))
			return err
		})
		if c != nil {
			time.Sleep(afterthought)
			err = c.stopAfter(ctx, err)
		}
		return err
	})
	if err != nil {
		return 0, err
	}
	return took, b.afterwards(b.clearCopies(ctx))
}

// limit is a round of the plain program; afterwards what it made is gone again.
func (g *coldStart) limit(ctx context.Context, b *bench) (time.Duration, error) {
	w, err := b.watch(ctx, plainSelector)
	if err != nil {
		return 0, err
	}
	defer w.stop()
	namespaces, err := b.targetNames(ctx, g.targets)
	if err != nil {
		return 0, err
	}
	o := order{Op: opCreate, Names: sourceNames(g.sources), Namespaces: namespaces, Payload: g.payload, Version: "1"}
	u, err := b.limit(ctx, w, o)
	if err != nil {
		return 0, err
	}
	return u.took, b.afterwards(b.clear(ctx, plainLabel))
}
