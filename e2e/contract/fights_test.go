package contract

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/mirror-controller/mirror-controller/e2e/cluster"
	"github.com/mirror-controller/mirror-controller/e2e/suite"
	"github.com/mirror-controller/mirror-controller/mirror"
)

// Copies that another client keeps changing: case C36.

// atOnce is how often the controller restores a copy before it waits.
const atOnce = 10

// acceptedWrites returns the writes of the world's controllers to a ConfigMap that took effect. One that another client's edit
// overtook is refused, and sent again.
func acceptedWrites(w *suite.World, namespace, name string) []cluster.Event {
	w.Helper()
	return slices.DeleteFunc(suite.WritesTo(w.Requests(), name), func(e cluster.Event) bool {
		return e.Object.Namespace != namespace || e.Response.Code >= 300
	})
}

// TestC36Fight changes a copy back each time it was restored: that is reported, counted, and slows down, at that target alone,
// and when the other side stops it is restored. Other content is a new beginning.
func TestC36Fight(t *testing.T) {
	t.Parallel()
	w := suite.New(t, "a", "b")
	a, b := w.NS("a"), w.NS("b")
	p := w.Start("--metrics-bind-address=127.0.0.1:0")
	began := time.Now()
	source := w.CreateSource(w.Home, "settings")
	w.WaitInSync(source, a, b)
	w.WaitMetrics("no fight", p, map[string]float64{`mirror_fights`: 0, `mirror_copies{state="synced"}`: 2})
	spoil := func(i int) {
		w.Edit(a, "settings", suite.WithData(map[string]string{"key": fmt.Sprintf("spoilt-%d", i)}))
	}
	for i := 0; w.Reasons(w.Home, "settings")["Fight"] == 0; i++ {
		if i == 40 {
			t.Fatal("restored 40 times and no event about a fight")
		}
		spoil(i)
		w.Eventually("it is restored, or a fight is reported", func() error {
			if w.Reasons(w.Home, "settings")["Fight"] > 0 {
				return nil
			}
			return w.InSync(source, a)
		})
	}
	w.WaitMetrics("a fight", p, map[string]float64{`mirror_fights`: 1, `mirror_copies{state="synced"}`: 1})
	for i := range 10 {
		spoil(100 + i)
		w.Settle(b) // others are served as ever
	}
	w.ExpectPaced(began, 1+atOnce, 1, acceptedWrites(w, a, "settings"))
	w.WaitInSync(source, a, b)
	source = w.Edit(w.Home, "settings", suite.WithData(map[string]string{"key": "two"}))
	w.WaitInSync(source, a, b)
	w.WaitMetrics("the fight is over", p, map[string]float64{`mirror_fights`: 0, `mirror_copies{state="synced"}`: 2})
}

// TestC36Webhook has a webhook alter what is written, so that the copy is as it was after each repair, of which no watch
// tells: that is reported as well, no hot loop, and restored when the webhook goes.
func TestC36Webhook(t *testing.T) {
	t.Parallel()
	w := suite.New(t, "a", "b")
	a, b := w.NS("a"), w.NS("b")
	h := w.StartAltering(a, `[{"op": "add", "path": "/data/injected", "value": "theirs"}]`)
	w.Start()
	began := time.Now()
	source := w.CreateSource(w.Home, "settings")
	w.WaitInSync(source, b)
	w.WaitEvent(w.Home, "settings", mirror.ReasonFight)
	for range 5 {
		w.Settle(b)
	}
	w.ExpectPaced(began, 1+atOnce, 1, acceptedWrites(w, a, "settings"))
	if w.InSync(source, a) == nil {
		t.Error("nothing was altered")
	}
	h.Allow()
	w.WaitInSync(source, a, b)
}
