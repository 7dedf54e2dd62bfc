package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

// rootCA is the ConfigMap that kube-controller-manager puts into every namespace.
const rootCA = "kube-root-ca.crt"

// breath is the time between two samples, in which what the last one left to do gets done.
const breath = 30 * time.Millisecond

// newNamespace is from just before the creation of a namespace to the copy there; the limit is to the ConfigMap
// that kube-controller-manager puts into the same namespace, seen by the same watch.
type newNamespace struct {
	samples        int
	payload        int
	time, requests *row
}

func newNewNamespace(s sizes) group {
	return &newNamespace{
		samples: s.samples, payload: s.payload,
		time:     &row{figure: "new namespace", unit: asTime, bar: 1.2},
		requests: &row{figure: "requests, new namespace", unit: asCount, exact: true},
	}
}

func (g *newNamespace) rows() []*row { return []*row{g.time, g.requests} }

func (g *newNamespace) measure(ctx context.Context, b *bench) error {
	const prefix = "single-"
	if err := b.lay(ctx, scene{sources: 1, payload: g.payload}); err != nil {
		return err
	}
	w, err := b.watch(ctx, everything)
	if err != nil {
		return err
	}
	defer w.stop()
	return b.with(ctx, []string{prefix}, func(*controller) error {
		return b.audit.during(ctx, g.requests, want{writes: g.samples, events: g.samples}, func() error {
			for i := range g.samples {
				if err := g.sample(ctx, b, w, fmt.Sprintf("%s%d", prefix, i)); err != nil {
					return err
				}
			}
			return nil
		})
	})
}

// sample creates one namespace.
func (g *newNamespace) sample(ctx context.Context, b *bench, w *watcher, name string) error {
	b.touched[name] = true
	theirs := w.expect(1, in(name, named(rootCA)))
	ours := w.expect(1, in(name, holds(sourceNames(1)[0], "1")))
	start := time.Now()
	if err := b.createNamespace(ctx, name); err != nil {
		return err
	}
	theirsAt, err := theirs.wait(ctx)
	if err != nil {
		return err
	}
	oursAt, err := ours.wait(ctx)
	if err != nil {
		return err
	}
	g.time.addTimes(oursAt.Sub(start), theirsAt.Sub(start))
	time.Sleep(breath)
	return nil
}

// named looks for ConfigMaps of a name.
func named(name string) matcher {
	return func(_ watch.EventType, cm *corev1.ConfigMap) bool { return cm.Name == name }
}

// manySources is from just before the creation of a namespace to the last of many copies there; the limit is that
// many creates by the plain program in a namespace that is there already.
type manySources struct {
	sources, rounds, payload int
	time, requests           *row
}

func newManySources(s sizes) group {
	figure := fmt.Sprintf("new namespace, %s sources", thousands(s.crowd))
	return &manySources{
		sources: s.crowd, rounds: s.rounds, payload: s.payload,
		time:     &row{figure: figure, unit: asTime, bar: 1.23},
		requests: &row{figure: "requests, " + figure, unit: asCount, exact: true},
	}
}

func (g *manySources) rows() []*row { return []*row{g.time, g.requests} }

func (g *manySources) measure(ctx context.Context, b *bench) error {
	const prefix = "crowd-"
	if err := b.lay(ctx, scene{sources: g.sources, payload: g.payload}); err != nil {
		return err
	}
	return b.with(ctx, []string{prefix}, func(*controller) error {
		made := 0
		return interleave(g.rounds, g.time,
			func() (time.Duration, error) { made++; return g.ours(ctx, b, fmt.Sprintf("%s%d", prefix, made)) },
			func() (time.Duration, error) { made++; return g.limit(ctx, b, fmt.Sprintf("plain-%s%d", prefix, made)) })
	})
}

func (g *manySources) ours(ctx context.Context, b *bench, namespace string) (took time.Duration, err error) {
	w, err := b.watch(ctx, mirrorSelector)
	if err != nil {
		return 0, err
	}
	defer w.stop()
	b.touched[namespace] = true
	if err := b.breathe(ctx); err != nil {
		return 0, err
	}
	err = b.audit.during(ctx, g.requests, want{writes: g.sources, events: g.sources}, func() error {
		took, err = w.timed(ctx, g.sources, in(namespace, holds("", "1")), func() error { return b.createNamespace(ctx, namespace) })
		return err
	})
	return took, err
}

