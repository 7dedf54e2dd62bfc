package e2e

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// Immutable sources and copies: cases C22 and C23.

// TestC22ImmutableSource has an immutable source, replaces it by the same and by other data, immutable and not: the
// copies are immutable as it is, follow, and are left alone where nothing differs.
func TestC22ImmutableSource(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "a", "b")
	a, b := w.ns("a"), w.ns("b")
	p := w.start()
	replace := func(options ...option) *corev1.ConfigMap { return w.replaceAtOnce(p, "settings", options...) }
	w.waitInSync(w.createSource(w.home, "settings", setImmutable), a, b)
	copies := w.copies("settings", a, b)
	replace(setImmutable)
	w.settle(a, b)
	w.allUntouched(copies)
	two := withData(map[string]string{"key": "two"})
	w.waitInSync(replace(setImmutable, two), a, b)
	w.waitInSync(replace(two), a, b)
	copies = w.copies("settings", a, b)
	w.waitInSync(w.edit(w.home, "settings", setImmutable), a, b)
	w.sameObjects(copies) // nothing forbids to make them immutable where they are
	w.waitInSync(replace(setImmutable, withData(nil), withBinaryData(map[string][]byte{"key": {2}})), a, b)
	w.delete(w.home, "settings")
	w.waitGone("settings", a, b)
}

// TestC23CopyMadeImmutable has a user make copies immutable, with the data as they were or changed, and put other data
// into the place of an immutable one: restored.
func TestC23CopyMadeImmutable(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "a", "b")
	a, b := w.ns("a"), w.ns("b")
	p := w.start()
	source := w.createSource(w.home, "settings")
	fixed := w.createSource(w.home, "fixed", setImmutable)
	w.waitInSync(source, a, b)
	w.waitInSync(fixed, a, b)
	other := withData(map[string]string{"key": "other"})
	spoil := func() {
		w.edit(a, "settings", setImmutable)
		w.edit(b, "settings", setImmutable, other)
	}
	spoil()
	w.waitInSync(source, a, b)
	source = w.edit(w.home, "settings", withData(map[string]string{"key": "two"}))
	w.waitInSync(source, a, b)
	for _, namespace := range []string{a, b} {
		backup := w.live(namespace, "fixed")
		backup.Data = map[string]string{"key": "other"}
		w.replaceBy(backup)
	}
	w.waitInSync(fixed, a, b)
	w.stop(p)
	spoil()
	w.start()
	w.waitInSync(source, a, b)
}

// TestC27RecreatedWithoutOthersLabels replaces an immutable source by one with other data. The copy has to be re-created, and
// has no labels and annotations of others then: the admission policy lets the controller add none.
func TestC27RecreatedWithoutOthersLabels(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "a")
	a := w.ns("a")
	p := w.start()
	w.waitInSync(w.createSource(w.home, "settings", setImmutable), a)
	w.edit(a, "settings", withLabel("team", "red"), withAnnotation("note", "ours"))
	w.waitInSync(w.replaceAtOnce(p, "settings", setImmutable, withData(map[string]string{"key": "other"})), a)
	if cm := w.live(a, "settings"); cm.Labels["team"] != "" || cm.Annotations["note"] != "" {
		t.Errorf("got labels %v, annotations %v of others on a new object", cm.Labels, cm.Annotations)
	}
}
