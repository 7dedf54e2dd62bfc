package main

import (
	"context"
	"fmt"
	"time"
)

// What the CPU figures compare the larger scene with.
const (
	smallTargets = 100
	smallSources = 10
)

// cpuRepair is the controller's CPU time for one repaired copy, with one source in many namespaces; the limit is the same with
// few. Copies in the first few namespaces are edited one after the other, each again only after all others.
type cpuRepair struct {
	targets, repairs, rounds, payload int
	cpu                               *row
}

func newCPURepair(s sizes) group {
	return &cpuRepair{
		targets: s.moreRepair, repairs: s.repairs, rounds: s.few, payload: s.payload,
		cpu: &row{figure: fmt.Sprintf("CPU of a repair, %s against %d namespaces", thousands(s.moreRepair), smallTargets), unit: asCPU, bar: 1.3},
	}
}

func (g *cpuRepair) rows() []*row { return []*row{g.cpu} }

func (g *cpuRepair) measure(ctx context.Context, b *bench) error {
	return interleave(g.rounds, g.cpu,
		func() (time.Duration, error) { return g.cost(ctx, b, g.targets) },
		func() (time.Duration, error) { return g.cost(ctx, b, smallTargets) })
}

// cost returns the CPU time of a repair in so many namespaces.
func (g *cpuRepair) cost(ctx context.Context, b *bench, targets int) (each time.Duration, err error) {
	if err := b.fill(ctx, scene{1, targets, g.payload}); err != nil {
		return 0, err
	}
	w, err := b.watch(ctx, mirrorSelector)
	if err != nil {
		return 0, err
	}
	defer w.stop()
	names := b.pool.names(targets)
	err = b.with(ctx, b.pool.prefixes(targets), func(c *controller) error {
		time.Sleep(time.Second) // what it does at the start is done
		all, err := cpuDuring([]int{c.Pid()}, func() error {
			for i := range g.repairs {
				if _, err := b.repair(ctx, w, edit, names[i%min(targets, smallTargets)], sourceNames(1)[0]); err != nil {
					return err
				}
			}
			time.Sleep(tail)
			return nil
		})
		each = all / time.Duration(g.repairs)
		return err
	})
	return each, err
}

// cpuNamespace is the controller's CPU time for one copy in a new namespace, with many sources; the limit is the
// same with few. Namespaces are created one after the other, as many as it takes for the same number of copies.
type cpuNamespace struct {
	sources, copies, rounds, payload int
	cpu                              *row
	made                             int // namespaces
}

func newCPUNamespace(s sizes) group {
	return &cpuNamespace{
		sources: s.moreFresh, copies: max(2*s.repairs, s.moreFresh), rounds: s.few, payload: s.payload,
		cpu: &row{figure: fmt.Sprintf("CPU a copy of a new namespace, %s against %d sources", thousands(s.moreFresh), smallSources), unit: asCPU, bar: 1.3},
	}
}

func (g *cpuNamespace) rows() []*row { return []*row{g.cpu} }

func (g *cpuNamespace) measure(ctx context.Context, b *bench) error {
	return interleave(g.rounds, g.cpu,
		func() (time.Duration, error) { return g.cost(ctx, b, g.sources) },
		func() (time.Duration, error) { return g.cost(ctx, b, smallSources) })
}

// cost returns the CPU time of a copy with so many sources.
func (g *cpuNamespace) cost(ctx context.Context, b *bench, sources int) (each time.Duration, err error) {
	const prefix = "growing-"
	if err := b.lay(ctx, scene{sources: sources, payload: g.payload}); err != nil {
		return 0, err
	}
	w, err := b.watch(ctx, mirrorSelector)
	if err != nil {
		return 0, err
	}
	defer w.stop()
	// The namespaces of earlier rounds are no targets.
	g.made++
	prefixOfRound := fmt.Sprintf("%s%d-", prefix, g.made)
	namespaces := g.copies / sources
	err = b.with(ctx, []string{prefixOfRound}, func(c *controller) error {
		time.Sleep(time.Second)
		all, err := cpuDuring([]int{c.Pid()}, func() error {
			for i := range namespaces {
				name := fmt.Sprintf("%s%d", prefixOfRound, i)
				b.touched[name] = true
				if _, err := w.timed(ctx, sources, in(name, holds("", "1")), func() error { return b.createNamespace(ctx, name) }); err != nil {
					return err
				}
			}
			time.Sleep(tail)
			return nil
		})
		each = all / time.Duration(namespaces*sources)
		return err
	})
	return each, err
}
