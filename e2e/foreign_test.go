package e2e

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/mirror-controller/mirror-controller/e2e/cluster"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// Foreign objects in the way: cases C11 to C13.

// TestC11ForeignObject has somebody's ConfigMap in the way: untouched, reported once and not at every resync, and
// copied once it is gone.
func TestC11ForeignObject(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "a", "b")
	a, b := w.ns("a"), w.ns("b")
	mine := w.create(a, "settings")
	w.start("--resync-period=100ms")
	source := w.createSource(w.home, "settings")
	w.waitInSync(source, b)
	if note := w.waitEvent(w.home, "settings", "Foreign"); !strings.Contains(note, a) || strings.Contains(note, b) {
		t.Errorf("the event does not say where, or too much: %s", note)
	}
	w.passes(5, b)
	source = w.edit(w.home, "settings", withData(map[string]string{"key": "two"}))
	w.waitInSync(source, b)
	w.passes(2, b)
	w.untouched(mine)
	if n := w.reasons(w.home, "settings")["Foreign"]; n != 1 {
		t.Errorf("%d events about one foreign object, want 1", n)
	}
	for _, e := range writesTo(w.requests(), "settings") {
		if e.Object.Namespace == a && e.Verb != "create" {
			t.Errorf("something else than a create was tried: %v", e)
		}
	}
	w.delete(a, "settings")
	w.waitInSync(source, a)
}

// TestC11TriedAgain leaves the foreign object to the retries, without any resync: they wait ever longer, and the copy is
// there once the object is gone.
func TestC11TriedAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "a", "b")
	a, b := w.ns("a"), w.ns("b")
	mine := w.create(a, "settings")
	w.start("--resync-period=0")
	began := time.Now()
	source := w.createSource(w.home, "settings")
	w.waitEvent(w.home, "settings", "Foreign")
	read := func(e cluster.Event) bool {
		return e.Verb == "get" && e.Object.Namespace == a && e.Object.Name == "settings" && e.Response.Code == http.StatusOK
	}
	w.waitRequests("it is read again", 2, read)
	w.settle(b)
	w.expectPaced(began, 2, 1, requestsFor(w.requests(), a, "settings"))
	w.untouched(mine)
	w.delete(a, "settings")
	w.waitInSync(source, a, b)
}

// TestC11EditsKeepThePace edits the source again and again: that takes no object out of the way, and is no reason to
// try again before the time.
func TestC11EditsKeepThePace(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "a", "b")
	a, b := w.ns("a"), w.ns("b")
	mine := w.create(a, "settings")
	w.start()
	began := time.Now()
	source := w.createSource(w.home, "settings")
	w.waitEvent(w.home, "settings", "Foreign")
	for i := range 50 {
		source = w.edit(w.home, "settings", withData(map[string]string{"key": fmt.Sprint(i)}))
		w.waitInSync(source, b)
	}
	w.expectPaced(began, 2, 1, requestsFor(w.requests(), a, "settings"))
	w.untouched(mine)
	w.delete(a, "settings")
	w.waitInSync(source, a)
}

