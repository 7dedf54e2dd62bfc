package contract

import (
	"slices"
	"strings"
	"testing"

	"github.com/mirror-controller/mirror-controller/e2e/suite"
	"github.com/mirror-controller/mirror-controller/mirror"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
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

// TestC31Selector narrows a source by a label selector on namespaces, and has namespaces begin and cease to match.
func TestC31Selector(t *testing.T) {
	t.Parallel()
	w := suite.New(t, "a", "b", "c")
	a, b, c := w.NS("a"), w.NS("b"), w.NS("c")
	w.LabelNamespace(a, "tier", "front")
	w.LabelNamespace(b, "tier", "back")
	w.Start()
	source := w.CreateSource(w.Home, "settings", suite.WithAnnotation(plan.SelectorAnnotation, "tier=front"))
	w.WaitInSync(source, a)
	w.Settle(a, b, c)
	w.Absent("settings", b, c)
	narrowed := func(selector, prefixes string, want ...string) {
		t.Helper()
		options := []suite.Option{suite.WithAnnotation(plan.SelectorAnnotation, selector), suite.WithAnnotation(plan.PrefixAnnotation, prefixes)}
		if prefixes == "" {
			options[1] = suite.WithoutAnnotation(plan.PrefixAnnotation)
		}
		w.Edit(w.Home, "settings", options...)
		w.WaitInSync(source, want...)
		for _, namespace := range []string{a, b, c} {
			if !slices.Contains(want, namespace) {
				w.WaitGone("settings", namespace)
			}
		}
	}
	narrowed("tier in (front, back)", "", a, b)
	narrowed("!tier", "", c)
	narrowed("", "", a, b, c)
	narrowed("tier", b, b)
	narrowed("tier,tier!=back", "", a)

	copies := w.Copies("settings", a)
	w.LabelNamespace(c, "tier", "front")
	w.WaitInSync(source, c)
	w.LabelNamespace(c, "tier", "back")
	w.WaitGone("settings", c)
	d := w.CreateNamespace(w.NS("d"), map[string]string{"tier": "front"}).Name
	w.WaitInSync(source, d)
	w.LabelNamespace(d, "tier", "")
	w.WaitGone("settings", d)
	w.AllUntouched(copies)
}

// TestC31Malformed has a source whose narrowing cannot be read: nothing is created, changed or pruned for it, its copies
// keep their place against a namesake, and an event says what is wrong. Mended, it goes on; deleted, its copies go.
func TestC31Malformed(t *testing.T) {
	t.Parallel()
	for what, bad := range map[string]suite.Option{
		"selector":           suite.WithAnnotation(plan.SelectorAnnotation, "tier in (front"),
		"empty prefix":       suite.WithAnnotation(plan.PrefixAnnotation, ""),
		"trailing comma":     suite.WithAnnotation(plan.PrefixAnnotation, "w,"),
		"prefix no one has":  suite.WithAnnotation(plan.PrefixAnnotation, "Team_"),
		"selector and value": suite.WithAnnotation(plan.SelectorAnnotation, "tier=front back"),
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			w := suite.New(t, "a", "b", "c")
			a, b, c := w.NS("a"), w.NS("b"), w.NS("c")
			mend := []suite.Option{suite.WithoutAnnotation(plan.SelectorAnnotation), suite.WithoutAnnotation(plan.PrefixAnnotation)}
			p := w.Start("--resync-period=200ms")
			source := w.CreateSource(w.Home, "settings")
			w.WaitInSync(source, a, b, c)
			w.WaitYounger(source)

			w.Edit(w.Home, "settings", bad, suite.WithData(map[string]string{"key": "two"}))
			if note := w.WaitEvent(w.Home, "settings", mirror.ReasonInvalidAnnotation); !strings.Contains(note, "mirror-controller.github.io/namespace-") {
				t.Errorf("the event does not name the annotation: %s", note)
			}
			namesake := w.CreateSource(w.Elsewhere("other"), "settings")
			w.WaitEvent(namesake.Namespace, "settings", "Superseded")
			edited := w.Edit(a, "settings", suite.WithData(map[string]string{"key": "edited"}))
			w.LabelNamespace(b, w.Label, "false")
			fresh := w.CreateNamespace(w.NS("fresh"), nil).Name
			w.WaitInSync(namesake, fresh) // it has no place there to keep
			kept := append(w.Copies("settings", b, c), edited)
			w.Passes(2, c)
			w.AllUntouched(kept)
			w.Stop(p)
			w.Start("--resync-period=200ms")
			w.Passes(2, c)
			w.AllUntouched(kept)

			source = w.Edit(w.Home, "settings", mend...)
			w.WaitInSync(source, a, c, fresh)
			w.WaitGone("settings", b)
			w.Edit(w.Home, "settings", bad)
			w.Passes(1, c)
			w.Delete(w.Home, "settings")
			w.WaitInSync(namesake, a, c, fresh)
			w.Edit(namesake.Namespace, "settings", bad)
			w.Passes(1, c)
			w.Edit(namesake.Namespace, "settings", suite.WithoutLabel(w.Label))
			w.WaitGone("settings", a, c, fresh)
		})
	}
}
