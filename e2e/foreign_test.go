package e2e

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/mirror-controller/mirror-controller/e2e/cluster"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// Objects in the way, and what may be deleted when: cases C11 to C18.

// TestC11ForeignObject has somebody's ConfigMap in the way: untouched, reported once and not at every resync, and
// copied once it is gone.
func TestC11ForeignObject(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "a", "b")
	a, b := w.ns("a"), w.ns("b")
	mine := w.create(a, "settings")
	w.start("--resync-period=100ms")
	source := w.createSource(w.home, "settings")
	w.waitInLine(source, b)
	if note := w.waitEvent(w.home, "settings", "Foreign"); !strings.Contains(note, a) || strings.Contains(note, b) {
		t.Errorf("the event does not say where, or too much: %s", note)
	}
	w.passes(5, b)
	source = w.edit(w.home, "settings", withData(map[string]string{"key": "two"}))
	w.waitInLine(source, b)
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
	w.waitInLine(source, a)
}

// TestC11LookedAtAgain leaves the foreign object to the retries, without any resync: a few requests, and the copy is
// there once the object is gone.
func TestC11LookedAtAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "a", "b")
	a, b := w.ns("a"), w.ns("b")
	mine := w.create(a, "settings")
	w.start("--resync-period=0")
	source := w.createSource(w.home, "settings")
	w.waitEvent(w.home, "settings", "Foreign")
	refused := func(e cluster.Event) bool {
		return e.Verb == "create" && e.Object.Namespace == a && e.Object.Name == "settings" && e.Response.Code == http.StatusConflict
	}
	w.waitRequests("it is looked at again", 2, refused)
	for range 5 { // time in which what is tried without patience would be tried often
		w.settle(b)
	}
	w.untouched(mine)
	w.delete(a, "settings")
	w.waitInLine(source, a, b)
	tries := 0
	for _, e := range w.requests() {
		if e.Object.Namespace == a && e.Object.Name == "settings" {
			tries++
		}
	}
	if tries > 20 {
		t.Errorf("%d requests for one object that was in the way for a few seconds", tries)
	}
}

// TestC11EditsKeepThePace edits the source again and again: that takes no object out of the way, and is no reason to
// try again before the time.
func TestC11EditsKeepThePace(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "a", "b")
	a, b := w.ns("a"), w.ns("b")
	mine := w.create(a, "settings")
	w.start()
	source := w.createSource(w.home, "settings")
	w.waitEvent(w.home, "settings", "Foreign")
	for i := range 50 {
		source = w.edit(w.home, "settings", withData(map[string]string{"key": fmt.Sprint(i)}))
		w.waitInLine(source, b)
	}
	tries := 0
	for _, e := range w.requests() {
		if e.Verb == "create" && e.Object.Namespace == a && e.Object.Name == "settings" {
			tries++
		}
	}
	if tries > 15 {
		t.Errorf("%d creates where an object is in the way, for 50 edits of the source", tries)
	}
	w.untouched(mine)
	w.delete(a, "settings")
	w.waitInLine(source, a)
}

// TestC12Adopted has owners hand over what is in the way: it becomes the copy, in one write, without the keys
// that the source does not have, and with other people's metadata. What must not be handed over is left alone.
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
	w.waitInLine(source, labelled)
	w.edit(unlabelled, "settings", adopt)
	w.edit(unchangeable, "settings", adopt, withLabel(w.label, "copy"))
	w.waitInLine(source, unlabelled, unchangeable)
	kept := []*corev1.ConfigMap{
		w.edit(publisher, "settings", adopt),
		w.edit(unsure, "settings", withAnnotation(plan.AdoptAnnotation, "false"), withLabel(w.label, "copy")),
	}
	w.passes(2, labelled)
	w.allUntouched(kept)
	w.sameObjects(before)
	for _, cm := range w.copies("settings", labelled, unlabelled, unchangeable) {
		if cm.Labels["team"] != "red" || cm.Annotations["note"] != "mine" {
			t.Errorf("other people's metadata went from the copy in %s: %v", cm.Namespace, cm.ObjectMeta)
		}
		if _, there := cm.Annotations[plan.AdoptAnnotation]; there {
			t.Errorf("the copy in %s is still to be adopted", cm.Namespace)
		}
	}
	w.expectWrites("settings", "update "+labelled, "update "+unlabelled, "delete "+unchangeable, "create "+unchangeable)

	w.edit(w.home, "settings", withoutLabel(w.label))
	w.waitInLine(kept[0], labelled, unlabelled, unchangeable) // its turn, now that the other has gone
	w.edit(publisher, "settings", withoutLabel(w.label))
	w.waitGone("settings", labelled, unlabelled, unchangeable)
	w.untouched(kept[1])
}