// TestC12Adopted has owners hand over what is in the way: it becomes the copy, in one write, without the keys
// that the source does not have, and with other people's metadata. Objects that must not be handed over are left alone.
func TestC12Adopted(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "labelled", "unlabelled", "immutable", "source", "unsure")
	labelled, unlabelled, unchangeable := w.ns("labelled"), w.ns("unlabelled"), w.ns("immutable")
	publisher, unsure := w.ns("source"), w.ns("unsure")
	all := []string{labelled, unlabelled, unchangeable, publisher, unsure}
	for _, namespace := range all {
		w.create(namespace, "settings", withData(map[string]string{"key": "mine", "mine": "1"}),
			func(cm *corev1.ConfigMap) { cm.BinaryData = map[string][]byte{"binary": {0, 255}} },
			withLabel("team", "red"), withAnnotation("note", "mine"))
	}
	w.edit(unchangeable, "settings", setImmutable)
	w.edit(publisher, "settings", withLabel(w.label, "true"))
	w.start("--resync-period=100ms")
	source := w.createSource(w.home, "settings")
	w.eventually("all are reported", w.noted("settings", "Foreign", all...))
	before := w.copies("settings", labelled, unlabelled)

	adopt := withAnnotation(plan.AdoptAnnotation, "true")
	w.edit(labelled, "settings", adopt, withLabel(w.label, "copy"))
	w.waitInSync(source, labelled)
	w.edit(unlabelled, "settings", adopt)
	w.edit(unchangeable, "settings", adopt, withLabel(w.label, "copy"))
	w.waitInSync(source, unlabelled, unchangeable)
	kept := []*corev1.ConfigMap{
		w.edit(publisher, "settings", adopt),
		w.edit(unsure, "settings", withAnnotation(plan.AdoptAnnotation, "false"), withLabel(w.label, "copy")),
	}
	w.passes(2, labelled)
	w.allUntouched(kept)
	w.sameObjects(before)
	for _, cm := range w.copies("settings", labelled, unlabelled, unchangeable) {
		recreated := cm.Namespace == unchangeable // has no metadata of others
		if kept := cm.Labels["team"] == "red" && cm.Annotations["note"] == "mine"; kept == recreated {
			t.Errorf("got the metadata of others kept %v on the copy in %s: %v", kept, cm.Namespace, cm.ObjectMeta)
		}
		if _, there := cm.Annotations[plan.AdoptAnnotation]; there {
			t.Errorf("the copy in %s is still to be adopted", cm.Namespace)
		}
	}
	w.expectWrites("settings", "update "+labelled, "update "+unlabelled, "delete "+unchangeable, "create "+unchangeable)

	w.edit(w.home, "settings", withoutLabel(w.label))
	w.waitInSync(kept[0], labelled, unlabelled, unchangeable) // its turn, now that the other has gone
	w.edit(publisher, "settings", withoutLabel(w.label))
	w.waitGone("settings", labelled, unlabelled, unchangeable)
	w.untouched(kept[1])
}

// TestC13ReplacedBeforeTheCall changes the object between the controller's decision and its write: the write is
// refused by its preconditions, and what is there now is left alone.
func TestC13ReplacedBeforeTheCall(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "a", "b")
	a, b := w.ns("a"), w.ns("b")
	w.start()
	hook := w.startWebhook(a, nil)
	replace := func(name string) *corev1.ConfigMap {
		w.delete(a, name)
		return w.create(a, name)
	}
	release := func(name string) *corev1.ConfigMap {
		return w.edit(a, name, func(cm *corev1.ConfigMap) { cm.Annotations = nil })
	}
	unpublish := func(name string) { w.edit(w.home, name, withoutLabel(w.label)) }
	change := func(name string) { w.edit(w.home, name, withData(map[string]string{"key": "two"})) }
	exchange := func(name string) {
		w.delete(w.home, name)
		w.createSource(w.home, name, setImmutable, withData(map[string]string{"key": "two"}))
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
		options := []option{}
		if c.immutable {
			options = append(options, setImmutable)
		}
		w.waitInSync(w.createSource(w.home, c.name, options...), a, b)
		reached, proceed := hook.holdNext(c.operation)
		c.decided(c.name)
		w.wait("the write of "+c.name, reached)
		theirs := c.meanwhile(c.name)
		proceed()
		w.waitRequests("the write of "+c.name+" is refused", 1, func(e cluster.Event) bool {
			return e.Object.Name == c.name && strings.EqualFold(e.Verb, string(c.operation)) && e.Response.Code == http.StatusConflict
		})
		w.settle(a, b)
		w.untouched(theirs)
	}

	reached, proceed := hook.holdNext(admissionv1.Create)
	source := w.createSource(w.home, "create")
	w.wait("the create", reached)
	theirs := w.create(a, "create")
	proceed()
	w.waitEvent(w.home, "create", "Foreign")
	w.waitInSync(source, b)
	w.untouched(theirs)
}
