package main

import (
	"context"
	"fmt"
	"time"
)

// residentBar is what the controller may have in memory with a million copies, in bytes.
const residentBar = 2.2 * (1 << 30)

// ratedWrites is about how many writes the plain program makes to show its rate.
const ratedWrites = 10_000

// millionFill is the making of all copies, by rungs: each has a process of its own, which finds the copies of the one before.
// The time of a copy is that of the last rung, and the limit is a create by the plain program on the same cluster, before the
// first rung and behind the last one.
type millionFill struct {
	*million
	time, cpu, cpuAll    *row
	resident, peak, live *row
	copyMade, copyLive   *row
	before, after        []use // of the plain program, a write
	last                 use   // of the last rung, a copy
}

func newMillionFill(m *million) group {
	figure := fmt.Sprintf("filling, %s copies: ", thousands(m.copies()))
	return &millionFill{
		million:  m,
		time:     &row{figure: figure + "time a copy", unit: asCPU},
		cpu:      &row{figure: figure + "CPU a copy", unit: asCPU},
		cpuAll:   &row{figure: figure + "CPU a copy, with API server and etcd", unit: asCPU},
		resident: &row{figure: figure + "resident", unit: asGiB, bar: 1},
		peak:     &row{figure: figure + "peak", unit: asGiB},
		live:     &row{figure: figure + "live heap", unit: asGiB},
		copyMade: &row{figure: "memory a copy, made: resident", unit: asBytes},
		copyLive: &row{figure: "memory a copy: live heap", unit: asBytes},
	}
}

func (g *millionFill) rows() []*row {
	return []*row{g.time, g.cpu, g.cpuAll, g.resident, g.peak, g.live, g.copyMade, g.copyLive}
}

func (g *millionFill) measure(ctx context.Context, b *bench) (err error) {
	b.progress("making %s namespaces and %d sources", thousands(g.namespaces), g.sources)
	if err := b.lay(ctx, g.scene()); err != nil {
		return err
	}
	if g.before, err = g.rate(ctx, b); err != nil {
		return err
	}
	made := 0
	for _, n := range g.rungs() {
		if err := g.climb(ctx, b, made, n); err != nil {
			return err
		}
		made = n
	}
	b.filled = true
	if err := b.audit.skip(); err != nil {
		return err
	}
	if g.after, err = g.rate(ctx, b); err != nil {
		return err
	}
	g.enter()
	return nil
}

// rate measures a create of the plain program, twice, and deletes the objects again.
func (g *millionFill) rate(ctx context.Context, b *bench) (each []use, err error) {
	w, err := b.watch(ctx, plainSelector)
	if err != nil {
		return nil, err
	}
	defer w.stop()
	o := order{Names: plainNames(max(1, min(g.sources, ratedWrites/g.namespaces))), Namespaces: b.pool.names(g.namespaces), Payload: g.payload, Version: "1"}
	b.progress("the plain program makes %s writes, and takes them back", thousands(o.size()))
	for range 2 {
		o.Op = opCreate
		u, err := b.limit(ctx, w, o)
		if err != nil {
			return nil, err
		}
		each = append(each, u.each(o.size()))
		o.Op = opDelete
		if _, err := b.limit(ctx, w, o); err != nil {
			return nil, err
		}
	}
	return each, nil
}

// plainNames are names that no copy has.
func plainNames(n int) []string {
	names := sourceNames(n)
	for i := range names {
		names[i] = "plain-" + names[i]
	}
	return names
}

// each is the share of one of n.
func (u use) each(n int) use {
	return use{u.took / time.Duration(n), u.cpu / time.Duration(n), u.server / time.Duration(n)}
}

// climb has a process make the copies of the first to namespaces, where those of the first from ones are there, and notes what
// that took and what there is then.
func (g *millionFill) climb(ctx context.Context, b *bench, from, to int) error {
	r := rung{namespaces: to, copies: g.sources * to}
	b.progress("making %s copies", thousands(r.copies))
	c, used, err := g.fillTo(ctx, b, from, to)
	if err != nil {
		return err
	}
	r.filled, r.made = used.took, g.sources*(to-from)
	g.last = used.each(r.made)
	if err := c.stopAfter(ctx, g.rest(ctx, b, c, &r.maker)); err != nil {
		return err
	}
	if err := b.audit.skip(); err != nil {
		return err
	}
	g.ladder = append(g.ladder, r)
	return g.revisit(ctx, b, &g.ladder[len(g.ladder)-1])
}

