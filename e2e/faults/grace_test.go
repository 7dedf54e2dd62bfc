package faults

import (
	"strings"
	"testing"
	"time"

	"github.com/mirror-controller/mirror-controller/e2e/faultproxy"
	"github.com/mirror-controller/mirror-controller/e2e/shipped"
	"github.com/mirror-controller/mirror-controller/e2e/suite"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// shortGrace is a grace that ends in a test.
const shortGrace = 3 * time.Second

// TestC52Restarted kills the controller while copies expire: the next process gives them a whole grace. That of the first is an
// hour, so that a slow machine does not miss the middle.
func TestC52Restarted(t *testing.T) {
	t.Parallel()
	w := suite.New(t, "a", "b")
	p := w.Start(suite.Graced(time.Hour)...)
	loseAll(w, p)
	p.Kill()
	began := time.Now()
	w.Start(suite.Graced(shortGrace)...)
	expectGrace(w, began)
}

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

// TestC53SlowReads delays each read of sources, of namespaces or of both by six seconds, which is longer than an answer serves: a
// source that is deleted and a namespace that opts out lose their copies all the same.
func TestC53SlowReads(t *testing.T) {
	t.Parallel()
	for _, slow := range [][]string{{"configmaps"}, {"namespaces"}, watched} {
		t.Run(strings.Join(slow, " and "), func(t *testing.T) {
			t.Parallel()
			w := suite.NewProxied(t, suite.New(t, "a", "b"))
			a, b := w.NS("a"), w.NS("b")
			w.StartProxied(nil)
			kept := w.CreateSource(w.Home, "kept")
			w.WaitInSync(w.CreateSource(w.Home, "gone"), a, b)
			w.WaitInSync(kept, a, b)
			reads := w.Proxy.Inject(faultproxy.Rule{
				Verbs: []string{"get"}, Resources: slow, Fault: faultproxy.Fault{Kind: faultproxy.Delay, For: 6 * time.Second},
			})
			w.Delete(w.Home, "gone")
			w.OptOut(plan.OptOutValue, "a")
			w.WaitGone("gone", a, b)
			w.WaitGone("kept", a)
			w.WaitInSync(kept, b)
			if reads.Fired() == 0 {
				t.Error("no read was slow")
			}
		})
	}
}
