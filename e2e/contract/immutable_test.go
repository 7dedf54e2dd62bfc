package contract

import (
	"testing"

	"github.com/mirror-controller/mirror-controller/e2e/suite"
)

// TestC22ImmutableSource replaces an immutable source by one with other data. The copy has to be re-created, and
// has no labels and annotations of others then: the admission policy lets the controller add none.
func TestC22ImmutableSource(t *testing.T) {
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
