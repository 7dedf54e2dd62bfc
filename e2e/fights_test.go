package e2e

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/mirror-controller/mirror-controller/e2e/cluster"
	"github.com/mirror-controller/mirror-controller/mirror"
)

// Copies that another client keeps changing: case C36.

// atOnce is how often the controller restores a copy before it waits.
const atOnce = 10

// acceptedWrites returns the writes of the world's controllers to a ConfigMap that took effect. One that another client's edit
// overtook is refused, and sent again.
func (w *world) acceptedWrites(namespace, name string) []cluster.Event {
	w.Helper()
	return slices.DeleteFunc(writesTo(w.requests(), name), func(e cluster.Event) bool {
		return e.Object.Namespace != namespace || e.Response.Code >= 300
	})
}

// TestC36Fight changes a copy back each time it was restored: that is reported, counted, and slows down, at that target alone,
// and when the other side stops it is restored. Other content is a new beginning.
func TestC36Fight(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "a", "b")
	a, b := w.ns("a"), w.ns("b")
	p := w.start("--metrics-bind-address=127.0.0.1:0")
	began := time.Now()
	source := w.createSource(w.home, "settings")
	w.waitInSync(source, a, b)
	w.waitMetrics("no fight", p, map[string]float64{`mirror_fights`: 0, `mirror_copies{state="synced"}`: 2})
	spoil := func(i int) {
		w.edit(a, "settings", withData(map[string]string{"key": fmt.Sprintf("spoilt-%d", i)}))
	}
	for i := 0; w.reasons(w.home, "settings")["Fight"] == 0; i++ {
		if i == 40 {
			t.Fatal("restored 40 times and no event about a fight")
		}
		spoil(i)
		w.eventually("it is restored, or a fight is reported", func() error {
			if w.reasons(w.home, "settings")["Fight"] > 0 {
				return nil
			}
			return w.inSync(source, a)
		})
	}
	w.waitMetrics("a fight", p, map[string]float64{`mirror_fights`: 1, `mirror_copies{state="synced"}`: 1})
	for i := range 10 {
		spoil(100 + i)
		w.settle(b) // others are served as ever
	}
	w.expectPaced(began, 1+atOnce, 1, w.acceptedWrites(a, "settings"))
	w.waitInSync(source, a, b)
	source = w.edit(w.home, "settings", withData(map[string]string{"key": "two"}))
	w.waitInSync(source, a, b)
	w.waitMetrics("the fight is over", p, map[string]float64{`mirror_fights`: 0, `mirror_copies{state="synced"}`: 2})
}

// TestC36Webhook has a webhook alter what is written, so that the copy is as it was after each repair, of which no watch
// tells: that is reported as well, no hot loop, and restored when the webhook goes.
func TestC36Webhook(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "a", "b")
	a, b := w.ns("a"), w.ns("b")
	h := w.startAltering(a, `[{"op": "add", "path": "/data/injected", "value": "theirs"}]`)
	w.start()
	began := time.Now()
	source := w.createSource(w.home, "settings")
	w.waitInSync(source, b)
	w.waitEvent(w.home, "settings", mirror.ReasonFight)
	for range 5 {
		w.settle(b)
	}
	w.expectPaced(began, 1+atOnce, 1, w.acceptedWrites(a, "settings"))
	if w.inSync(source, a) == nil {
		t.Error("nothing was altered")
	}
	h.allow()
	w.waitInSync(source, a, b)
}
