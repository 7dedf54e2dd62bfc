package contract

import (
	"errors"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"

	"github.com/mirror-controller/mirror-controller/e2e/suite"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// Namespaces whose copies admission refuses.

// TestC30Rejected: all other namespaces are served, the event has the reason as the API server says it, and the
// namespace is filled when the rejection ends. What a missing permission does is TestC37.
func TestC30Rejected(t *testing.T) {
	t.Parallel()
	refuse := func(*admissionv1.AdmissionRequest) error { return errors.New("not on my watch") }
	for reason, begin := range map[string]func(w *suite.World, namespace string) (end func()){
		"exceeded quota: no-more": func(w *suite.World, namespace string) func() { return w.FillQuota(namespace, 1) },
		"not on my watch": func(w *suite.World, namespace string) func() {
			return w.StartWebhook(namespace, refuse).Allow
		},
	} {
		t.Run(reason, func(t *testing.T) {
			t.Parallel()
			w := suite.New(t, "bad", "good")
			bad, good := w.NS("bad"), w.NS("good")
			end := begin(w, bad)
			w.Start()
			source := w.CreateSource(w.Home, "settings")
			w.WaitInSync(source, good)
			w.Eventually("an event says where and why", w.Noted("settings", plan.ReasonWriteFailed, bad, reason))
			w.Absent("settings", bad)
			end()
			w.WaitInSync(source, good, bad)
			w.Eventually("the event that all is well", w.Noted("settings", plan.ReasonMirrored, " to 2 namespaces"))
		})
	}
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
	before := w.Copies("settings", ours)
	w.FillQuota(ours, 2)
	w.Edit(ours, "settings", suite.WithoutLabel(w.Label))
	w.WaitInSync(source, ours)
	w.SameObjects(before)
	w.WaitEvent(w.Home, "settings", plan.ReasonForeign)
	w.Untouched(mine)
}
