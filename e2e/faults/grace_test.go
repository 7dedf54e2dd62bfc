package faults

import (
	"testing"
	"time"

	"github.com/mirror-controller/mirror-controller/e2e/shipped"
	"github.com/mirror-controller/mirror-controller/e2e/suite"
)

// shortGrace is a grace that ends in a test.
const shortGrace = 3 * time.Second

// TestC52HandedOver has a standby with full caches take over while copies expire: it gives them a whole grace from then on.
func TestC52HandedOver(t *testing.T) {
	t.Parallel()
	w := suite.New(t, "a", "b")
	first, second := pair(w, suite.Graced(time.Hour), suite.Graced(shortGrace))
	loseAll(w, first.Process)
	w.Stop(first.Process)
	w.WaitWrites("settings", 4)
	expectGrace(w, records(w, second)[0].lease[0].Received)
}

// loseAll creates a source and deletes it when it has copies in a and b, and waits until they expire.
func loseAll(w *suite.World, p *shipped.Process) {
	w.Helper()
	w.WaitInSync(w.CreateSource(w.Home, "settings"), w.NS("a"), w.NS("b"))
	w.Delete(w.Home, "settings")
	w.WaitMetrics("they expire", p, suite.Expiring(2))
}

// expectGrace waits until both copies are deleted, and fails the test if a delete came sooner than a short grace after this time.
func expectGrace(w *suite.World, began time.Time) {
	w.Helper()
	w.WaitGone("settings", w.NS("a"), w.NS("b"))
	w.ExpectWrites("settings", "create "+w.NS("a"), "create "+w.NS("b"), "delete "+w.NS("a"), "delete "+w.NS("b"))
	for _, e := range suite.WritesTo(w.Requests(), "settings") {
		if due := began.Add(shortGrace); e.Verb == "delete" && e.Received.Before(due) {
			w.Errorf("a delete came %v too early: %v", due.Sub(e.Received), e)
		}
	}
}
