package plugin

import (
	"strings"
	"testing"
	"unicode"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mirror-controller/mirror-controller/e2e/suite"
)

// expire deletes the events about a source, as the API server does after an hour.
func expire(w *suite.World, name string) {
	w.Helper()
	about := metav1.ListOptions{FieldSelector: "involvedObject.name=" + name}
	if err := w.Admin.CoreV1().Events(w.Home).DeleteCollection(w.Context(), metav1.DeleteOptions{}, about); err != nil {
		w.Fatal(err)
	}
}

// TestC70Owner publishes as a user with edit in the source's namespace alone: right after an edit, with an old report
// there, without a controller, with a foreign ConfigMap in the way, and after the report has expired.
func TestC70Owner(t *testing.T) {
	t.Parallel()
	w := suite.New(t, "a", "b")
	a, b := w.NS("a"), w.NS("b")
	owner := newMember(w, "edit", w.Home)
	w.CreateSource(w.Home, "settings")
	expectIn(w, owner("status", "settings"), 2, "platform/settings: NotKnown\nnot known: no report of a controller of instance "+w.Instance)
	expectIn(w, owner("wait", "settings", "--timeout=2s"), 2, "Timed out after 2s")

	p := w.Start()
	const arrived = "platform/settings: InSync, 2 synced\nin sync in 2 namespaces, as the controller reported "
	expectIn(w, owner("wait", "settings"), 0, arrived)
	for _, change := range []string{"one", "two", "one"} { // a pipeline: each edit comes right after a report of another content
		source := w.Edit(w.Home, "settings", suite.WithKey("key", change))
		expectIn(w, owner("wait", "configmap/settings"), 0, arrived, "Only what is in the namespace counts: cannot find the controller: ")
		if err := w.InSync(source, a); err != nil {
			t.Error(err)
		}
		if err := w.InSync(source, b); err != nil {
			t.Error(err)
		}
	}
	expectIn(w, owner("explain", "settings"), 0, arrived)
	expectIn(w, owner("status"), 2, "cannot find the controller: ")

	w.Stop(p)
	w.Edit(w.Home, "settings", suite.WithKey("key", "four"))
	expectIn(w, owner("status", "settings"), 1, "platform/settings: NotYet\nnot yet: the newest report, ", " ago, is of other content")
	expectIn(w, owner("wait", "settings", "--timeout=2s"), 1, "Timed out after 2s")
	expire(w, "settings")
	expectIn(w, owner("status", "settings"), 2, "platform/settings: NotKnown\nnot known: ")

	w.Create(b, "blocked")
	w.CreateSource(w.Home, "blocked")
	p = w.Start()
	expectIn(w, owner("wait", "settings"), 0, arrived)
	got := owner("wait", "blocked")
	expectIn(w, got, 1, "platform/blocked: OutOfSync, 1 synced\nin sync in 1 namespace, as the controller reported ", "; 0 held, 1 blocked\nWarning Foreign: Not copied to namespace team-b: ")
	expectIn(w, owner("status", "blocked"), 1, "; 0 held, 1 blocked")
	expectIn(w, owner("wait", "blocked", "--ignore-blocked"), 0, "; 0 held, 1 blocked")
	w.Stop(p)

	blind := newPerson(w, "blind", may("", "configmaps", "get"))
	got = mirrorAs(w, blind, "status", w.Home+"/settings", "--mirror-label="+w.Label)
	expectIn(w, got, 2, "platform/settings: NotKnown\nnot known: list events: events is forbidden: ")
}

// TestC70Tenant asks as a user with view in a target alone whose copy a ConfigMap is. No command is for another
// namespace.
func TestC70Tenant(t *testing.T) {
	t.Parallel()
	w := suite.New(t, "a")
	a := w.NS("a")
	p := w.Start()
	w.WaitInSync(w.CreateSource(w.Home, "settings"), a)
	w.Stop(p)
	tenant := newMember(w, "view", a)
	const copied = "ConfigMap team-a/settings is a copy of platform/settings, by its annotations, of instance "
	const remedy = "\nTo change that: ask the owner of platform/settings to leave your namespace out, or opt out of all copies: kubectl label namespace team-a mirror=false"
	expect(w, tenant("explain", "settings"), 0, copied+w.Instance+". Its content matches its checksum."+remedy)
	w.Edit(a, "settings", suite.WithKey("key", "edited"))
	expectIn(w, tenant("explain", "settings"), 0, copied+w.Instance+". Its content does not match its checksum: somebody has edited it, ", remedy)
	expectIn(w, tenant("status", "settings"), 2, "no source team-a/settings")
	w.Create(a, "mine")
	expectIn(w, tenant("explain", "mine"), 0, "ConfigMap team-a/mine is no copy", "kubectl annotate -n team-a configmap mine mirror-controller.github.io/adopt=true")
}

// TestC69OddData has data that no YAML can hold: the copies are identical, and each command works and prints no control
// character.
func TestC69OddData(t *testing.T) {
	t.Parallel()
	w := suite.New(t, "a", "b")
	a, b := w.NS("a"), w.NS("b")
	odd := func(cm *corev1.ConfigMap) {
		cm.Data = map[string]string{"controls": "\x7f\u0080\u009f\ufffe\x1b[2J", "bom": "\ufefftext\r\nmore\r\n", "invalid": "\xff\xfe"}
		cm.BinaryData = map[string][]byte{"raw": {0, 0xff, 0xfe}}
	}
	p := w.Start()
	w.WaitInSync(w.CreateSource(w.Home, "settings", odd, suite.WithAnnotation("theirs", "\x7f\x1b[2J")), a, b)
	w.Stop(p)
	w.Edit(a, "settings", suite.WithKey("controls", "\x7f\x1b[2J"), suite.WithAnnotation("theirs", "\x7f\x1b[2J"))
	w.Delete(b, "settings")
	w.Create(b, "settings", odd, suite.WithKey("controls", "\u009b"))
	for command, code := range map[string]int{
		"status -A": 1, "status home/settings": 1, "plan --diff": 1, "explain home/settings": 0, "explain b/settings": 0, "explain a/settings": 0,
		"wait home/settings": 1, "purge --dry-run": 0,
	} {
		args := strings.Fields(strings.NewReplacer("home/", w.Home+"/", "b/", b+"/", "a/", a+"/").Replace(command))
		for _, format := range []string{"table", "wide", "json", "name"} {
			got := kubectlMirror(w, append(args, "-o", format)...)
			control := strings.IndexFunc(got.out, func(r rune) bool { return r != '\n' && r != '\t' && !unicode.IsPrint(r) })
			if got.code != code || control >= 0 {
				t.Errorf("%s -o %s: got exit code %d, control character at %d, want %d and none\n%q\n%s", command, format, got.code, control, code, got.out, got.err)
			}
		}
	}
}