// noted returns a condition: one of the events of that reason on the source in the home namespace names all of
// these namespaces.
func (w *world) noted(name, reason string, namespaces ...string) func() error {
	return func() error {
		for _, e := range w.seen.EventsOn(w.home, name) {
			missing := func(namespace string) bool { return !strings.Contains(e.Note, namespace) }
			if e.Reason == reason && !slices.ContainsFunc(namespaces, missing) {
				return nil
			}
		}
		return errors.New("no event names them")
	}
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
		w.waitInLine(w.createSource(w.home, c.name, options...), a, b)
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
	w.waitInLine(source, b)
	w.untouched(theirs)
}

// TestC14WhileDown changes sources and flags while no controller runs: at the start the copies that are no longer
// wanted go, and no other is touched.
func TestC14WhileDown(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "a", "b", "c")
	a, b, c := w.ns("a"), w.ns("b"), w.ns("c")
	w.labelNamespace(a, "tier", "front")
	elsewhere := w.outside("elsewhere")
	p := w.start()
	for _, name := range []string{"deleted", "unlabelled", "relabelled", "narrowed", "selective", "kept"} {
		w.waitInLine(w.createSource(w.home, name), a, b, c)
	}
	w.waitInLine(w.createSource(elsewhere, "elsewhere"), a, b, c)
	w.stop(p)

	w.delete(w.home, "deleted")
	w.edit(w.home, "unlabelled", withoutLabel(w.label))
	w.edit(w.home, "relabelled", withLabel(w.label, "off"))
	w.edit(w.home, "narrowed", withAnnotation(plan.PrefixAnnotation, a))
	w.edit(w.home, "selective", withAnnotation(plan.SelectorAnnotation, "tier=front"))
	stay := append(w.copies("kept", a, b), w.live(a, "narrowed"), w.live(a, "selective"))
	p = w.start("--exclude-namespace="+c, "--source-namespace="+w.home)
	w.waitGone("deleted", a, b, c)
	w.waitGone("unlabelled", a, b, c)
	w.waitGone("relabelled", a, b, c)
	w.waitGone("narrowed", b, c)
	w.waitGone("selective", b, c)
	w.waitGone("kept", c)
	w.waitGone("elsewhere", a, b, c)
	w.settle(a, b)
	w.allUntouched(stay)
	w.stop(p)

	w.startExactly("--namespace-prefix=" + a)
	w.waitGone("kept", b)
	w.settle(a)
	w.allUntouched([]*corev1.ConfigMap{stay[0], stay[2], stay[3]})
}

// TestC15SourceRecreated deletes a source and creates it anew at once, a hundred times: with the same data not one
// copy is deleted, not one is written; with other data they are updated where they are.
func TestC15SourceRecreated(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "a", "b", "c")
	a, b, c := w.ns("a"), w.ns("b"), w.ns("c")
	w.start()
	w.waitInLine(w.createSource(w.home, "settings"), a, b, c)
	copies, late := w.copies("settings", a, b, c), 0
	for i := range 100 {
		source, inTime := w.replaceSource("settings")
		w.tick(i, a, b, c)
		if !inTime {
			w.waitInLine(source, a, b, c)
			copies = w.copies("settings", a, b, c)
			late++
		}
		w.allUntouched(copies)
		if t.Failed() {
			t.Fatalf("in round %d", i)
		}
	}
	for i := range 20 {
		source, inTime := w.replaceSource("settings", withData(map[string]string{"round": string(rune('a' + i))}))
		w.waitInLine(source, a, b, c)
		if !inTime {
			copies = w.copies("settings", a, b, c)
			late++
		}
	}
	t.Logf("%d of 120 sources came back too late to count", late)
	// Until those are gone whose second began after the last round.
	w.waitInLine(w.createSource(w.home, "last"), a, b, c)
	w.delete(w.home, "last")
	w.waitGone("last", a, b, c)
	w.sameObjects(copies)
	deletions := 0
	for _, e := range writesTo(w.requests(), "settings") {
		if e.Verb == "delete" {
			deletions++
		}
	}
	if deletions > 3*late {
		t.Errorf("%d copies were to be deleted, want those of %d sources that came too late at most", deletions, late)
	}
	if late > 60 {
		t.Error("this machine is too slow to tell")
	}
}

