package e2e

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mirror-controller/mirror-controller/e2e/cluster"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// The content of a copy: cases C19 to C21, and C25.

// TestC19CopyEdited edits a copy in every way, the checksum annotation untouched or it alone: restored in place, also
// if nobody watched.
func TestC19CopyEdited(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "a", "b")
	a, b := w.ns("a"), w.ns("b")
	edits := map[string][]option{
		"changed value":  {withKey("one", "other")},
		"extra key":      {withKey("three", "3")},
		"removed key":    {withoutKey("one")},
		"renamed key":    {withoutKey("one"), withKey("eno", "1")},
		"swapped values": {withKey("one", "2"), withKey("two", "1")},
		"extra binary":   {withBinaryData(map[string][]byte{"three": {3}})},
		"emptied":        {withData(nil)},
		"checksum alone": {withAnnotation(plan.ChecksumAnnotation, "sha256:"+strings.Repeat("0", 64))},
		"all at once":    {withKey("three", "3"), withoutKey("one"), withoutAnnotation(plan.ChecksumAnnotation)},
	}
	p := w.start()
	source := w.createSource(w.home, "settings", withData(map[string]string{"one": "1", "two": "2"}))
	w.waitInSync(source, a, b)
	copies := w.copies("settings", a, b)
	right := copies[0].Annotations[plan.ChecksumAnnotation]
	waitRestored := func(what string) {
		t.Helper()
		w.eventually(what+" is restored", func() error {
			if now := w.shown(a, "settings").Annotations[plan.ChecksumAnnotation]; now != right {
				return fmt.Errorf("the checksum is %s, want %s", now, right)
			}
			return w.inSync(source, a)
		})
	}
	for what, edit := range edits {
		w.edit(a, "settings", edit...)
		waitRestored(what)
	}
	for what, edit := range edits {
		w.stop(p)
		w.edit(a, "settings", edit...)
		p = w.start()
		waitRestored(what + " before the start")
	}
	w.sameObjects(copies)
	w.untouched(copies[1])
}

// TestC20BinaryData moves keys between data and binaryData, takes them away, and has empty values and keys only in
// binaryData: the copies follow whole.
func TestC20BinaryData(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "a")
	a := w.ns("a")
	w.start()
	source := w.createSource(w.home, "settings", withData(nil))
	w.waitInSync(source, a)
	copies := w.copies("settings", a)
	type data map[string]string
	type binary map[string][]byte
	for _, step := range []struct {
		data   data
		binary binary
	}{
		{data{"key": "value", "stays": "here"}, nil},
		{data{"stays": "here"}, binary{"key": []byte("value")}}, // moved, its bytes the same
		{data{"key": "value", "stays": "here"}, nil},
		{data{"stays": "here"}, binary{"key": {0, 255}, "other": {1}}},
		{data{"stays": "here"}, binary{"other": {1}}},
		{nil, binary{"other": {1}}},
		{nil, binary{"other": {}}},
		{data{"other": ""}, nil},
		{data{"other": "", "another": ""}, binary{"third": {}}},
		{nil, nil},
		{nil, binary{"only": {0}}},
	} {
		source = w.edit(w.home, "settings", withData(step.data), withBinaryData(step.binary))
		w.waitInSync(source, a)
	}
	w.edit(a, "settings", withData(map[string]string{"only": "\x00"}), withBinaryData(nil)) // the same bytes elsewhere
	w.waitInSync(source, a)
	w.sameObjects(copies)
}

// TestC21NothingToDo changes what makes no difference: absent against empty maps, the order of keys, immutable absent
// against false, metadata that does not travel. Then it lets many resyncs pass. No object is written.
func TestC21NothingToDo(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	targets := w.createMany(10)
	w.start("--resync-period=100ms", "--copy-label=team", "--copy-annotation=note")
	sources := []*corev1.ConfigMap{
		w.createSource(w.home, "empty", withData(nil)),
		w.createSource(w.home, "text", withData(map[string]string{"a": "1", "b": "2", "c": "3"})),
		w.createSource(w.home, "binary", withData(nil), withBinaryData(map[string][]byte{"a": {1}, "b": {}})),
		w.createSource(w.home, "fixed", setImmutable),
		w.createSource(w.home, "travels", withLabel("team", "red"), withAnnotation("note", "x"), withLabel("stays", "x")),
	}
	var copies []*corev1.ConfigMap
	for _, source := range sources {
		w.waitInSync(source, targets...)
		copies = append(copies, w.copies(source.Name, targets...)...)
	}
	w.passes(1, targets[0])
	mark := w.auditMark()
	for name, content := range map[string]string{
		"empty":  `"data": {}, "binaryData": {}, "immutable": false`,
		"text":   `"binaryData": {}, "data": {"c": "3", "a": "1", "b": "2"}`,
		"binary": `"immutable": null, "binaryData": {"b": "", "a": "AQ=="}`,
	} {
		w.replaceJSON(w.home, name, content)
	}
	before := w.versions(targets...)
	w.passes(5, targets[0])
	if after := w.versions(targets...); !maps.Equal(before, after) {
		t.Errorf("objects were written: %v, before %v", after, before)
	}
	w.allUntouched(copies)
	for _, source := range sources {
		if writes := writesTo(w.requestsSince(mark), source.Name); len(writes) > 0 {
			t.Errorf("writes, if only tried: %v", writes)
		}
	}
}

