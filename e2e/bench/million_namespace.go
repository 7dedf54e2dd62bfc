package main

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// millionNamespace is a new namespace, to the last of its copies: by itself, against as many creates by the plain program, and
// while a change of a source runs; and its deletion, against that of a namespace in which the plain program wrote as much.
type millionNamespace struct {
	*million
	made                               *manySources
	limits                             int // namespaces that the plain program wrote into
	during                             *row
	deleted, deletedCPU, deletedCopies *row
}

// namespaceBar is how many times as long as its creates a new namespace may take.
const namespaceBar = 1.25

// meanwhiles is how many namespaces are created while changes run, one in each.
const meanwhiles = 3

func newMillionNamespace(m *million) group {
	figure := fmt.Sprintf("new namespace, %s sources, %s copies", thousands(m.sources), thousands(m.copies()))
	deletion := fmt.Sprintf("deletion of a namespace with %s copies", thousands(m.sources))
	return &millionNamespace{
		million: m,
		made: &manySources{sources: m.sources, rounds: m.rounds, payload: m.payload,
			time:     &row{figure: figure, unit: asTime, bar: namespaceBar},
			requests: &row{figure: "requests, " + figure, unit: asCount, exact: true}},
		during:        &row{figure: figure + ", while a source changes, against that change", unit: asTime},
		deleted:       &row{figure: deletion, unit: asTime},
		deletedCPU:    &row{figure: deletion + ": CPU", unit: asTime},
		deletedCopies: &row{figure: "requests, " + deletion, unit: asCount, exact: true},
	}
}

func (g *millionNamespace) rows() []*row {
	return []*row{g.made.time, g.during, g.deleted, g.deletedCPU, g.made.requests, g.deletedCopies}
}

func (g *millionNamespace) measure(ctx context.Context, b *bench) error {
	return g.with(ctx, b, func(c *controller) error {
		err := interleave(g.rounds, g.made.time,
			func() (time.Duration, error) { return g.made.ours(ctx, b, g.next()) },
			func() (time.Duration, error) { g.limits++; return g.made.limit(ctx, b, plainNamespace(g.limits)) })
		if err != nil {
			return err
		}
		for range meanwhiles {
			if err := g.meanwhile(ctx, b); err != nil {
				return err
			}
		}
		return g.deleteAll(ctx, b, c)
	})
}

// next is the name of the next namespace.
func (m *million) next() string {
	m.fresh++
	return freshNamespace(m.fresh)
}

func freshNamespace(i int) string { return fmt.Sprintf("%s%d", freshPrefix, i) }
func plainNamespace(i int) string { return fmt.Sprintf("plain-%d", i) }

// meanwhile creates a namespace when a quarter of a change has been seen.
func (g *millionNamespace) meanwhile(ctx context.Context, b *bench) error {
	w, err := b.watch(ctx, mirrorSelector)
	if err != nil {
		return err
	}
	defer w.stop()
	name, version := sourceNames(1)[0], g.nextVersion()
	part := w.expect(max(1, g.namespaces/4), inPool(holds(name, version)))
	pool := w.expect(g.namespaces, inPool(holds(name, version)))
	namespace := g.next()
	all := w.expect(g.namespaces+g.fresh, holds(name, version))
	start := time.Now()
	if err := g.edit(ctx, b, version); err != nil {
		return err
	}
	if _, err := part.wait(ctx); err != nil {
		return err
	}
	b.touched[namespace] = true
	took, err := w.timed(ctx, g.sources, in(namespace, holds("", "1")), func() error { return b.createNamespace(ctx, namespace) })
	if err != nil {
		return err
	}
	changed, err := pool.wait(ctx)
	if err != nil {
		return err
	}
	g.during.addTimes(took, changed.Sub(start))
	_, err = all.wait(ctx)
	return b.afterwards(err)
}

// deleteAll deletes the namespaces that were made, and as many of the plain program's.
func (g *millionNamespace) deleteAll(ctx context.Context, b *bench, c *controller) error {
	for i := 1; i <= g.rounds; i++ {
		var ours, limit time.Duration
		err := alternately(i,
			func() (err error) { ours, err = g.deleteOurs(ctx, b, c, freshNamespace(i)); return err },
			func() (err error) {
				limit, err = deleteNamespace(ctx, b, plainSelector, plainNamespace(i), g.sources)
				return err
			})
		if err != nil {
			return err
		}
		g.deleted.addTimes(ours, limit)
	}
	for i := g.rounds + 1; i <= g.rounds+meanwhiles; i++ {
		if _, err := deleteNamespace(ctx, b, mirrorSelector, freshNamespace(i), g.sources); err != nil {
			return err
		}
	}
	g.fresh = 0
	return b.audit.skip()
}

// deleteOurs deletes a namespace with copies: the controller leaves them alone.
func (g *millionNamespace) deleteOurs(ctx context.Context, b *bench, c *controller, name string) (took time.Duration, err error) {
	if err := b.breathe(ctx); err != nil {
		return 0, err
	}
	err = b.audit.during(ctx, g.deletedCopies, want{events: 2 * g.sources}, func() error {
		u, err := b.used(c.Pid(), func() (time.Duration, error) { return deleteNamespace(ctx, b, mirrorSelector, name, g.sources) })
		g.deletedCPU.ours = append(g.deletedCPU.ours, u.cpu.Seconds())
		took = u.took
		return err
	})
	return took, err
}

// deleteNamespace deletes a namespace and returns how long it takes until the watch has shown that all ConfigMaps there are gone.
func deleteNamespace(ctx context.Context, b *bench, selector, name string, n int) (time.Duration, error) {
	w, err := b.watch(ctx, selector)
	if err != nil {
		return 0, err
	}
	defer w.stop()
	delete(b.touched, name)
	return w.timed(ctx, n, in(name, gone("")), func() error {
		return b.admin.CoreV1().Namespaces().Delete(ctx, name, metav1.DeleteOptions{})
	})
}
