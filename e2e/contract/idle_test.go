package contract

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/mirror-controller/mirror-controller/e2e/suite"
)

// TestC40Idle kills a controller, and writes what makes no difference: empty maps in place of absent ones, keys in
// another order, immutable absent or false, metadata that does not travel. The next controller compares everything
// again and again, and sends no request but those of its watches, and those for the sources of Settle.
// Cases C18 and C21.
func TestC40Idle(t *testing.T) {
	t.Parallel()
	w := suite.New(t)
	targets := w.CreateMany(10)
	flags := []string{"--copy-label=team", "--copy-annotation=note", "--resync-period=100ms"}
	p := w.Start(flags...)
	rows := []struct {
		name    string
		content suite.Option
		again   string // the same, in JSON
	}{
		{"empty", suite.WithData(nil), `"data": {}, "binaryData": {}, "immutable": false`},
		{"text", suite.WithData(map[string]string{"a": "1", "b": "2"}), `"binaryData": {}, "data": {"b": "2", "a": "1"}`},
		{"binary", func(cm *corev1.ConfigMap) { cm.Data, cm.BinaryData = nil, map[string][]byte{"a": {1}, "b": {}} },
			`"immutable": null, "binaryData": {"b": "", "a": "AQ=="}`},
		{"fixed", func(cm *corev1.ConfigMap) { suite.SetImmutable(cm); cm.Data = nil }, `"immutable": true, "data": {}`},
	}
	var copies []*corev1.ConfigMap
	for _, r := range rows {
		source := w.CreateSource(w.Home, r.name, r.content, suite.WithLabel("team", "red"), suite.WithAnnotation("note", "x"))
		w.WaitInSync(source, targets...)
		copies = append(copies, w.Copies(r.name, targets...)...)
	}
	w.Settle(targets[0])
	p.Kill()
	for _, r := range rows {
		replaceJSON(w, r.name, r.again)
	}
	mark := w.AuditMark()
	w.Start(flags...)
	w.Settle(targets[0]) // when it has dealt with a new source, it has done everything
	w.Settle(targets[0])
	for _, e := range w.RequestsSince(mark) {
		switch {
		case e.Verb == "watch", e.Verb == "list", e.Object.Resource == "events": // a list begins a watch
		case strings.HasPrefix(e.Object.Name, "settle-"):
		case e.Verb == "get" && e.Object.Resource == "namespaces" && e.Object.Name == targets[0]: // it deletes the copy there
		default:
			t.Errorf("request without need: %v", e)
		}
	}
	w.Untouched(copies...)
}

// replaceJSON replaces a source by what is written in JSON, in that order, and adds metadata that does not travel.
func replaceJSON(w *suite.World, name, content string) {
	w.Helper()
	body := fmt.Sprintf(`{"apiVersion": "v1", "kind": "ConfigMap", %s, "metadata": {"name": %q,
		"labels": {%q: "true", "team": "red"}, "annotations": {"note": "x", "after": "y"}}}`, content, name, w.Label)
	err := w.Admin.CoreV1().RESTClient().Put().Namespace(w.Home).Resource("configmaps").Name(name).
		SetHeader("Content-Type", "application/json").Body([]byte(body)).Do(w.Context()).Error()
	if err != nil {
		w.Fatal(err)
	}
}
