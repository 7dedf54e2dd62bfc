package e2e

import (
	"errors"
	"maps"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/mirror-controller/mirror-controller/e2e/cluster"
	"github.com/mirror-controller/mirror-controller/mirror"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// Objects with finalizers: cases C16, C24 and C49.

// TestC16SourceBeingDeleted has a finalizer keep a deleted source: it counts as gone, also for a controller that
// starts then, and a namesake takes over its copies in place.
func TestC16SourceBeingDeleted(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "a", "b")
	a, b := w.ns("a"), w.ns("b")
	const finalizer = "example.com/hold"
	held := func(cm *corev1.ConfigMap) { cm.Finalizers = []string{finalizer} }
	free := func(cm *corev1.ConfigMap) { cm.Finalizers = nil }
	namesake := w.createSource(a, "contested")
	p := w.start()
	w.waitInSync(w.createSource(w.home, "alone", held), a, b)
	w.waitInSync(w.createSource(w.home, "contested", held), b)
	w.waitEvent(a, "contested", "Superseded")
	copies := w.copies("contested", b)

	w.delete(w.home, "alone")
	w.delete(w.home, "contested")
	w.waitInSync(namesake, b)
	w.sameObjects(copies)
	w.waitGone("alone", a, b)
	w.edit(w.home, "alone", withData(map[string]string{"key": "two"}))
	w.edit(w.home, "contested", withData(map[string]string{"key": "two"}))
	copies = w.copies("contested", b)
	w.settle(a, b)
	w.stop(p)
	w.start()
	w.settle(a, b)
	w.absent("alone", a, b)
	w.allUntouched(append(copies, namesake))

	w.edit(w.home, "alone", free)
	w.edit(w.home, "contested", free)
	source := w.createSource(w.home, "alone")
	w.waitInSync(source, a, b)
	w.waitInSync(w.createSource(w.home, "contested"), b)
	w.sameObjects(copies)
}

// TestC24CopyWithFinalizer has a foreign finalizer keep copies that are to be deleted, by a user, with their source,
// and to be made again: nothing spins while it does, and the copy is made again once it is gone, if it is wanted.
func TestC24CopyWithFinalizer(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "a", "b")
	a, b := w.ns("a"), w.ns("b")
	held := func(cm *corev1.ConfigMap) { cm.Finalizers = []string{"example.com/hold"} }
	free := func(cm *corev1.ConfigMap) { cm.Finalizers = nil }
	w.start("--resync-period=100ms")
	source := w.createSource(w.home, "settings")
	fixed := w.createSource(w.home, "fixed", setImmutable)
	w.waitInSync(source, a, b)
	w.waitInSync(fixed, a, b)

	// The finalizer alone is other people's metadata.
	w.edit(a, "settings", held)
	source = w.edit(w.home, "settings", withData(map[string]string{"key": "two"}))
	w.waitInSync(source, b)
	w.eventually("the held copy follows", func() error {
		if !maps.Equal(w.shown(a, "settings").Data, source.Data) {
			return errors.New("it does not")
		}
		return nil
	})

	// Deleted by a user.
	w.passes(1, b) // so that the audit log has what was done before
	w.delete(a, "settings")
	mark := w.auditMark()
	deleting := w.live(a, "settings")
	source = w.edit(w.home, "settings", withData(map[string]string{"key": "three"}))
	w.waitInSync(source, b)
	w.passes(3, b)
	w.untouched(deleting)
	if requests := requestsFor(w.requestsSince(mark), a, "settings"); len(requests) > 0 {
		t.Errorf("requests for a copy that is being deleted: %v", requests)
	}
	w.edit(a, "settings", free)
	w.waitInSync(source, a)

	// Deleted with its source, and to be made again as it is immutable.
	w.passes(1, b)
	w.edit(a, "settings", held)
	w.edit(a, "fixed", held)
	w.edit(w.home, "settings", withoutLabel(w.label))
	w.delete(w.home, "fixed")
	fixed = w.createSource(w.home, "fixed", setImmutable, withData(map[string]string{"key": "two"}))
	w.waitGone("settings", b)
	w.waitInSync(fixed, b)
	w.eventually("both are being deleted", func() error {
		if w.shown(a, "settings").DeletionTimestamp == nil || w.shown(a, "fixed").DeletionTimestamp == nil {
			return errors.New("not yet")
		}
		return nil
	})
	w.passes(2, b) // its own watch shows it
	mark = w.auditMark()
	w.passes(2, b)
	for _, name := range []string{"settings", "fixed"} {
		if requests := requestsFor(w.requestsSince(mark), a, name); len(requests) > 0 {
			t.Errorf("requests for a copy that is being deleted: %v", requests)
		}
	}
	w.edit(a, "settings", free)
	w.edit(a, "fixed", free)
	w.waitInSync(fixed, a)
	w.passes(1, b)
	w.absent("settings", a)
}

// TestC24UnlabelledOnItsWayOut lets a copy lose its label while it is being deleted and held by a finalizer, so
// that no watch shows its end: it is made again all the same.
func TestC24UnlabelledOnItsWayOut(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "a", "b")
	a := w.ns("a")
	p := w.start("--resync-period=0")
	source := w.createSource(w.home, "settings")
	w.waitInSync(source, a)
	const finalizer = "example.com/hold"
	w.pause(p)
	w.edit(a, "settings", withoutLabel(w.label), func(cm *corev1.ConfigMap) { cm.Finalizers = []string{finalizer} })
	w.delete(a, "settings")
	w.resume(p)
	w.waitRequests("it is read live", 1, func(e cluster.Event) bool {
		return e.Verb == "get" && e.Object.Namespace == a && e.Object.Name == "settings"
	})
	w.settle(w.ns("b"))
	w.edit(a, "settings", func(cm *corev1.ConfigMap) { cm.Finalizers = nil })
	w.waitInSync(source, a)
}

// TestC49AdoptedWithFinalizers hands over objects with finalizers: they are not adopted, but reported, because a copy with
// somebody's finalizer could be held while it is deleted. Without the finalizers they are adopted.
func TestC49AdoptedWithFinalizers(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "labelled", "unlabelled", "immutable", "free")
	all := []string{w.ns("labelled"), w.ns("unlabelled"), w.ns("immutable")}
	free := w.ns("free")
	options := []option{withAnnotation(plan.AdoptAnnotation, plan.AdoptValue), func(cm *corev1.ConfigMap) {
		cm.Finalizers = []string{"example.com/hold"}
	}}
	labelled := append(slices.Clone(options), withLabel(w.label, plan.CopyValue))
	held := []*corev1.ConfigMap{
		w.create(all[0], "settings", labelled...),
		w.create(all[1], "settings", options...),
		w.create(all[2], "settings", append(labelled, setImmutable)...),
	}
	w.start("--resync-period=200ms")
	source := w.createSource(w.home, "settings")
	w.waitInSync(source, free)
	w.eventually("all are reported", w.noted("settings", mirror.ReasonForeign, append(all, "finalizers")...))
	w.passes(2, free)
	w.allUntouched(held)
	for _, e := range writesTo(w.requests(), "settings") {
		if e.Object.Namespace != free && e.Verb != "create" {
			t.Errorf("it was tried: %v", e)
		}
	}
	for _, namespace := range all {
		w.edit(namespace, "settings", func(cm *corev1.ConfigMap) { cm.Finalizers = nil })
	}
	w.waitInSync(source, all...)
	w.sameObjects(held[:2]) // an immutable one is created anew
}
