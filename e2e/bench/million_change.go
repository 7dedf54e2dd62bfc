package main

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// millionChange is a change of one source, to its last copy; the limit is as many updates by the plain program.
type millionChange struct {
	*million
	time, cpu, cpuAll, requests *row
}

// Bars of a change.
const (
	changeBar = 1.15
	writeBar  = 1.75 // CPU time a write
)

func newMillionChange(m *million) group {
	figure := fmt.Sprintf("change of a source to %s of %s copies", thousands(m.namespaces), thousands(m.copies()))
	return &millionChange{
		million:  m,
		time:     &row{figure: figure, unit: asSeconds, bar: changeBar},
		cpu:      &row{figure: figure + ": CPU a write", unit: asCPU, bar: writeBar},
		cpuAll:   &row{figure: figure + ": CPU a write, with API server and etcd", unit: asCPU},
		requests: &row{figure: "requests, " + figure, unit: asCount, exact: true},
	}
}

func (g *millionChange) rows() []*row { return []*row{g.time, g.cpu, g.cpuAll, g.requests} }

func (g *millionChange) measure(ctx context.Context, b *bench) error {
	return g.with(ctx, b, func(c *controller) error {
		o := order{Op: opCreate, Names: []string{"changed"}, Namespaces: b.pool.names(g.namespaces), Payload: g.payload, Version: "0"}
		if _, err := g.plain(ctx, b, o); err != nil {
			return err
		}
		for i := range g.rounds {
			b.progress("change %d of %d", i+1, g.rounds)
			o.Op, o.Version = opUpdate, fmt.Sprintf("%d-", i+1)
			err := alternately(i,
				func() error { return g.ours(ctx, b, c) },
				func() error {
					u, err := g.plain(ctx, b, o)
					g.enter(u, func(r *row) *[]float64 { return &r.limit })
					return err
				})
			if err != nil {
				return err
			}
		}
		o.Op = opDelete
		_, err := g.plain(ctx, b, o)
		return err
	})
}

func (g *millionChange) ours(ctx context.Context, b *bench, c *controller) error {
	if err := b.breathe(ctx); err != nil {
		return err
	}
	return b.audit.during(ctx, g.requests, want{writes: g.namespaces + g.fresh, events: 2}, func() error {
		u, err := g.change(ctx, b, c, g.namespaces)
		g.enter(u, func(r *row) *[]float64 { return &r.ours })
		return err
	})
}

// plain is an order to the plain program.
func (m *million) plain(ctx context.Context, b *bench, o order) (use, error) {
	w, err := b.watch(ctx, plainSelector)
	if err != nil {
		return use{}, err
	}
	defer w.stop()
	return b.limit(ctx, w, o)
}

// enter notes what a change took on one side of the rows.
func (g *millionChange) enter(u use, side func(*row) *[]float64) {
	note := func(r *row, v float64) { *side(r) = append(*side(r), v) }
	note(g.time, u.took.Seconds())
	note(g.cpu, u.cpu.Seconds()/float64(g.namespaces))
	note(g.cpuAll, (u.cpu+u.server).Seconds()/float64(g.namespaces))
}

// change changes the first source and returns what it takes until its copies in the first so many namespaces of the pool, and in
// those that were made while a controller mirrored, hold it.
func (m *million) change(ctx context.Context, b *bench, c *controller, namespaces int) (use, error) {
	w, err := b.watch(ctx, mirrorSelector)
	if err != nil {
		return use{}, err
	}
	defer w.stop()
	version := m.nextVersion()
	return b.used(c.Pid(), func() (time.Duration, error) {
		return w.timed(ctx, namespaces+m.fresh, holds(sourceNames(1)[0], version), func() error { return m.edit(ctx, b, version) })
	})
}

// nextVersion is that of the next change. It begins as the first one did, for other rows look for that.
func (m *million) nextVersion() string {
	m.version++
	return fmt.Sprintf("1-%dx", m.version)
}

// edit writes a version into the first source.
func (m *million) edit(ctx context.Context, b *bench, version string) error {
	_, err := b.admin.CoreV1().ConfigMaps(home).Update(ctx, newSource(sourceNames(1)[0], version, m.payload, true), metav1.UpdateOptions{})
	return err
}
