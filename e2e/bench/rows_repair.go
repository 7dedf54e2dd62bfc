package main

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
)

// newRepair is from the outside watch showing a damage to a copy to its showing the repair. The limit is one update, from
// just before it until it has been answered and shown by a watch; it takes turns with the damages. Each sample has a
// copy of its own: a copy that is damaged again and again is restored ever more slowly.
func newRepair() group {
	edited := &row{figure: "repair, edited", unit: asTime, bar: 2}
	deleted := &row{figure: "repair, deleted", unit: asTime, bar: 2}
	return group{[]*row{edited, deleted}, func(b *bench) {
		all := scene{1, samples, payload}
		b.fill(all)
		for damage, r := range map[string]*row{opUpdate: edited, opDelete: deleted} {
			b.with([]string{all.prefix()}, func(*controller) { b.compareRepairs(r, damage, all.names()) })
		}
	}}
}

// compareRepairs fills one row.
func (b *bench) compareRepairs(r *row, damage string, namespaces []string) {
	w, plain := b.watch(mirrorSelector), b.watch(plainSelector)
	defer w.stop()
	defer plain.stop()
	for _, namespace := range namespaces {
		limit := b.plainUpdate(plain, namespace)
		b.sleep(breath)
		ours := b.repair(w, damage, namespace, sourceNames(1)[0])
		b.sleep(breath)
		r.addTimes(ours, limit)
	}
}

// plainUpdate is a sample of the limit.
func (b *bench) plainUpdate(w *watcher, namespace string) time.Duration {
	maps := b.maps(namespace)
	cm := order{Version: "1"}.copyAt(cache.ObjectName{Namespace: namespace, Name: "reference"})
	cm = get(maps.Create(b.ctx, cm, metav1.CreateOptions{}))
	b.sleep(breath)
	var answered time.Time
	start := time.Now()
	shown := w.timed(1, in(namespace, holds("", "2")), func() {
		cm.Data = data("2", payload)
		get(maps.Update(b.ctx, cm, metav1.UpdateOptions{}))
		answered = time.Now()
	})
	check(maps.Delete(b.ctx, cm.Name, metav1.DeleteOptions{}))
	return max(shown, answered.Sub(start))
}

// repair damages a copy of version 1, by an update or a deletion, and returns how long the damage was to be seen.
func (b *bench) repair(w *watcher, damage, namespace, name string) time.Duration {
	shows, do := holds(name, "damaged"), func() {
		patch := []byte(`{"data":{"` + dataKey + `":"damaged"}}`)
		get(b.maps(namespace).Patch(b.ctx, name, types.MergePatchType, patch, metav1.PatchOptions{}))
	}
	if damage == opDelete {
		shows, do = gone(name), func() { check(b.maps(namespace).Delete(b.ctx, name, metav1.DeleteOptions{})) }
	}
	damaged := w.expect(1, in(namespace, shows))
	repaired := w.expect(1, in(namespace, holds(name, "1")))
	do()
	from := damaged.wait()
	return repaired.wait().Sub(from)
}