func (g *manySources) limit(ctx context.Context, b *bench, namespace string) (time.Duration, error) {
	w, err := b.watch(ctx, plainSelector)
	if err != nil {
		return 0, err
	}
	defer w.stop()
	if err := b.createNamespaces(ctx, []string{namespace}); err != nil {
		return 0, err
	}
	o := order{Op: opCreate, Names: sourceNames(g.sources), Namespaces: []string{namespace}, Payload: g.payload, Version: "1"}
	u, err := b.limit(ctx, w, o)
	return u.took, err
}

// during is a namespace that is created while one source is being mirrored to many: from just before its creation
// to its copy, the slowest of a fan-out, against the time that the fan-out takes.
type during struct {
	targets, rounds, payload int
	time, requests           *row
	late                     int // namespaces that were created so far
}

// latecomers is how many namespaces are created in the course of one fan-out, at equal distances.
const latecomers = 3

// duringPrefix is that of the names of these namespaces.
const duringPrefix = "during-"

func newDuring(s sizes) group {
	figure := fmt.Sprintf("new namespace during a fan-out to %s", thousands(s.large))
	return &during{
		targets: s.large, rounds: s.few, payload: s.payload,
		time:     &row{figure: figure, unit: asTime, bar: 0.1},
		requests: &row{figure: "requests, " + figure, unit: asCount, exact: true},
	}
}

func (g *during) rows() []*row { return []*row{g.time, g.requests} }

func (g *during) measure(ctx context.Context, b *bench) error {
	if err := b.lay(ctx, scene{targets: g.targets}); err != nil {
		return err
	}
	w, err := b.watch(ctx, mirrorSelector)
	if err != nil {
		return err
	}
	defer w.stop()
	return b.with(ctx, append(b.pool.prefixes(g.targets), duringPrefix), func(*controller) error {
		for i := range g.rounds {
			name := fmt.Sprintf("during-%d", i)
			copies := g.targets + g.late + latecomers
			if err := b.breathe(ctx); err != nil {
				return err
			}
			err := b.audit.during(ctx, g.requests, want{writes: copies, events: 1}, func() error { return g.round(ctx, b, w, name) })
			if err != nil {
				return err
			}
			// The copies go before the next round.
			_, err = w.timed(ctx, copies, gone(name), func() error {
				_, err := b.admin.CoreV1().ConfigMaps(home).Update(ctx, newSource(name, "1", g.payload, false), metav1.UpdateOptions{})
				return err
			})
			if err := b.afterwards(err); err != nil {
				return err
			}
		}
		return nil
	})
}

// round is one fan-out.
func (g *during) round(ctx context.Context, b *bench, w *watcher, name string) error {
	var parts []*expectation
	for part := range latecomers + 1 {
		parts = append(parts, w.expect(g.targets*(part+1)/(latecomers+1), inPool(holds(name, "1"))))
	}
	// Namespaces that came late in earlier rounds are targets as well.
	all := w.expect(g.targets+g.late+latecomers, holds(name, "1"))
	start := time.Now()
	if err := b.createSource(ctx, name, "1", g.payload); err != nil {
		return err
	}
	var late []time.Duration
	for _, part := range parts[:latecomers] {
		if _, err := part.wait(ctx); err != nil {
			return err
		}
		namespace := fmt.Sprintf("%s%d", duringPrefix, g.late)
		g.late++
		b.touched[namespace] = true
		took, err := w.timed(ctx, 1, in(namespace, holds(name, "1")), func() error { return b.createNamespace(ctx, namespace) })
		if err != nil {
			return err
		}
		late = append(late, took)
	}
	end, err := parts[latecomers].wait(ctx)
	if err != nil {
		return err
	}
	g.time.addTimes(slices.Max(late), end.Sub(start))
	_, err = all.wait(ctx)
	return err
}
