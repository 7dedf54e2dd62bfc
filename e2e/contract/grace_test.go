package contract

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/mirror-controller/mirror-controller/e2e/suite"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// TestC52Kept takes its copies from a source, by a mistake of each kind. The controller says which copies it will delete,
// why, when, and how to keep them, and does not write to them, nor restore what others change. The remedy that it names
// keeps them all.
func TestC52Kept(t *testing.T) {
	t.Parallel()
	const gone = "the source is deleted, or has lost its label "
	for name, test := range map[string]struct {
		lose, keep func(*suite.World)
		lost       []string // short names of the namespaces
		says       []string
	}{
		"deleted": {
			func(w *suite.World) { w.Delete(w.Home, "settings") },
			func(w *suite.World) { w.CreateSource(w.Home, "settings") },
			[]string{"a", "b", "c"}, []string{gone, "create the source again"},
		},
		"opted out": {
			func(w *suite.World) { w.OptOut(plan.OptOutValue, "a", "b") },
			func(w *suite.World) { w.OptOut("", "a", "b") },
			[]string{"a", "b"}, []string{"the namespace has the label ", "remove that label"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := suite.New(t, "a", "b", "c")
			a, b, c := w.NS("a"), w.NS("b"), w.NS("c")
			p := w.Start(suite.Graced(time.Hour)...)
			w.WaitInSync(w.CreateSource(w.Home, "settings"), a, b, c)
			copies := w.Copies("settings", a, c)

			test.lose(w)
			n := len(test.lost)
			says := append(test.says, fmt.Sprintf("%d copies in %d namespaces", n, n), "To keep them")
			for _, name := range test.lost {
				says = append(says, w.NS(name))
			}
			w.Eventually("it is announced", w.Noted("settings", plan.ReasonExpiring, says...))
			w.WaitLog(p, "will be deleted from")
			w.WaitMetrics("they expire", p, suite.Expiring(float64(n)))
			w.Edit(a, "settings", suite.WithData(map[string]string{"key": "edited"}))
			w.Delete(b, "settings")
			w.WaitMetrics("one is deleted by somebody else", p, suite.Expiring(float64(n-1)))
			for i := range 3 {
				w.Tick(i, c)
			}
			w.Absent("settings", b)
			created := []string{"create " + a, "create " + b, "create " + c}
			w.ExpectWrites("settings", slices.Clone(created)...)

			test.keep(w)
			w.WaitInSync(w.Live(w.Home, "settings"), a, b, c)
			w.WaitMetrics("they are kept", p, suite.Expiring(0))
			w.SameObjects(copies)
			w.ExpectWrites("settings", append(created, "update "+a, "create "+b)...)
		})
	}
}
