package main

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// repair is from the outside watch showing a damage to a copy to its showing the repair. The limit is one update, from
// just before it until it has been answered and shown by a watch; it takes turns with the damages. Each sample has a
// copy of its own: a copy that is damaged again and again is restored ever more slowly.
type repair struct {
	samples, payload                int
	edited, deleted                 *row
	requestsEdited, requestsDeleted *row
}

func newRepair(s sizes) group {
	return &repair{
		samples: s.samples, payload: s.payload,
		edited:          &row{figure: "repair, edited", unit: asTime, bar: 2},
		deleted:         &row{figure: "repair, deleted", unit: asTime, bar: 2},
		requestsEdited:  &row{figure: "requests, repair, edited", unit: asCount, exact: true},
		requestsDeleted: &row{figure: "requests, repair, deleted", unit: asCount, exact: true},
	}
}

func (g *repair) rows() []*row {
	return []*row{g.edited, g.deleted, g.requestsEdited, g.requestsDeleted}
}

func (g *repair) measure(ctx context.Context, b *bench) error {
	if err := b.fill(ctx, scene{1, g.samples, g.payload}); err != nil {
		return err
	}
	for _, d := range []struct {
		time, requests *row
		damage         damage
	}{{g.edited, g.requestsEdited, edit}, {g.deleted, g.requestsDeleted, remove}} {
		err := b.with(ctx, b.pool.prefixes(g.samples), func(*controller) error {
			return b.audit.during(ctx, d.requests, want{writes: g.samples}, func() error {
				return g.compare(ctx, b, d.time, d.damage)
			})
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// compare fills one row.
func (g *repair) compare(ctx context.Context, b *bench, r *row, d damage) error {
	w, err := b.watch(ctx, mirrorSelector)
	if err != nil {
		return err
	}
	defer w.stop()
	plain, err := b.watch(ctx, plainSelector)
	if err != nil {
		return err
	}
	defer plain.stop()
	for _, namespace := range b.pool.names(g.samples) {
		limit, err := g.update(ctx, b, plain, namespace)
		if err != nil {
			return err
		}
		time.Sleep(breath)
		ours, err := b.repair(ctx, w, d, namespace, sourceNames(1)[0])
		if err != nil {
			return err
		}
		time.Sleep(breath)
		r.addTimes(ours, limit)
	}
	return nil
}

// update is a sample of the limit.
func (g *repair) update(ctx context.Context, b *bench, w *watcher, namespace string) (time.Duration, error) {
	maps := b.admin.CoreV1().ConfigMaps(namespace)
	o := order{Payload: g.payload, Version: "1"}
	cm := o.copyAt(objectName(namespace, "reference"))
	cm, err := maps.Create(ctx, cm, metav1.CreateOptions{})
	if err != nil {
		return 0, err
	}
	time.Sleep(breath)
	var answered time.Time
	start := time.Now()
	shown, err := w.timed(ctx, 1, in(namespace, holds("", "2")), func() (err error) {
		cm.Data = payload("2", g.payload)
		_, err = maps.Update(ctx, cm, metav1.UpdateOptions{})
		answered = time.Now()
		return err
	})
	if err != nil {
		return 0, err
	}
	return max(shown, answered.Sub(start)), maps.Delete(ctx, cm.Name, metav1.DeleteOptions{})
}

// damage is something that is done to a copy, and how it shows.
type damage struct {
	do    func(context.Context, *bench, string, string) error
	shows func(name string) matcher
}

var (
	edit = damage{
		do: func(ctx context.Context, b *bench, namespace, name string) error {
			patch := []byte(`{"data":{"` + dataKey + `":"damaged"}}`)
			_, err := b.admin.CoreV1().ConfigMaps(namespace).Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{})
			return err
		},
		shows: func(name string) matcher { return holds(name, "damaged") },
	}
	remove = damage{
		do: func(ctx context.Context, b *bench, namespace, name string) error {
			return b.admin.CoreV1().ConfigMaps(namespace).Delete(ctx, name, metav1.DeleteOptions{})
		},
		shows: gone,
	}
)

// repair damages a copy and returns how long the damage was to be seen.
func (b *bench) repair(ctx context.Context, w *watcher, d damage, namespace, name string) (time.Duration, error) {
	damaged := w.expect(1, in(namespace, d.shows(name)))
	repaired := w.expect(1, in(namespace, holds(name, "1")))
	if err := d.do(ctx, b, namespace, name); err != nil {
		return 0, err
	}
	from, err := damaged.wait(ctx)
	if err != nil {
		return 0, err
	}
	to, err := repaired.wait(ctx)
	return to.Sub(from), err
}
