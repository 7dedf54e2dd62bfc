package contract

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/mirror-controller/mirror-controller/e2e/suite"
)

// Sources of one name: cases C03 and C04.

// TestC03PlatformBeforeTenant has a tenant publish a name before the platform does: the platform takes every
// target, in place, and keeps it over restarts; the tenant gets an event.
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
	for range 3 {
		w.Stop(p)
		p = w.Start()
		w.Settle(a, b, c)
	}
	w.AllUntouched(append(copies, tenants))
}

// TestC03TakeOverInPlace deletes and unlabels the winner again and again: each time the other source takes over
// the copies, and gives them back, without a delete.
func TestC03TakeOverInPlace(t *testing.T) {
	t.Parallel()
	w := suite.New(t, "a", "b", "c")
	a, b, c := w.NS("a"), w.NS("b"), w.NS("c")
	loser := w.CreateSource(a, "settings")
	w.Start()
	winner := w.CreateSource(w.Home, "settings")
	w.WaitInSync(winner, b, c)
	w.WaitEvent(a, "settings", "Superseded")
	copies := w.Copies("settings", b, c)
	for i := range 10 {
		if i%2 == 0 {
			w.Delete(w.Home, "settings")
		} else {
			w.Edit(w.Home, "settings", suite.WithoutLabel(w.Label))
		}
		w.WaitInSync(loser, b, c)
		w.SameObjects(copies)
		if i%2 == 0 {
			winner = w.CreateSource(w.Home, "settings")
		} else {
			winner = w.Edit(w.Home, "settings", suite.WithLabel(w.Label, "true"))
		}
		w.WaitInSync(winner, b, c)
		w.SameObjects(copies)
		if t.Failed() {
			t.Fatalf("in round %d", i)
		}
	}
	w.Untouched(loser)
	for _, e := range suite.WritesTo(w.Requests(), "settings") {
		if e.Verb == "delete" {
			t.Errorf("the controller deleted: %v", e)
		}
	}
}

// TestC04SourcesInTargets has two sources of one name in namespaces that both match: neither is overwritten, and
// the other follows where the first was when it goes.
func TestC04SourcesInTargets(t *testing.T) {
	t.Parallel()
	w := suite.New(t, "a", "b", "c")
	a, b, c := w.NS("a"), w.NS("b"), w.NS("c")
	second := w.CreateSource(b, "settings")
	w.WaitYounger(second)
	third := w.CreateSource(a, "settings")
	w.Start("--resync-period=200ms")
	w.WaitInSync(second, c)
	w.WaitEvent(a, "settings", "Superseded")
	w.Passes(2, c)
	w.AllUntouched([]*corev1.ConfigMap{second, third})
	third = w.Edit(a, "settings", suite.WithData(map[string]string{"key": "two"}))
	second = w.Edit(b, "settings", suite.WithData(map[string]string{"key": "three"}))
	w.WaitInSync(second, c)
	w.Passes(2, c)
	w.AllUntouched([]*corev1.ConfigMap{second, third})

	copies := w.Copies("settings", c)
	w.Delete(b, "settings")
	w.WaitInSync(third, b, c)
	w.Passes(1, c)
	w.Untouched(third)
	w.SameObjects(copies)
}
