package contract

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/mirror-controller/mirror-controller/e2e/suite"
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
