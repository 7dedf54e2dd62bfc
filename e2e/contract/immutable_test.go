package contract

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/mirror-controller/mirror-controller/e2e/suite"
)

// Immutable sources and copies: cases C22 and C23.

// TestC22ImmutableSource has an immutable source, replaces it by the same and by other data, immutable and not: the
// copies are immutable as it is, follow, and are left alone where nothing differs.
func TestC22ImmutableSource(t *testing.T) {
	t.Parallel()
	w := suite.New(t, "a", "b")
	a, b := w.NS("a"), w.NS("b")
	p := w.Start()
	replace := func(options ...suite.Option) *corev1.ConfigMap { return w.ReplaceAtOnce(p, "settings", options...) }
	w.WaitInSync(w.CreateSource(w.Home, "settings", suite.SetImmutable), a, b)
	copies := w.Copies("settings", a, b)
	replace(suite.SetImmutable)
	w.Settle(a, b)
	w.AllUntouched(copies)
	two := suite.WithData(map[string]string{"key": "two"})
	w.WaitInSync(replace(suite.SetImmutable, two), a, b)
	w.WaitInSync(replace(two), a, b)
	copies = w.Copies("settings", a, b)
	w.WaitInSync(w.Edit(w.Home, "settings", suite.SetImmutable), a, b)
	w.SameObjects(copies) // nothing forbids to make them immutable where they are
	w.WaitInSync(replace(suite.SetImmutable, suite.WithData(nil), suite.WithBinaryData(map[string][]byte{"key": {2}})), a, b)
	w.Delete(w.Home, "settings")
	w.WaitGone("settings", a, b)
}

// TestC27RecreatedWithoutOthersLabels replaces an immutable source by one with other data. The copy has to be re-created, and
// has no labels and annotations of others then: the admission policy lets the controller add none.
func TestC27RecreatedWithoutOthersLabels(t *testing.T) {
	t.Parallel()
	w := suite.New(t, "a")
	a := w.NS("a")
	p := w.Start()
	w.WaitInSync(w.CreateSource(w.Home, "settings", suite.SetImmutable), a)
	w.Edit(a, "settings", suite.WithLabel("team", "red"), suite.WithAnnotation("note", "ours"))
	w.WaitInSync(w.ReplaceAtOnce(p, "settings", suite.SetImmutable, suite.WithData(map[string]string{"key": "other"})), a)
	if cm := w.Live(a, "settings"); cm.Labels["team"] != "" || cm.Annotations["note"] != "" {
		t.Errorf("got labels %v, annotations %v of others on a new object", cm.Labels, cm.Annotations)
	}
}