// fillTo starts a process and returns it, with what it took, when it has made the copies.
func (g *millionFill) fillTo(ctx context.Context, b *bench, from, to int) (c *controller, u use, err error) {
	w, err := b.watch(ctx, mirrorSelector)
	if err != nil {
		return nil, u, err
	}
	defer w.stop()
	x := w.expect(g.sources*(to-from), holds("", "1"))
	u.server, err = cpuDuring(b.servers, func() error {
		if c, err = b.launch(b.pool.prefixes(to)); err != nil {
			c = nil
			return err
		}
		stop := g.sample(ctx, b, c, x, g.sources*from)
		at, err := x.wait(ctx)
		stop()
		u.took = at.Sub(c.started)
		return err
	})
	if c == nil {
		return nil, u, err
	}
	if err == nil {
		u.cpu, err = cpuOf(c.Pid())
	}
	if err != nil {
		return nil, u, c.stopAfter(ctx, err)
	}
	return c, u, nil
}

const (
	// samplePeriod is how often is read what programs have in memory while copies are made.
	samplePeriod = 5 * time.Second
	// progressPeriod is how often is said how far it is.
	progressPeriod = 30 * time.Second
)

// sample notes while copies are made what programs have in memory, and says how far it is.
func (g *millionFill) sample(ctx context.Context, b *bench, c *controller, x *expectation, before int) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		said := time.Now()
		for b.sleep(ctx, samplePeriod) == nil {
			resident, err := b.residents()
			if err != nil {
				return // the guard ends the run for that error
			}
			seen := x.count()
			g.curve = append(g.curve, growthPoint{copies: before + seen, resident: resident})
			if time.Since(said) >= progressPeriod {
				said = time.Now()
				b.progress("%s of %s copies, %.0f a second; %s", thousands(before+seen), thousands(before+x.n),
					float64(seen)/time.Since(c.started).Seconds(), describeMemory(resident))
			}
		}
	}()
	return func() { cancel(); <-ended }
}

// rest waits until a process is quiet, leaves it alone, and reads what is in memory.
func (m *million) rest(ctx context.Context, b *bench, c *controller, f *figures) (err error) {
	if err := c.quiet(ctx); err != nil {
		return err
	}
	if err := b.sleep(ctx, m.settle); err != nil {
		return err
	}
	if f.resident, f.peak, err = memoryOf(c.Pid()); err != nil {
		return err
	}
	if f.programs, err = b.residents(); err != nil {
		return err
	}
	if f.database, err = b.database(); err != nil {
		return err
	}
	f.live, err = c.liveHeap(ctx)
	return err
}

// revisit starts a process with the copies of a rung in sync, and notes how long that takes, what it has in memory, and how long a
// change of a source takes.
func (g *millionFill) revisit(ctx context.Context, b *bench, r *rung) error {
	c, err := b.launch(b.pool.prefixes(r.namespaces))
	if err != nil {
		return err
	}
	return c.stopAfter(ctx, func() (err error) {
		if r.restarted, err = c.waitReady(ctx); err != nil {
			return err
		}
		if err := g.rest(ctx, b, c, &r.found); err != nil {
			return err
		}
		u, err := g.change(ctx, b, c, r.namespaces)
		r.changed = u.took
		return err
	}())
}

// enter fills the rows.
func (g *millionFill) enter() {
	for _, limit := range append(g.before, g.after...) {
		g.time.addTimes(g.last.took, limit.took)
		g.cpu.addTimes(g.last.cpu, limit.cpu)
		g.cpuAll.addTimes(g.last.cpu+g.last.server, limit.cpu+limit.server)
	}
	top := g.ladder[len(g.ladder)-1]
	g.time.say("the last %s copies in %s", thousands(top.made), top.filled.Round(time.Second))
	g.resident.add(top.maker.resident, residentBar)
	g.peak.ours, g.live.ours = []float64{top.maker.peak}, []float64{top.maker.live}
	if len(g.ladder) > 1 {
		below := g.ladder[len(g.ladder)-2]
		more := float64(top.copies - below.copies)
		g.copyMade.ours = []float64{(top.maker.resident - below.maker.resident) / more}
		g.copyLive.ours = []float64{(top.found.live - below.found.live) / more}
	}
}
