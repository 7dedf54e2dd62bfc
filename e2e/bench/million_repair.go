package main

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// millionRepair is a repair of an edited copy by the process that has all copies; the limit is the same by a
// second process on the same cluster, with a label and an instance of its own, that has a hundred. They take turns.
type millionRepair struct {
	*million
	time, requests *row
}

// repairBar is how many times as long the repair may take.
const repairBar = 1.3

// The second process, and what it mirrors.
const (
	smallPrefix = "small-"
	smallLabel  = "small"
	smallSource = "small"
)

// smallSelector is the selector of its watch.
const smallSelector = smallLabel + " in (" + plan.SourceValue + "," + plan.CopyValue + ")"

func newMillionRepair(m *million) group {
	figure := fmt.Sprintf("repair, edited, %s copies against %d", thousands(m.copies()), smallTargets)
	return &millionRepair{
		million:  m,
		time:     &row{figure: figure, unit: asTime, bar: repairBar},
		requests: &row{figure: "requests, " + figure, unit: asCount, exact: true},
	}
}

func (g *millionRepair) rows() []*row { return []*row{g.time, g.requests} }

func (g *millionRepair) measure(ctx context.Context, b *bench) error {
	return g.with(ctx, b, func(*controller) error {
		small, names, err := g.startSmall(ctx, b)
		if err != nil {
			return err
		}
		return small.stopAfter(ctx, g.compare(ctx, b, names))
	})
}

// startSmall starts the second process and waits until its copies are there. It returns their namespaces.
func (g *millionRepair) startSmall(ctx context.Context, b *bench) (c *controller, names []string, err error) {
	for i := range smallTargets {
		names = append(names, fmt.Sprintf("%s%03d", smallPrefix, i))
	}
	if err := b.createNamespaces(ctx, names); err != nil {
		return nil, nil, err
	}
	source := newSource(smallSource, "1", g.payload, false)
	source.Labels = map[string]string{smallLabel: plan.SourceValue}
	if _, err := b.admin.CoreV1().ConfigMaps(home).Create(ctx, source, metav1.CreateOptions{}); err != nil {
		return nil, nil, err
	}
	w, err := b.watch(ctx, smallSelector)
	if err != nil {
		return nil, nil, err
	}
	defer w.stop()
	x := w.expect(smallTargets, holds(smallSource, "1"))
	c, err = b.launchArgs([]string{"--namespace-prefix=" + smallPrefix, "--mirror-label=" + smallLabel, "--instance=" + smallLabel, "--leader-elect=false"})
	if err != nil {
		return nil, nil, err
	}
	if _, err := x.wait(ctx); err != nil {
		return nil, nil, c.stopAfter(ctx, err)
	}
	if err := c.quiet(ctx); err != nil {
		return nil, nil, c.stopAfter(ctx, err)
	}
	return c, names, nil
}

// compare fills the rows. No copy is damaged twice while there are others.
func (g *millionRepair) compare(ctx context.Context, b *bench, small []string) error {
	w, err := b.watch(ctx, mirrorSelector)
	if err != nil {
		return err
	}
	defer w.stop()
	other, err := b.watch(ctx, smallSelector)
	if err != nil {
		return err
	}
	defer other.stop()
	big := b.pool.names(g.namespaces)
	source := sourceNames(g.sources)[g.sources-1]
	return b.audit.during(ctx, g.requests, want{writes: 2 * g.samples}, func() error {
		for i := range g.samples {
			one := func(w *watcher, namespace, name string, into *time.Duration) func() error {
				return func() (err error) {
					*into, err = b.repair(ctx, w, edit, namespace, name)
					time.Sleep(breath)
					return err
				}
			}
			var ours, limit time.Duration
			// The namespaces lie as far apart as they can.
			err := alternately(i, one(w, big[i*len(big)/g.samples], source, &ours), one(other, small[i%len(small)], smallSource, &limit))
			if err != nil {
				return err
			}
			g.time.addTimes(ours, limit)
		}
		return nil
	})
}
