package contract

import (
	"net/http"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/mirror-controller/mirror-controller/e2e/cluster"
	"github.com/mirror-controller/mirror-controller/e2e/suite"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// TestEachKindOfWrite has the controller do all that it can do to copies. The API server and the policies take each
// write, and there is no other write. Cases C12, C19 and C22.
func TestEachKindOfWrite(t *testing.T) {
	t.Parallel()
	w := suite.New(t, "a", "b", "c")
	a, b, c := w.NS("a"), w.NS("b"), w.NS("c")
	w.Create(b, "settings", suite.WithLabel("team", "red"))
	w.Create(c, "settings", suite.SetImmutable)
	p := w.Start()
	source := w.CreateSource(w.Home, "settings")
	w.WaitInSync(source, a)
	w.WaitEvent(w.Home, "settings", plan.ReasonForeign, b, c)
	for _, namespace := range []string{b, c} {
		w.Edit(namespace, "settings", handOver(w)...)
	}
	w.WaitInSync(source, a, b, c)
	for _, damage := range []suite.Option{suite.WithKey("key", "edited"), suite.WithoutLabel(w.Label)} {
		w.Edit(a, "settings", damage)
		w.WaitInSync(source, a)
	}
	w.WaitInSync(w.Edit(w.Home, "settings", suite.SetImmutable), a, b, c)
	if cm := w.Live(b, "settings"); cm.Labels["team"] != "red" {
		t.Errorf("got labels %v, want those of others kept", cm.Labels)
	}
	w.WaitInSync(w.ReplaceAtOnce(p, "settings", suite.SetImmutable, suite.WithKey("key", "other")), a, b, c)
	w.OptOut(plan.OptOutValue, "a")
	w.WaitGone("settings", a)
	w.Edit(w.Home, "settings", suite.WithoutLabel(w.Label))
	w.WaitGone("settings", b, c)
	w.ExpectWrites("settings",
		"create "+a, "patch "+b, "delete "+c, "create "+c, // adopted; what is immutable is created again
		"update "+a, "update "+a, // restored
		"update "+a, "patch "+b, "update "+c, // made immutable; b has a label of others
		"delete "+a, "delete "+b, "delete "+c, "create "+a, "create "+b, "create "+c, // other data
		"delete "+a, "delete "+b, "delete "+c) // opted out; unlabelled
}

// handOver is what an owner does to an object in the way.
func handOver(w *suite.World) []suite.Option {
	return []suite.Option{suite.WithAnnotation(plan.AdoptAnnotation, "true"), suite.WithLabel(w.Label, plan.CopyValue)}
}

// TestC13ReplacedBeforeTheCall changes the object between the controller's decision and its write: the write is
// refused by its preconditions, and what is there now is left alone.
func TestC13ReplacedBeforeTheCall(t *testing.T) {
	t.Parallel()
	w := suite.New(t, "a")
	a := w.NS("a")
	w.Start()
	hook := w.StartWebhook(a, nil)
	put := func(name string) *corev1.ConfigMap { return w.Create(a, name) }
	replace := func(name string) *corev1.ConfigMap {
		w.Delete(a, name)
		return put(name)
	}
	release := func(name string) *corev1.ConfigMap {
		return w.Edit(a, name, func(cm *corev1.ConfigMap) { cm.Annotations = nil })
	}
	publish := func(name string) { w.CreateSource(w.Home, name) }
	unpublish := func(name string) { w.Edit(w.Home, name, suite.WithoutLabel(w.Label)) }
	change := func(name string) { w.Edit(w.Home, name, suite.WithKey("key", "two")) }
	exchange := func(name string) {
		w.Delete(w.Home, name)
		w.CreateSource(w.Home, name, suite.SetImmutable, suite.WithKey("key", "two"))
	}
	for name, c := range map[string]struct {
		decided   func(name string) // what makes the controller write
		operation admissionv1.Operation
		meanwhile func(name string) *corev1.ConfigMap
	}{
		"delete-replaced":   {unpublish, admissionv1.Delete, replace},
		"delete-released":   {unpublish, admissionv1.Delete, release},
		"update-replaced":   {change, admissionv1.Update, replace},
		"update-released":   {change, admissionv1.Update, release},
		"recreate-replaced": {exchange, admissionv1.Delete, replace},
		"recreate-released": {exchange, admissionv1.Delete, release},
		"create":            {publish, admissionv1.Create, put},
	} {
		if c.operation != admissionv1.Create {
			source := suite.WithKey("key", "one")
			if strings.HasPrefix(name, "recreate") {
				source = suite.SetImmutable
			}
			w.WaitInSync(w.CreateSource(w.Home, name, source), a)
		}
		reached, proceed := hook.HoldNext(c.operation)
		c.decided(name)
		w.Wait("the write of "+name, reached)
		theirs := c.meanwhile(name)
		proceed()
		w.WaitRequests("the write of "+name+" is refused", 1, func(e cluster.Event) bool {
			same := e.Object.Name == name && strings.EqualFold(e.Verb, string(c.operation))
			// 409, or 504 if this test was so slow that the controller has cut the call.
			return same && (e.Response.Code == http.StatusConflict || e.Response.Code == http.StatusGatewayTimeout)
		})
		w.Settle(a)
		w.Untouched(theirs)
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
