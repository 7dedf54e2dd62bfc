package contract

import (
	"strings"
	"testing"

	"github.com/mirror-controller/mirror-controller/e2e/suite"
)

// TestC03PlatformBeforeTenant has a tenant publish a name before the platform does: the platform takes every
// target, in place, and keeps it over a restart; the tenant gets an event, and has the copies again when the platform's
// source goes.
func TestC03PlatformBeforeTenant(t *testing.T) {
	t.Parallel()
	w := suite.New(t, "a", "b", "c")
	a, b, c := w.NS("a"), w.NS("b"), w.NS("c")
	p := w.Start()
	tenants := w.CreateSource(a, "settings")
	w.WaitInSync(tenants, b, c)
	copies := w.Copies("settings", b, c)
	w.WaitYounger(tenants)
	platforms := w.CreateSource(w.Home, "settings")
	w.WaitInSync(platforms, b, c)
	w.SameObjects(copies)
	if note := w.WaitEvent(a, "settings", "Superseded"); !strings.Contains(note, w.Home+"/settings") {
		t.Errorf("the event does not name the winner: %s", note)
	}
	copies = w.Copies("settings", b, c)
	w.Stop(p)
	w.Start()
	w.Settle(a, b, c)
	w.AllUntouched(append(copies, tenants))
	w.Delete(w.Home, "settings")
	w.WaitInSync(tenants, b, c)
	w.SameObjects(copies)
}
