package plugin

import (
	"errors"
	"strings"
	"testing"
	"unicode"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mirror-controller/mirror-controller/e2e/suite"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// TestC70Owner publishes as a user with edit in the source's namespace alone: right after an edit, with an old report
// there, without a controller, with a foreign ConfigMap in the way, and after the report has expired.
func TestC70Owner(t *testing.T) {
	t.Parallel()
	w := suite.New(t, "a", "b")
	a, b := w.NS("a"), w.NS("b")
	owner := newMember(w, "edit", w.Home)
	w.CreateSource(w.Home, "settings")
	const unknown, late = "platform/settings: NotKnown\nnot known: ", "Timed out after 2s"
	owner.says(2, "status settings", unknown+"no report of a controller of instance "+w.Instance)
	owner.says(2, "wait settings --timeout=2s", late)

	p := w.Start()
	const arrived = "platform/settings: InSync, 2 synced\nin sync in 2 namespaces, as the controller reported "
	owner.says(0, "wait settings", arrived)
	for _, change := range []string{"one", "two", "one"} { // each edit comes right after a report of another version
		source := w.Edit(w.Home, "settings", suite.WithKey("key", change))
		owner.says(0, "wait configmap/settings", arrived,
			"This is what the namespace shows; for the whole cluster: ")
		if err := errors.Join(w.InSync(source, a), w.InSync(source, b)); err != nil {
			t.Error(err)
		}
	}
	owner.says(0, "explain settings", arrived)
	owner.says(2, "status", "ask about a source or a copy by its name")

	w.Stop(p)
	w.Edit(w.Home, "settings", suite.WithKey("key", "four"))
	owner.says(1, "status settings",
		"platform/settings: NotYet\nnot yet: the newest report, ", " ago, is of another version")
	owner.says(1, "wait settings --timeout=2s", late)
	about := metav1.ListOptions{FieldSelector: "involvedObject.name=settings"} // the API server deletes it after an hour
	if err := w.Admin.CoreV1().Events(w.Home).DeleteCollection(w.Context(), metav1.DeleteOptions{}, about); err != nil {
		t.Fatal(err)
	}
	owner.says(2, "status settings", unknown)

	w.Create(b, "blocked")
	w.CreateSource(w.Home, "blocked")
	p = w.Start()
	const blocked = "; 0 held, 1 blocked"
	owner.says(0, "wait settings", arrived)
	owner.says(1, "wait blocked",
		"platform/blocked: OutOfSync, 1 synced\nin sync in 1 namespace, as the controller reported ",
		blocked+"\nWarning Foreign: Not copied to namespace team-b: ")
	owner.says(1, "status blocked", blocked)
	w.CreateSource(w.Home, "nowhere", suite.WithAnnotation(plan.PrefixAnnotation, "none-"))
	w.WaitEvent(w.Home, "nowhere", plan.ReasonNoTargets)
	waited := owner.says(1, "wait nowhere --timeout=2s", "platform/nowhere: NotYet\nnot yet: the controller has warned")
	if !strings.Contains(waited.err, "Warning NoTargets: ") {
		t.Errorf("wait does not say while it waits that there are no targets: %s", waited.err)
	}
	owner.says(0, "wait blocked --ignore-blocked", blocked)
	w.Stop(p)

	blind := newPerson(w, "blind", may("", "configmaps", "get"))
	blind.says(2, "status platform/settings", unknown+"events is forbidden: ")
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
	copied := "ConfigMap team-a/settings is a copy of platform/settings, by its annotations, of instance " + w.Instance
	const remedy = "\nTo change that: ask the owner of platform/settings to leave your namespace out, or opt out of all " +
		"copies, if you may patch the namespace: kubectl label namespace team-a mirror=false"
	tenant.prints(0, "explain settings", copied+". Its content matches its checksum."+remedy)
	tenant.says(2, "status settings", "no source team-a/settings")
}

// TestC69OddData has data that no YAML can hold: the copies are identical, and each command works and prints no control
// character.
func TestC69OddData(t *testing.T) {
	t.Parallel()
	w := suite.New(t, "a", "b")
	a, b := w.NS("a"), w.NS("b")
	odd := func(cm *corev1.ConfigMap) {
		cm.Data = map[string]string{
			"controls": "\x7f\u0080\u009f\ufffe\x1b[2J", "bom": "\ufefftext\r\nmore\r\n", "invalid": "\xff\xfe",
		}
		cm.BinaryData = map[string][]byte{"raw": {0, 0xff, 0xfe}}
	}
	p := w.Start()
	w.WaitInSync(w.CreateSource(w.Home, "settings", odd, suite.WithAnnotation("theirs", "\x7f\x1b[2J")), a, b)
	w.Stop(p)
	w.Edit(a, "settings", suite.WithKey("controls", "\x7f\x1b[2J"), suite.WithAnnotation("theirs", "\x7f\x1b[2J"))
	w.Delete(b, "settings")
	w.Create(b, "settings", odd, suite.WithKey("controls", "\u009b"))
	for command, code := range map[string]int{
		"status -A": 1, "status platform/settings": 1, "plan --diff": 1, "explain platform/settings": 0,
		"explain team-b/settings": 0, "explain team-a/settings": 0, "wait platform/settings": 1, "purge --dry-run": 0,
	} {
		for _, format := range []string{"table", "wide", "json"} {
			got := admin(w).says(code, command+" -o "+format, "")
			isControl := func(r rune) bool { return r != '\n' && r != '\t' && !unicode.IsPrint(r) }
			if at := strings.IndexFunc(got.out, isControl); at >= 0 {
				t.Errorf("%s -o %s: control character at %d of %q", command, format, at, got.out)
			}
		}
	}
}
