package contract

import (
	"errors"
	"maps"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/mirror-controller/mirror-controller/e2e/cluster"
	"github.com/mirror-controller/mirror-controller/e2e/suite"
	"github.com/mirror-controller/mirror-controller/mirror"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// Objects with finalizers: cases C16, C24 and C49.

// TestC16SourceBeingDeleted has a finalizer keep a deleted source: it counts as gone, also for a controller that
// starts then, and a namesake takes over its copies in place.
func TestC16SourceBeingDeleted(t *testing.T) {
	t.Parallel()
	w := suite.New(t, "a", "b")
	a, b := w.NS("a"), w.NS("b")
	const finalizer = "example.com/hold"
	held := func(cm *corev1.ConfigMap) { cm.Finalizers = []string{finalizer} }
	free := func(cm *corev1.ConfigMap) { cm.Finalizers = nil }
	namesake := w.CreateSource(a, "contested")
	p := w.Start()
	w.WaitInSync(w.CreateSource(w.Home, "alone", held), a, b)
	w.WaitInSync(w.CreateSource(w.Home, "contested", held), b)
	w.WaitEvent(a, "contested", "Superseded")
	copies := w.Copies("contested", b)

	w.Delete(w.Home, "alone")
	w.Delete(w.Home, "contested")
	w.WaitInSync(namesake, b)
	w.SameObjects(copies)
	w.WaitGone("alone", a, b)
	w.Edit(w.Home, "alone", suite.WithData(map[string]string{"key": "two"}))
	w.Edit(w.Home, "contested", suite.WithData(map[string]string{"key": "two"}))
	copies = w.Copies("contested", b)
	w.Settle(a, b)
	w.Stop(p)
	w.Start()
	w.Settle(a, b)
	w.Absent("alone", a, b)
	w.AllUntouched(append(copies, namesake))

	w.Edit(w.Home, "alone", free)
	w.Edit(w.Home, "contested", free)
	source := w.CreateSource(w.Home, "alone")
	w.WaitInSync(source, a, b)
	w.WaitInSync(w.CreateSource(w.Home, "contested"), b)
	w.SameObjects(copies)
}

// TestC24CopyWithFinalizer has a foreign finalizer keep copies that are to be deleted, by a user, with their source,
// and to be made again: nothing spins while it does, and the copy is made again once it is gone, if it is wanted.
func TestC24CopyWithFinalizer(t *testing.T) {
	t.Parallel()
	w := suite.New(t, "a", "b")
	a, b := w.NS("a"), w.NS("b")
	held := func(cm *corev1.ConfigMap) { cm.Finalizers = []string{"example.com/hold"} }
	free := func(cm *corev1.ConfigMap) { cm.Finalizers = nil }
	w.Start("--resync-period=100ms")
	source := w.CreateSource(w.Home, "settings")
	fixed := w.CreateSource(w.Home, "fixed", suite.SetImmutable)
	w.WaitInSync(source, a, b)
	w.WaitInSync(fixed, a, b)

	// The finalizer alone is other people's metadata.
	w.Edit(a, "settings", held)
	source = w.Edit(w.Home, "settings", suite.WithData(map[string]string{"key": "two"}))
	w.WaitInSync(source, b)
	w.Eventually("the held copy follows", func() error {
		if !maps.Equal(w.Shown(a, "settings").Data, source.Data) {
			return errors.New("it does not")
		}
		return nil
	})

	// Deleted by a user.
	w.Passes(1, b) // so that the audit log has what was done before
	w.Delete(a, "settings")
	mark := w.AuditMark()
	deleting := w.Live(a, "settings")
	source = w.Edit(w.Home, "settings", suite.WithData(map[string]string{"key": "three"}))
	w.WaitInSync(source, b)
	w.Passes(3, b)
	w.Untouched(deleting)
	if requests := suite.RequestsFor(w.RequestsSince(mark), a, "settings"); len(requests) > 0 {
		t.Errorf("requests for a copy that is being deleted: %v", requests)
	}
	w.Edit(a, "settings", free)
	w.WaitInSync(source, a)

	// Deleted with its source, and to be made again as it is immutable.
	w.Passes(1, b)
	w.Edit(a, "settings", held)
	w.Edit(a, "fixed", held)
	w.Edit(w.Home, "settings", suite.WithoutLabel(w.Label))
	w.Delete(w.Home, "fixed")
	fixed = w.CreateSource(w.Home, "fixed", suite.SetImmutable, suite.WithData(map[string]string{"key": "two"}))
	w.WaitGone("settings", b)
	w.WaitInSync(fixed, b)
	w.Eventually("both are being deleted", func() error {
		if w.Shown(a, "settings").DeletionTimestamp == nil || w.Shown(a, "fixed").DeletionTimestamp == nil {
			return errors.New("not yet")
		}
		return nil
	})
	w.Passes(2, b) // its own watch shows it
	mark = w.AuditMark()
	w.Passes(2, b)
	for _, name := range []string{"settings", "fixed"} {
		if requests := suite.RequestsFor(w.RequestsSince(mark), a, name); len(requests) > 0 {
			t.Errorf("requests for a copy that is being deleted: %v", requests)
		}
	}
	w.Edit(a, "settings", free)
	w.Edit(a, "fixed", free)
	w.WaitInSync(fixed, a)
	w.Passes(1, b)
	w.Absent("settings", a)
}

// TestC24UnlabelledOnItsWayOut lets a copy lose its label while it is being deleted and held by a finalizer, so
// that no watch shows its end: it is made again all the same.
func TestC24UnlabelledOnItsWayOut(t *testing.T) {
	t.Parallel()
	w := suite.New(t, "a", "b")
	a := w.NS("a")
	p := w.Start("--resync-period=0")
	source := w.CreateSource(w.Home, "settings")
	w.WaitInSync(source, a)
	const finalizer = "example.com/hold"
	w.Pause(p)
	w.Edit(a, "settings", suite.WithoutLabel(w.Label), func(cm *corev1.ConfigMap) { cm.Finalizers = []string{finalizer} })
	w.Delete(a, "settings")
	w.Resume(p)
	w.WaitRequests("it is read live", 1, func(e cluster.Event) bool {
		return e.Verb == "get" && e.Object.Namespace == a && e.Object.Name == "settings"
	})
	w.Settle(w.NS("b"))
	w.Edit(a, "settings", func(cm *corev1.ConfigMap) { cm.Finalizers = nil })
	w.WaitInSync(source, a)
}

// TestC49AdoptedWithFinalizers hands over objects with finalizers: they are not adopted, but reported, because a copy with
// somebody's finalizer could be held while it is deleted. Without the finalizers they are adopted.
func TestC49AdoptedWithFinalizers(t *testing.T) {
	t.Parallel()
	w := suite.New(t, "labelled", "unlabelled", "immutable", "free")
	all := []string{w.NS("labelled"), w.NS("unlabelled"), w.NS("immutable")}
	free := w.NS("free")
	options := []suite.Option{suite.WithAnnotation(plan.AdoptAnnotation, plan.AdoptValue), func(cm *corev1.ConfigMap) {
		cm.Finalizers = []string{"example.com/hold"}
	}}
	labelled := append(slices.Clone(options), suite.WithLabel(w.Label, plan.CopyValue))
	held := []*corev1.ConfigMap{
		w.Create(all[0], "settings", labelled...),
		w.Create(all[1], "settings", options...),
		w.Create(all[2], "settings", append(labelled, suite.SetImmutable)...),
	}
	w.Start("--resync-period=200ms")
	source := w.CreateSource(w.Home, "settings")
	w.WaitInSync(source, free)
	w.Eventually("all are reported", w.Noted("settings", mirror.ReasonForeign, append(all, "finalizers")...))
	w.Passes(2, free)
	w.AllUntouched(held)
	for _, e := range suite.WritesTo(w.Requests(), "settings") {
		if e.Object.Namespace != free && e.Verb != "create" {
			t.Errorf("it was tried: %v", e)
		}
	}
	for _, namespace := range all {
		w.Edit(namespace, "settings", func(cm *corev1.ConfigMap) { cm.Finalizers = nil })
	}
	w.WaitInSync(source, all...)
	w.SameObjects(held[:2]) // an immutable one is created anew
}
