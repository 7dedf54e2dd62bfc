package contract

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/mirror-controller/mirror-controller/e2e/suite"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// Copies that lost their label or our annotations: cases C08 and C43.

// TestC08LabelStripped strips the label from a copy, and our annotations from others: the first is restored, the
// others are released, left alone and reported.
func TestC08LabelStripped(t *testing.T) {
	t.Parallel()
	w := suite.New(t, "a", "b", "c", "d", "e")
	a, b, c, d, e := w.NS("a"), w.NS("b"), w.NS("c"), w.NS("d"), w.NS("e")
	p := w.Start("--resync-period=200ms")
	source := w.CreateSource(w.Home, "settings")
	w.WaitInSync(source, a, b, c, d, e)
	copies := w.Copies("settings", a, e)
	w.Edit(a, "settings", suite.WithoutLabel(w.Label))
	w.WaitInSync(source, a)
	w.Edit(e, "settings", suite.WithoutLabel("app.kubernetes.io/managed-by"), suite.WithoutAnnotation(plan.ChecksumAnnotation))
	w.WaitInSync(source, e)
	w.SameObjects(copies)

	noAnnotations := func(cm *corev1.ConfigMap) { cm.Annotations = nil }
	released := []*corev1.ConfigMap{
		w.Edit(b, "settings", noAnnotations),
		w.Edit(c, "settings", noAnnotations, suite.WithoutLabel(w.Label)),
		w.Edit(d, "settings", suite.WithoutAnnotation(plan.CopyAnnotation)),
	}
	w.Eventually("all three are reported", w.Noted("settings", "Foreign", b, c, d))
	source = w.Edit(w.Home, "settings", suite.WithData(map[string]string{"key": "two"}))
	w.WaitInSync(source, a, e)
	w.Passes(2, a)
	w.AllUntouched(released)
	w.Stop(p)
	w.Start("--resync-period=200ms")
	w.Settle(a, b, c, d, e)
	w.Delete(w.Home, "settings")
	w.WaitGone("settings", a, e)
	w.Passes(2, a)
	w.AllUntouched(released)
}

// TestC08UnlabelledUnderFullQuota strips the label of a copy in a namespace whose quota is used up, by the copy
// among others. The API server refuses the create there before it says that an object exists; it is restored all
// the same, and a foreign object is reported as foreign.
func TestC08UnlabelledUnderFullQuota(t *testing.T) {
	t.Parallel()
	w := suite.New(t, "ours", "foreign")
	ours, foreign := w.NS("ours"), w.NS("foreign")
	mine := w.Create(foreign, "settings")
	w.FillQuota(foreign, 2)
	w.Start()
	source := w.CreateSource(w.Home, "settings")
	w.WaitInSync(source, ours)
	before := w.Live(ours, "settings")
	w.FillQuota(ours, 2)
	w.Edit(ours, "settings", suite.WithoutLabel(w.Label))
	w.WaitInSync(source, ours)
	if after := w.Live(ours, "settings"); after.UID != before.UID {
		t.Error("the copy was made anew")
	}
	w.WaitEvent(w.Home, "settings", plan.ReasonForeign)
	w.Untouched(mine)
}

// TestC43LabelThenSource strips the label of a copy and, right after, takes its source away: the copy counts as released,
// and nobody touches it. When the source is back, the copy is restored where it is. The process stands still meanwhile, so
// that it learns of the second before it has restored the first.
func TestC43LabelThenSource(t *testing.T) {
	t.Parallel()
	w := suite.New(t, "a", "b")
	a, b := w.NS("a"), w.NS("b")
	p := w.Start()
	for i := range 6 {
		name := fmt.Sprintf("settings-%d", i)
		source := w.CreateSource(w.Home, name)
		w.WaitInSync(source, a, b)
		w.Pause(p)
		released := w.Edit(a, name, suite.WithoutLabel(w.Label))
		if i%2 == 0 {
			w.Edit(w.Home, name, suite.WithoutLabel(w.Label))
		} else {
			w.Delete(w.Home, name)
		}
		w.Resume(p)
		w.WaitGone(name, b)
		w.Settle(b)
		w.Untouched(released)
		if i%2 == 0 {
			source = w.Edit(w.Home, name, suite.WithLabel(w.Label, plan.SourceValue))
		} else {
			source = w.CreateSource(w.Home, name, suite.WithData(map[string]string{"key": "other"}))
		}
		w.WaitInSync(source, a, b)
		w.SameObjects([]*corev1.ConfigMap{released})
	}
}
