package contract

import (
	"testing"

	"github.com/mirror-controller/mirror-controller/e2e/suite"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// Sources that go, and controllers that were away: cases C14, C15 and C18.

// TestC14WhileDown changes sources and flags while no controller runs: at the start the copies in scope that are no
// longer wanted go, and no other is touched. Those that the flags rule out go with --prune.
func TestC14WhileDown(t *testing.T) {
	t.Parallel()
	w := suite.New(t, "a", "b", "c")
	a, b, c := w.NS("a"), w.NS("b"), w.NS("c")
	w.LabelNamespace(a, "tier", "front")
	elsewhere := w.Elsewhere("elsewhere")
	p := w.Start()
	changed := []string{"deleted", "unlabelled", "relabelled", "narrowed", "selective"}
	for _, name := range append(changed, "kept") {
		w.WaitInSync(w.CreateSource(w.Home, name), a, b, c)
	}
	w.WaitInSync(w.CreateSource(elsewhere, "elsewhere"), a, b, c)
	w.Stop(p)

	w.Delete(w.Home, "deleted")
	w.Edit(w.Home, "unlabelled", suite.WithoutLabel(w.Label))
	w.Edit(w.Home, "relabelled", suite.WithLabel(w.Label, "off"))
	w.Edit(w.Home, "narrowed", suite.WithAnnotation(plan.PrefixAnnotation, a))
	w.Edit(w.Home, "selective", suite.WithAnnotation(plan.SelectorAnnotation, "tier=front"))
	stay := append(w.Copies("kept", a, b), w.Live(a, "narrowed"), w.Live(a, "selective"))
	ruledOut := append(w.Copies("elsewhere", a, b, c), w.Live(c, "kept"))
	for _, name := range changed {
		ruledOut = append(ruledOut, w.Live(c, name))
	}
	flags := []string{"--exclude-namespace=" + c, "--source-namespace=" + w.Home}
	gone := func() {
		w.WaitGone("deleted", a, b)
		w.WaitGone("unlabelled", a, b)
		w.WaitGone("relabelled", a, b)
		w.WaitGone("narrowed", b)
		w.WaitGone("selective", b)
		w.Settle(a, b)
		w.AllUntouched(stay)
	}
	p = w.Start(append(flags, served)...)
	gone()
	w.WaitMetrics("what the flags rule out", p, outOfScope(len(ruledOut)))
	w.AllUntouched(ruledOut)
	w.Stop(p)

	p = w.Start(append(flags, "--prune")...)
	for _, cm := range ruledOut {
		w.WaitGone(cm.Name, cm.Namespace)
	}
	gone()
	w.Stop(p)

	p = w.StartExactly("--namespace-prefix="+a, served)
	w.WaitMetrics("a narrower prefix", p, outOfScope(1))
	w.Settle(a)
	w.AllUntouched(stay)
}

// TestC15SourceRecreated deletes a source and creates it anew while the controller's process stands still, so that no time passes
// for it: with the same data no copy is written, with other data they are updated where they are.
func TestC15SourceRecreated(t *testing.T) {
	t.Parallel()
	w := suite.New(t, "a", "b")
	a, b := w.NS("a"), w.NS("b")
	p := w.Start()
	w.WaitInSync(w.CreateSource(w.Home, "settings"), a, b)
	copies := w.Copies("settings", a, b)
	for range 10 {
		w.ReplaceAtOnce(p, "settings")
		w.Settle(a, b)
		w.AllUntouched(copies)
	}
	w.WaitInSync(w.ReplaceAtOnce(p, "settings", suite.WithData(map[string]string{"key": "two"})), a, b)
	w.SameObjects(copies)
	w.ExpectWrites("settings", "create "+a, "create "+b, "update "+a, "update "+b)
}

// TestC18Reinstalled takes the controller away, once by force, and installs it again: the copies are kept,
// recognised, and not written. The new controller applies the changes that it missed.
func TestC18Reinstalled(t *testing.T) {
	t.Parallel()
	w := suite.New(t, "a", "b")
	a, b := w.NS("a"), w.NS("b")
	p := w.Start("--copy-label=team")
	source := w.CreateSource(w.Home, "settings", suite.WithLabel("team", "red"))
	fixed := w.CreateSource(w.Home, "fixed", suite.SetImmutable)
	w.WaitInSync(source, a, b)
	w.WaitInSync(fixed, a, b)
	w.Settle(a, b)
	copies := append(w.Copies("settings", a, b), w.Copies("fixed", a, b)...)
	for round := range 2 {
		if round%2 == 0 {
			p.Kill()
		} else {
			w.Stop(p)
		}
		w.AllUntouched(copies)
		mark := w.AuditMark()
		p = w.Start("--copy-label=team")
		w.Settle(a, b)
		for _, name := range []string{"settings", "fixed"} {
			if writes := suite.WritesTo(w.RequestsSince(mark), name); len(writes) > 0 {
				t.Errorf("the restart wrote: %v", writes)
			}
		}
	}
	w.AllUntouched(copies)
	w.Stop(p)
	source = w.Edit(w.Home, "settings", suite.WithData(map[string]string{"key": "two"}))
	c := w.CreateNamespace(w.NS("c"), nil).Name
	w.Start("--copy-label=team")
	w.WaitInSync(source, a, b, c)
	w.WaitInSync(fixed, c)
	w.SameObjects(copies)
}