// versions returns the resourceVersions of all there is in the home namespace and in others, by kind, namespace and
// name, but for what passes needs and what the cluster itself writes.
func (w *world) versions(namespaces ...string) map[string]string {
	w.Helper()
	out := map[string]string{}
	for _, namespace := range append(namespaces, w.home) {
		ns, err := w.admin.CoreV1().Namespaces().Get(w.ctx, namespace, metav1.GetOptions{})
		if err != nil {
			w.Fatal(err)
		}
		out["namespace "+namespace] = ns.ResourceVersion
		cms, err := w.admin.CoreV1().ConfigMaps(namespace).List(w.ctx, metav1.ListOptions{})
		if err != nil {
			w.Fatal(err)
		}
		for _, cm := range cms.Items {
			if !strings.HasPrefix(cm.Name, "pass-") && cm.Name != "kube-root-ca.crt" {
				out["configmap "+namespace+"/"+cm.Name] = cm.ResourceVersion
			}
		}
	}
	return out
}

// replaceJSON replaces a source by what is written in JSON, in that order, and a change in its metadata that does
// not travel.
func (w *world) replaceJSON(namespace, name, content string) {
	w.Helper()
	before := w.live(namespace, name)
	body := fmt.Sprintf(`{"apiVersion": "v1", "kind": "ConfigMap", %s, "metadata": {"name": %q, "labels": {%q: "true"},
		"annotations": {"after": %q}}}`, content, name, w.label, before.ResourceVersion)
	err := w.admin.CoreV1().RESTClient().Put().Namespace(namespace).Resource("configmaps").Name(name).
		SetHeader("Content-Type", "application/json").Body([]byte(body)).Do(w.ctx).Error()
	if err != nil {
		w.Fatal(err)
	}
	if now := w.live(namespace, name); now.ResourceVersion == before.ResourceVersion {
		w.Errorf("%s was not written", name)
	}
}

// TestC25LargeSources has a source with as much data as fits, which is copied, and one that leaves no room for the
// marks of a copy: refused, reported with the reason, tried again without haste, and others go on.
func TestC25LargeSources(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "a", "b")
	a, b := w.ns("a"), w.ns("b")
	const mebibyte, allAnnotations = 1 << 20, 256 << 10
	w.start("--copy-annotation=example.com/*", "--resync-period=0")
	large := w.createSource(w.home, "large", withData(map[string]string{"key": strings.Repeat("x", mebibyte)}))
	w.waitInSync(large, a, b)
	large = w.edit(w.home, "large", withData(nil), withBinaryData(map[string][]byte{"key": make([]byte, mebibyte)}))
	w.waitInSync(large, a, b)

	const key = "example.com/long"
	w.waitInSync(w.createSource(w.home, "long", withAnnotation(key, "not yet")), a, b)
	copies := w.copies("long", a, b)
	began := time.Now()
	w.edit(w.home, "long", withAnnotation(key, strings.Repeat("x", allAnnotations-len(key))))
	note := w.waitEvent(w.home, "long", "WriteFailed")
	if !strings.Contains(note, "annotations") || !strings.Contains(note, a) {
		t.Errorf("the event does not say what is wrong, and where: %s", note)
	}
	refused := func(e cluster.Event) bool {
		return e.Object.Name == "long" && e.Response.Code == http.StatusUnprocessableEntity
	}
	w.waitRequests("it is tried again", 2*3, refused)
	w.settle(a, b)
	w.allUntouched(copies)
	large = w.edit(w.home, "large", withBinaryData(nil))
	w.waitInSync(large, a, b)
	for _, namespace := range []string{a, b} {
		w.expectPaced(began, 1, 1, slices.DeleteFunc(requestsFor(w.requests(), namespace, "long"), func(e cluster.Event) bool { return !refused(e) }))
	}
	long := w.edit(w.home, "long", withAnnotation(key, "short"))
	w.eventually("the copies follow", func() error {
		for _, namespace := range []string{a, b} {
			if w.shown(namespace, "long").Annotations[key] != "short" {
				return errors.New("not in " + namespace)
			}
		}
		return nil
	})
	w.waitInSync(long, a, b)
	if n := w.reasons(w.home, "long")["WriteFailed"]; n > 2 {
		t.Errorf("%d events about one refusal, want one, or two if it came in two", n)
	}
}
