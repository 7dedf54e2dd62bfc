package contract

import (
	"testing"

	"github.com/mirror-controller/mirror-controller/e2e/suite"
	"github.com/mirror-controller/mirror-controller/mirror"
)

// TestC08UnlabelledUnderFullQuota strips the label of a copy in a namespace whose quota is used up, by the copy
// among others. The API server refuses the create there before it says that an object exists; it is restored all
// the same, and a foreign object is reported as foreign.
func TestC08UnlabelledUnderFullQuota(t *testing.T) {
	t.Parallel()
	w := suite.New(t, "ours", "foreign")
	ours, foreign := w.NS("ours"), w.NS("foreign")
	mine := w.Create(foreign, "settings")
	w.FillQuota(foreign, 2)
	w.Start()
	source := w.CreateSource(w.Home, "settings")
	w.WaitInSync(source, ours)
	before := w.Live(ours, "settings")
	w.FillQuota(ours, 2)
	w.Edit(ours, "settings", suite.WithoutLabel(w.Label))
	w.WaitInSync(source, ours)
	if after := w.Live(ours, "settings"); after.UID != before.UID {
		t.Error("the copy was made anew")
	}
	w.WaitEvent(w.Home, "settings", mirror.ReasonForeign)
	w.Untouched(mine)
}
