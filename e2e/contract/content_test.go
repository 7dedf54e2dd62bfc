package contract

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/mirror-controller/mirror-controller/e2e/cluster"
	"github.com/mirror-controller/mirror-controller/e2e/suite"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// The content of a copy: cases C19 to C21, and C25.

// TestC19CopyEdited edits a copy in every way, the checksum annotation untouched or it alone: restored in place, also
// if nobody watched. It moves a key to binaryData, too: the bytes are the same, and the copy is not.
func TestC19CopyEdited(t *testing.T) {
	t.Parallel()
	w := suite.New(t, "a", "b")
	a, b := w.NS("a"), w.NS("b")
	edits := map[string][]suite.Option{
		"changed value":  {suite.WithKey("one", "other")},
		"extra key":      {suite.WithKey("three", "3")},
		"removed key":    {suite.WithoutKey("one")},
		"renamed key":    {suite.WithoutKey("one"), suite.WithKey("eno", "1")},
		"swapped values": {suite.WithKey("one", "2"), suite.WithKey("two", "1")},
		"extra binary":   {suite.WithBinaryData(map[string][]byte{"three": {3}})},
		"emptied":        {suite.WithData(nil)},
		"moved":          {suite.WithoutKey("one"), suite.WithBinaryData(map[string][]byte{"one": []byte("1")})},
		"checksum alone": {suite.WithAnnotation(plan.ChecksumAnnotation, "sha256:"+strings.Repeat("0", 64))},
		"all at once":    {suite.WithKey("three", "3"), suite.WithoutKey("one"), suite.WithoutAnnotation(plan.ChecksumAnnotation)},
	}
	p := w.Start()
	source := w.CreateSource(w.Home, "settings", suite.WithData(map[string]string{"one": "1", "two": "2"}))
	w.WaitInSync(source, a, b)
	copies := w.Copies("settings", a, b)
	right := copies[0].Annotations[plan.ChecksumAnnotation]
	waitRestored := func(what string) {
		t.Helper()
		w.Eventually(what+" is restored", func() error {
			if now := w.Seen.ConfigMap(a, "settings").Annotations[plan.ChecksumAnnotation]; now != right {
				return fmt.Errorf("the checksum is %s, want %s", now, right)
			}
			return w.InSync(source, a)
		})
	}
	for what, edit := range edits {
		w.Edit(a, "settings", edit...)
		waitRestored(what)
	}
	w.Stop(p)
	w.Edit(a, "settings", edits["all at once"]...)
	w.Start()
	waitRestored("an edit before the start")
	w.SameObjects(copies)
	w.Untouched(copies[1])
}

// TestC21NothingToDo changes what makes no difference: absent against empty maps, the order of keys, immutable absent
// against false, metadata that does not travel. Then it lets many resyncs pass. No object is written.
func TestC21NothingToDo(t *testing.T) {
	t.Parallel()
	w := suite.New(t)
	targets := w.CreateMany(10)
	w.Start("--resync-period=100ms", "--copy-label=team", "--copy-annotation=note")
	sources := []*corev1.ConfigMap{
		w.CreateSource(w.Home, "empty", suite.WithData(nil)),
		w.CreateSource(w.Home, "text", suite.WithData(map[string]string{"a": "1", "b": "2", "c": "3"})),
		w.CreateSource(w.Home, "binary", suite.WithData(nil), suite.WithBinaryData(map[string][]byte{"a": {1}, "b": {}})),
		w.CreateSource(w.Home, "fixed", suite.SetImmutable),
		w.CreateSource(w.Home, "travels", suite.WithLabel("team", "red"), suite.WithAnnotation("note", "x"),
			suite.WithLabel("stays", "x")),
	}
	var copies []*corev1.ConfigMap
	for _, source := range sources {
		w.WaitInSync(source, targets...)
		copies = append(copies, w.Copies(source.Name, targets...)...)
	}
	w.Passes(1, targets[0])
	mark := w.AuditMark()
	for name, content := range map[string]string{
		"empty":  `"data": {}, "binaryData": {}, "immutable": false`,
		"text":   `"binaryData": {}, "data": {"c": "3", "a": "1", "b": "2"}`,
		"binary": `"immutable": null, "binaryData": {"b": "", "a": "AQ=="}`,
	} {
		replaceJSON(w, w.Home, name, content)
	}
	w.Passes(5, targets[0])
	w.AllUntouched(copies)
	for _, source := range sources {
		if writes := suite.WritesTo(w.RequestsSince(mark), source.Name); len(writes) > 0 {
			t.Errorf("writes, if only tried: %v", writes)
		}
	}
}

// replaceJSON replaces a source by what is written in JSON, in that order, and a change in its metadata that does
// not travel.
func replaceJSON(w *suite.World, namespace, name, content string) {
	w.Helper()
	before := w.Live(namespace, name)
	body := fmt.Sprintf(`{"apiVersion": "v1", "kind": "ConfigMap", %s, "metadata": {"name": %q, "labels": {%q: "true"},
		"annotations": {"after": %q}}}`, content, name, w.Label, before.ResourceVersion)
	err := w.Admin.CoreV1().RESTClient().Put().Namespace(namespace).Resource("configmaps").Name(name).
		SetHeader("Content-Type", "application/json").Body([]byte(body)).Do(w.Context()).Error()
	if err != nil {
		w.Fatal(err)
	}
	if now := w.Live(namespace, name); now.ResourceVersion == before.ResourceVersion {
		w.Errorf("%s was not written", name)
	}
}

// TestC25LargeSources has a source with as much data as fits, which is copied, and one that leaves no room for the
// marks of a copy: refused, reported with the reason, tried again without haste, and others go on.
func TestC25LargeSources(t *testing.T) {
	t.Parallel()
	w := suite.New(t, "a", "b")
	a, b := w.NS("a"), w.NS("b")
	const mebibyte, allAnnotations = 1 << 20, 256 << 10
	w.Start("--copy-annotation=example.com/*", "--resync-period=0")
	large := w.CreateSource(w.Home, "large", suite.WithData(map[string]string{"key": strings.Repeat("x", mebibyte)}))
	w.WaitInSync(large, a, b)
	large = w.Edit(w.Home, "large", suite.WithData(nil), suite.WithBinaryData(map[string][]byte{"key": make([]byte, mebibyte)}))
	w.WaitInSync(large, a, b)

	const key = "example.com/long"
	w.WaitInSync(w.CreateSource(w.Home, "long", suite.WithAnnotation(key, "not yet")), a, b)
	copies := w.Copies("long", a, b)
	w.Edit(w.Home, "long", suite.WithAnnotation(key, strings.Repeat("x", allAnnotations-len(key))))
	note := w.WaitEvent(w.Home, "long", "WriteFailed")
	if !strings.Contains(note, "annotations") || !strings.Contains(note, a) {
		t.Errorf("the event does not say what is wrong, and where: %s", note)
	}
	w.WaitRequests("it is tried again", 2*2, func(e cluster.Event) bool {
		return e.Object.Name == "long" && e.Response.Code == http.StatusUnprocessableEntity
	})
	w.WaitInSync(w.Edit(w.Home, "large", suite.WithBinaryData(nil)), a, b)
	w.AllUntouched(copies)
	w.WaitInSync(w.Edit(w.Home, "long", suite.WithAnnotation(key, "short"), suite.WithData(map[string]string{"key": "two"})), a, b)
}