// recreationGrace is for how long the copies of a deleted source are kept, at the least.
const recreationGrace = time.Second

// replaceSource deletes a source, and creates it anew at once. inTime is set if that was before its copies may go: on a
// machine that stands still it need not be.
func (w *world) replaceSource(name string, options ...option) (source *corev1.ConfigMap, inTime bool) {
	w.Helper()
	began := time.Now()
	w.delete(w.home, name)
	source = w.createSource(w.home, name, options...)
	return source, time.Since(began) < recreationGrace
}

// inTime repeats what is only worth something with a source that came back in time, and reports whether it did.
func (w *world) inTime(try func() bool) {
	w.Helper()
	for range 5 {
		if try() {
			return
		}
	}
	w.Error("this machine is too slow to tell")
}

// tick has the controller bring an edit of a source that nothing else is done to into each of the namespaces:
// cheaper than settle, and as good where nothing can be in the way.
func (w *world) tick(i int, namespaces ...string) {
	w.Helper()
	data := withData(map[string]string{"tick": string(rune('a' + i%26))})
	if i == 0 {
		w.createSource(w.home, "tick")
	}
	w.waitInLine(w.edit(w.home, "tick", data), namespaces...)
}

// TestC16SourceBeingDeleted has a finalizer keep a deleted source: it counts as gone, also for a controller that
// starts then, and a namesake takes over its copies in place.
func TestC16SourceBeingDeleted(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "a", "b")
	a, b := w.ns("a"), w.ns("b")
	const finalizer = "example.com/hold"
	held := func(cm *corev1.ConfigMap) { cm.Finalizers = []string{finalizer} }
	free := func(cm *corev1.ConfigMap) { cm.Finalizers = nil }
	namesake := w.createSource(a, "contested")
	p := w.start()
	w.waitInLine(w.createSource(w.home, "alone", held), a, b)
	w.waitInLine(w.createSource(w.home, "contested", held), b)
	w.waitEvent(a, "contested", "Superseded")
	copies := w.copies("contested", b)

	w.delete(w.home, "alone")
	w.delete(w.home, "contested")
	w.waitInLine(namesake, b)
	w.sameObjects(copies)
	w.waitGone("alone", a, b)
	w.edit(w.home, "alone", withData(map[string]string{"key": "two"}))
	w.edit(w.home, "contested", withData(map[string]string{"key": "two"}))
	copies = w.copies("contested", b)
	w.settle(a, b)
	w.stop(p)
	w.start()
	w.settle(a, b)
	w.absent("alone", a, b)
	w.allUntouched(append(copies, namesake))

	w.edit(w.home, "alone", free)
	w.edit(w.home, "contested", free)
	source := w.createSource(w.home, "alone")
	w.waitInLine(source, a, b)
	w.waitInLine(w.createSource(w.home, "contested"), b)
	w.sameObjects(copies)
}

