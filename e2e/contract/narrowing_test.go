package contract

import (
	"testing"

	"github.com/mirror-controller/mirror-controller/e2e/suite"
)

// Namespaces that opt out, and sources that narrow their targets: case C31.

// TestC31OptOut sets the label by which a namespace declines all copies, before it is filled, after, and while no
// controller runs, and takes it away again.
func TestC31OptOut(t *testing.T) {
	t.Parallel()
	w := suite.New(t, "a", "b")
	a, b := w.NS("a"), w.NS("b")
	declined := w.CreateNamespace(w.NS("declined"), map[string]string{w.Label: "false"}).Name
	p := w.Start()
	source := w.CreateSource(w.Home, "settings")
	w.WaitInSync(source, a, b)
	mine := w.Create(a, "mine")
	copies := w.Copies("settings", b)
	w.Settle(a, b)
	w.Absent("settings", declined)

	w.LabelNamespace(a, w.Label, "false")
	w.WaitGone("settings", a)
	w.CreateSource(w.Home, "mine")
	w.WaitInSync(w.CreateSource(w.Home, "second"), b)
	w.Edit(w.Home, "mine", suite.WithoutLabel(w.Label))
	w.Settle(b)
	w.Absent("second", a, declined)
	w.Untouched(mine)
	w.LabelNamespace(declined, w.Label, "")
	w.LabelNamespace(a, w.Label, "true") // says nothing about a namespace
	w.WaitInSync(source, a, declined)

	w.Stop(p)
	w.LabelNamespace(a, w.Label, "false")
	p = w.Start()
	w.WaitGone("settings", a)
	w.Settle(b)
	w.Stop(p)
	w.LabelNamespace(a, w.Label, "")
	w.Start()
	w.WaitInSync(source, a)
	w.AllUntouched(append(copies, mine))
}
