package contract

import (
	"net/http"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/mirror-controller/mirror-controller/e2e/cluster"
	"github.com/mirror-controller/mirror-controller/e2e/suite"
)

// TestC13ReplacedBeforeTheCall changes the object between the controller's decision and its write: the write is
// refused by its preconditions, and what is there now is left alone.
func TestC13ReplacedBeforeTheCall(t *testing.T) {
	t.Parallel()
	w := suite.New(t, "a", "b")
	a, b := w.NS("a"), w.NS("b")
	w.Start()
	hook := w.StartWebhook(a, nil)
	replace := func(name string) *corev1.ConfigMap {
		w.Delete(a, name)
		return w.Create(a, name)
	}
	release := func(name string) *corev1.ConfigMap {
		return w.Edit(a, name, func(cm *corev1.ConfigMap) { cm.Annotations = nil })
	}
	unpublish := func(name string) { w.Edit(w.Home, name, suite.WithoutLabel(w.Label)) }
	change := func(name string) { w.Edit(w.Home, name, suite.WithData(map[string]string{"key": "two"})) }
	exchange := func(name string) {
		w.Delete(w.Home, name)
		w.CreateSource(w.Home, name, suite.SetImmutable, suite.WithData(map[string]string{"key": "two"}))
	}
	for _, c := range []struct {
		name      string
		immutable bool
		decided   func(name string) // what makes the controller write
		operation admissionv1.Operation
		meanwhile func(name string) *corev1.ConfigMap
	}{
		{"delete-replaced", false, unpublish, admissionv1.Delete, replace},
		{"delete-released", false, unpublish, admissionv1.Delete, release},
		{"update-replaced", false, change, admissionv1.Update, replace},
		{"update-released", false, change, admissionv1.Update, release},
		{"recreate-replaced", true, exchange, admissionv1.Delete, replace},
		{"recreate-released", true, exchange, admissionv1.Delete, release},
	} {
		options := []suite.Option{}
		if c.immutable {
			options = append(options, suite.SetImmutable)
		}
		w.WaitInSync(w.CreateSource(w.Home, c.name, options...), a, b)
		reached, proceed := hook.HoldNext(c.operation)
		c.decided(c.name)
		w.Wait("the write of "+c.name, reached)
		theirs := c.meanwhile(c.name)
		proceed()
		w.WaitRequests("the write of "+c.name+" is refused", 1, func(e cluster.Event) bool {
			return e.Object.Name == c.name && strings.EqualFold(e.Verb, string(c.operation)) && e.Response.Code == http.StatusConflict
		})
		w.Settle(a, b)
		w.Untouched(theirs)
	}

	reached, proceed := hook.HoldNext(admissionv1.Create)
	source := w.CreateSource(w.Home, "create")
	w.Wait("the create", reached)
	theirs := w.Create(a, "create")
	proceed()
	w.WaitEvent(w.Home, "create", "Foreign")
	w.WaitInSync(source, b)
	w.Untouched(theirs)
}