// TestC17Brake starts the controller with a typo in the prefix: it deletes nothing, says so, and goes on mirroring, also
// the deletion of sources. The right prefix finds everything in place. The typo with --prune-limit=100% is believed.
func TestC17Brake(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "typo-a")
	targets, typo := w.createMany(12), w.ns("typo-a")
	right, wrong := "--namespace-prefix="+w.ns("n"), "--namespace-prefix="+w.ns("typo-")
	p := w.startExactly(right)
	source := w.createSource(w.home, "settings")
	w.waitInLine(source, targets...)
	w.waitInLine(w.createSource(w.home, "temporary"), targets...)
	copies := w.copies("settings", targets...)
	w.stop(p)

	const served = "--metrics-bind-address=127.0.0.1:0"
	blocked := func(copies float64) map[string]float64 { return map[string]float64{`mirror_prune_blocked`: copies} }
	p = w.startExactly(wrong, served, "--resync-period=200ms", "--health-probe-bind-address=127.0.0.1:0")
	w.waitInLine(source, typo)
	w.until("ready behind the brake", func() error { return w.probe(p, "/readyz") })
	w.waitEvent(w.home, "settings", "PruneBlocked")
	w.waitMetrics("the copies of both sources", p, blocked(2*12))
	w.delete(w.home, "temporary")
	w.waitGone("temporary", append(targets, typo)...)
	w.passes(3, typo)
	w.allUntouched(copies)
	w.waitMetrics("the copies of one source", p, blocked(12))
	w.stop(p)

	p = w.startExactly(right, served)
	w.waitGone("settings", typo)
	w.settle(targets...)
	w.allUntouched(copies)
	w.waitMetrics("the right prefix", p, blocked(0))
	if writes := w.waitWrites("settings", 12+2); len(writes) != 12+2 || writes[13] != "delete "+typo {
		t.Errorf("writes: %q, want 12 creates with the right prefix, 1 with the wrong one, and that it goes again", writes)
	}
	w.stop(p)

	p = w.startExactly(wrong, served, "--prune-limit=100%")
	w.waitGone("settings", targets...)
	w.waitInLine(source, typo)
	w.waitMetrics("the wrong prefix is believed", p, blocked(0))
}

// TestC17BrakeCountsWhatWouldGo: copies that another source takes over are not deleted, and so not counted.
func TestC17BrakeCountsWhatWouldGo(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	targets := w.createMany(12)
	second := w.createNamespace("second-"+w.instance, nil).Name
	first := w.createSource(w.home, "settings")
	p := w.start("--source-namespace=" + w.home)
	w.waitInLine(first, targets...)
	copies := w.copies("settings", targets...)
	w.stop(p)
	successor := w.createSource(second, "settings", withData(map[string]string{"key": "second"}))
	w.start("--source-namespace=" + second)
	w.waitInLine(successor, targets...)
	w.sameObjects(copies)
	w.waitEvent(second, "settings", "Mirrored") // events are written in order, and that of the brake would come first
	for _, namespace := range []string{w.home, second} {
		for _, event := range w.seen.EventsOn(namespace, "settings") {
			if event.Reason == "PruneBlocked" {
				t.Errorf("on %s: %s", namespace, event.Note)
			}
		}
	}
}

// TestC18Reinstalled takes the controller away, once by force, and installs it again: the copies are kept,
// recognised, and not written; what changed meanwhile is caught up with.
func TestC18Reinstalled(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "a", "b")
	a, b := w.ns("a"), w.ns("b")
	p := w.start("--copy-label=team")
	source := w.createSource(w.home, "settings", withLabel("team", "red"))
	fixed := w.createSource(w.home, "fixed", setImmutable)
	w.waitInLine(source, a, b)
	w.waitInLine(fixed, a, b)
	w.settle(a, b)
	copies := append(w.copies("settings", a, b), w.copies("fixed", a, b)...)
	for round := range 4 {
		if round%2 == 0 {
			p.Kill()
		} else {
			w.stop(p)
		}
		w.allUntouched(copies)
		mark := w.auditMark()
		p = w.start("--copy-label=team")
		w.settle(a, b)
		for _, name := range []string{"settings", "fixed"} {
			if writes := writesTo(w.requestsSince(mark), name); len(writes) > 0 {
				t.Errorf("the restart wrote: %v", writes)
			}
		}
	}
	w.allUntouched(copies)
	w.stop(p)
	source = w.edit(w.home, "settings", withData(map[string]string{"key": "two"}))
	c := w.createNamespace(w.ns("c"), nil).Name
	w.start("--copy-label=team")
	w.waitInLine(source, a, b, c)
	w.waitInLine(fixed, c)
	w.sameObjects(copies)
}
