package e2e

import (
	"slices"
	"strings"
	"testing"

	"github.com/mirror-controller/mirror-controller/mirror"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// Namespaces that opt out, and sources that narrow their targets: case C31.

// TestC31OptOut sets the label by which a namespace declines all copies, before it is filled, after, and while no
// controller runs, and takes it away again.
func TestC31OptOut(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "a", "b")
	a, b := w.ns("a"), w.ns("b")
	declined := w.createNamespace(w.ns("declined"), map[string]string{w.label: "false"}).Name
	p := w.start()
	source := w.createSource(w.home, "settings")
	w.waitInSync(source, a, b)
	mine := w.create(a, "mine")
	copies := w.copies("settings", b)
	w.settle(a, b)
	w.absent("settings", declined)

	w.labelNamespace(a, w.label, "false")
	w.waitGone("settings", a)
	w.createSource(w.home, "mine")
	w.waitInSync(w.createSource(w.home, "second"), b)
	w.edit(w.home, "mine", withoutLabel(w.label))
	w.settle(b)
	w.absent("second", a, declined)
	w.untouched(mine)
	w.labelNamespace(declined, w.label, "")
	w.labelNamespace(a, w.label, "true") // says nothing about a namespace
	w.waitInSync(source, a, declined)

	w.stop(p)
	w.labelNamespace(a, w.label, "false")
	p = w.start()
	w.waitGone("settings", a)
	w.settle(b)
	w.stop(p)
	w.labelNamespace(a, w.label, "")
	w.start()
	w.waitInSync(source, a)
	w.allUntouched(append(copies, mine))
}

// TestC31Selector narrows a source by a label selector on namespaces, and has namespaces begin and cease to match.
func TestC31Selector(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "a", "b", "c")
	a, b, c := w.ns("a"), w.ns("b"), w.ns("c")
	w.labelNamespace(a, "tier", "front")
	w.labelNamespace(b, "tier", "back")
	w.start()
	source := w.createSource(w.home, "settings", withAnnotation(plan.SelectorAnnotation, "tier=front"))
	w.waitInSync(source, a)
	w.settle(a, b, c)
	w.absent("settings", b, c)
	narrowed := func(selector, prefixes string, want ...string) {
		t.Helper()
		options := []option{withAnnotation(plan.SelectorAnnotation, selector), withAnnotation(plan.PrefixAnnotation, prefixes)}
		if prefixes == "" {
			options[1] = withoutAnnotation(plan.PrefixAnnotation)
		}
		w.edit(w.home, "settings", options...)
		w.waitInSync(source, want...)
		for _, namespace := range []string{a, b, c} {
			if !slices.Contains(want, namespace) {
				w.waitGone("settings", namespace)
			}
		}
	}
	narrowed("tier in (front, back)", "", a, b)
	narrowed("!tier", "", c)
	narrowed("", "", a, b, c)
	narrowed("tier", b, b)
	narrowed("tier,tier!=back", "", a)

	copies := w.copies("settings", a)
	w.labelNamespace(c, "tier", "front")
	w.waitInSync(source, c)
	w.labelNamespace(c, "tier", "back")
	w.waitGone("settings", c)
	d := w.createNamespace(w.ns("d"), map[string]string{"tier": "front"}).Name
	w.waitInSync(source, d)
	w.labelNamespace(d, "tier", "")
	w.waitGone("settings", d)
	w.allUntouched(copies)
}

// TestC31Malformed has a source whose narrowing cannot be read: nothing is created, changed or pruned for it, its copies
// keep their place against a namesake, and an event says what is wrong. Mended, it goes on; deleted, its copies go.
func TestC31Malformed(t *testing.T) {
	t.Parallel()
	for what, bad := range map[string]option{
		"selector":           withAnnotation(plan.SelectorAnnotation, "tier in (front"),
		"empty prefix":       withAnnotation(plan.PrefixAnnotation, ""),
		"trailing comma":     withAnnotation(plan.PrefixAnnotation, "w,"),
		"prefix no one has":  withAnnotation(plan.PrefixAnnotation, "Team_"),
		"selector and value": withAnnotation(plan.SelectorAnnotation, "tier=front back"),
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, "a", "b", "c")
			a, b, c := w.ns("a"), w.ns("b"), w.ns("c")
			mend := []option{withoutAnnotation(plan.SelectorAnnotation), withoutAnnotation(plan.PrefixAnnotation)}
			p := w.start("--resync-period=200ms")
			source := w.createSource(w.home, "settings")
			w.waitInSync(source, a, b, c)
			w.waitYounger(source)

			w.edit(w.home, "settings", bad, withData(map[string]string{"key": "two"}))
			if note := w.waitEvent(w.home, "settings", mirror.ReasonInvalidAnnotation); !strings.Contains(note, "mirror-controller.github.io/namespace-") {
				t.Errorf("the event does not name the annotation: %s", note)
			}
			namesake := w.createSource(w.elsewhere("other"), "settings")
			w.waitEvent(namesake.Namespace, "settings", "Superseded")
			edited := w.edit(a, "settings", withData(map[string]string{"key": "edited"}))
			w.labelNamespace(b, w.label, "false")
			fresh := w.createNamespace(w.ns("fresh"), nil).Name
			w.waitInSync(namesake, fresh) // it has no place there to keep
			kept := append(w.copies("settings", b, c), edited)
			w.passes(2, c)
			w.allUntouched(kept)
			w.stop(p)
			w.start("--resync-period=200ms")
			w.passes(2, c)
			w.allUntouched(kept)

			source = w.edit(w.home, "settings", mend...)
			w.waitInSync(source, a, c, fresh)
			w.waitGone("settings", b)
			w.edit(w.home, "settings", bad)
			w.passes(1, c)
			w.delete(w.home, "settings")
			w.waitInSync(namesake, a, c, fresh)
			w.edit(namesake.Namespace, "settings", bad)
			w.passes(1, c)
			w.edit(namesake.Namespace, "settings", withoutLabel(w.label))
			w.waitGone("settings", a, c, fresh)
		})
	}
}
