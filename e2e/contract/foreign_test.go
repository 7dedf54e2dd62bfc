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

// Foreign objects in the way: cases C11 to C13.

// TestC11ForeignObject has somebody's ConfigMap in the way: untouched, reported once and not at every resync, and
// copied once it is gone.
func TestC11ForeignObject(t *testing.T) {
	t.Parallel()
	w := suite.New(t, "a", "b")
	a, b := w.NS("a"), w.NS("b")
	mine := w.Create(a, "settings")
	w.Start("--resync-period=100ms")
	source := w.CreateSource(w.Home, "settings")
	w.WaitInSync(source, b)
	if note := w.WaitEvent(w.Home, "settings", "Foreign"); !strings.Contains(note, a) || strings.Contains(note, b) {
		t.Errorf("the event does not say where, or too much: %s", note)
	}
	w.Passes(5, b)
	source = w.Edit(w.Home, "settings", suite.WithData(map[string]string{"key": "two"}))
	w.WaitInSync(source, b)
	w.Passes(2, b)
	w.Untouched(mine)
	if n := w.Reasons(w.Home, "settings")["Foreign"]; n != 1 {
		t.Errorf("%d events about one foreign object, want 1", n)
	}
	for _, e := range suite.WritesTo(w.Requests(), "settings") {
		if e.Object.Namespace == a && e.Verb != "create" {
			t.Errorf("something else than a create was tried: %v", e)
		}
	}
	w.Delete(a, "settings")
	w.WaitInSync(source, a)
}

// TestC12Adopted has owners hand over what is in the way: it becomes the copy, in one write, without the keys
// that the source does not have, and with other people's metadata. Objects that must not be handed over are left alone.
func TestC12Adopted(t *testing.T) {
	t.Parallel()
	w := suite.New(t, "labelled", "unlabelled", "immutable", "source", "unsure")
	labelled, unlabelled, unchangeable := w.NS("labelled"), w.NS("unlabelled"), w.NS("immutable")
	publisher, unsure := w.NS("source"), w.NS("unsure")
	all := []string{labelled, unlabelled, unchangeable, publisher, unsure}
	for _, namespace := range all {
		w.Create(namespace, "settings", suite.WithData(map[string]string{"key": "mine", "mine": "1"}),
			func(cm *corev1.ConfigMap) { cm.BinaryData = map[string][]byte{"binary": {0, 255}} },
			suite.WithLabel("team", "red"), suite.WithAnnotation("note", "mine"))
	}
	w.Edit(unchangeable, "settings", suite.SetImmutable)
	w.Edit(publisher, "settings", suite.WithLabel(w.Label, "true"))
	w.Start("--resync-period=100ms")
	source := w.CreateSource(w.Home, "settings")
	w.Eventually("all are reported", w.Noted("settings", "Foreign", all...))
	before := w.Copies("settings", labelled, unlabelled)

	adopt := suite.WithAnnotation(plan.AdoptAnnotation, "true")
	w.Edit(labelled, "settings", adopt, suite.WithLabel(w.Label, "copy"))
	w.WaitInSync(source, labelled)
	w.Edit(unlabelled, "settings", adopt)
	w.Edit(unchangeable, "settings", adopt, suite.WithLabel(w.Label, "copy"))
	w.WaitInSync(source, unlabelled, unchangeable)
	kept := []*corev1.ConfigMap{
		w.Edit(publisher, "settings", adopt),
		w.Edit(unsure, "settings", suite.WithAnnotation(plan.AdoptAnnotation, "false"), suite.WithLabel(w.Label, "copy")),
	}
	w.Passes(2, labelled)
	w.AllUntouched(kept)
	w.SameObjects(before)
	for _, cm := range w.Copies("settings", labelled, unlabelled, unchangeable) {
		recreated := cm.Namespace == unchangeable // has no metadata of others
		if kept := cm.Labels["team"] == "red" && cm.Annotations["note"] == "mine"; kept == recreated {
			t.Errorf("got the metadata of others kept %v on the copy in %s: %v", kept, cm.Namespace, cm.ObjectMeta)
		}
		if _, there := cm.Annotations[plan.AdoptAnnotation]; there {
			t.Errorf("the copy in %s is still to be adopted", cm.Namespace)
		}
	}
	w.ExpectWrites("settings", "update "+labelled, "update "+unlabelled, "delete "+unchangeable, "create "+unchangeable)

	w.Edit(w.Home, "settings", suite.WithoutLabel(w.Label))
	w.WaitInSync(kept[0], labelled, unlabelled, unchangeable) // its turn, now that the other has gone
	w.Edit(publisher, "settings", suite.WithoutLabel(w.Label))
	w.WaitGone("settings", labelled, unlabelled, unchangeable)
	w.Untouched(kept[1])
}

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
