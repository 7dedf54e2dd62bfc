package plugin

import (
	"strings"
	"testing"
	"time"
	"unicode"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mirror-controller/mirror-controller/e2e/suite"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// states asks an admin, who reads the cluster, and a publisher, who has edit in the namespace of the sources, and wants
// the same of both.
type states struct {
	w                *suite.World
	admin, publisher *user
}

// wait waits as both for a source: it ends with the code, or with that of --ignore-blocked, and prints first what status
// does.
func (s states) wait(code, ignoring int, source, first string) {
	s.w.Helper()
	for _, u := range []*user{s.admin, s.publisher} {
		s.w.Until("it says "+first, func() error { return u.ask("wait platform/"+source+" --timeout=2s").lacks(code, first) })
		u.says(ignoring, "wait platform/"+source+" --timeout=2s --ignore-blocked", first)
		u.says(min(code, 1), "status platform/"+source, first)
	}
}

// TestC70States is the table of the help, once by reading the cluster and once by events alone. Each change is followed
// by a wait at once: what was reported before the change does not count.
func TestC70States(t *testing.T) {
	t.Parallel()
	w := suite.New(t, "a", "b", "c")
	a, b, c := w.NS("a"), w.NS("b"), w.NS("c")
	s := states{w, admin(w), newMember(w, "edit", w.Home)}
	w.CreateSource(w.Home, "settings", suite.WithAnnotation(plan.PrefixAnnotation, a))
	s.publisher.says(2, "status settings", "platform/settings: NotKnown\nno report of a controller of instance "+w.Instance)
	s.publisher.says(2, "wait settings --timeout=2s", "Timed out after 2s")
	p := w.Start(suite.Graced(time.Hour)...)
	arrives := func(counts string, targets ...string) {
		t.Helper()
		for _, u := range []*user{s.publisher, s.admin} {
			u.says(0, "wait platform/settings", "platform/settings: InSync, "+counts)
		}
		for _, target := range targets {
			if err := w.InSync(w.Live(w.Home, "settings"), target); err != nil {
				t.Error(err)
			}
		}
	}
	arrives("1 synced", a)
	w.Edit(w.Home, "settings", suite.WithoutAnnotation(plan.PrefixAnnotation))
	arrives("3 synced", a, b, c)
	for _, value := range []string{"one", "two", "one"} { // within ten seconds, and back
		w.Edit(w.Home, "settings", suite.WithKey("key", value))
		arrives("3 synced", a, b, c)
	}
	w.Edit(w.Home, "settings", suite.WithAnnotation(plan.RolloutAnnotation, "kubernetes.io/metadata.name="+a),
		suite.WithKey("key", "three"))
	arrives("1 synced, 2 held", a)
	w.Edit(w.Home, "settings", suite.WithoutAnnotation(plan.RolloutAnnotation))
	arrives("3 synced", a, b, c)
	w.Edit(w.Home, "settings", suite.WithAnnotation(plan.PrefixAnnotation, a))
	arrives("1 synced, 2 expiring", a)
	w.Edit(w.Home, "settings", suite.WithoutAnnotation(plan.PrefixAnnotation))
	arrives("3 synced", a, b, c)

	// Without a controller the last report is of another version, and then there is none.
	w.Stop(p)
	w.Edit(w.Home, "settings", suite.WithKey("key", "four"))
	s.publisher.says(1, "status settings", "platform/settings: Pending\nthe controller has not reported on this version")
	s.wait(1, 1, "settings", "platform/settings: Pending")
	p = w.Start(suite.Graced(time.Hour)...)
	arrives("3 synced", a, b, c)

	lift := w.FillQuota(c, 2)
	w.CreateSource(w.Home, "rejected")
	w.Create(b, "blocked")
	w.CreateSource(w.Home, "blocked", suite.WithAnnotation(plan.PrefixAnnotation, a+","+b))
	w.CreateSource(w.Home, "frozen", suite.WithAnnotation(plan.PausedAnnotation, "yes"))
	w.CreateSource(w.Home, "nowhere", suite.WithAnnotation(plan.PrefixAnnotation, "none-"))
	s.wait(1, 0, "rejected", "platform/rejected: Rejected, 2 synced, 1 rejected")
	s.wait(1, 0, "blocked", "platform/blocked: Blocked, 1 synced, 1 foreign")
	s.wait(1, 1, "frozen", "platform/frozen: Frozen")
	s.wait(1, 1, "nowhere", "platform/nowhere: NoTargets")
	lift()
	for _, u := range []*user{s.admin, s.publisher} {
		u.says(0, "wait platform/rejected platform/settings", "platform/rejected: InSync", "platform/settings: InSync")
		u.says(1, "wait platform/rejected platform/blocked", "platform/rejected: InSync", "platform/blocked: Blocked")
		u.says(1, "status -n platform", "settings  InSync", "blocked  Blocked", "frozen  Frozen", "nowhere  NoTargets")
	}

	// A source that is gone: until when its copies stay, and how to keep them. A copy names its source.
	w.Delete(w.Home, "rejected")
	w.WaitEvent(w.Home, "rejected", plan.ReasonExpiring)
	for _, u := range []*user{s.admin, s.publisher} {
		for _, command := range []string{"status", "wait"} {
			u.says(1, command+" platform/rejected", "platform/rejected: Gone", "Expiring: 3 copies in 3 namespaces")
		}
	}
	s.admin.says(2, "wait team-a/settings", "team-a/settings is a copy of platform/settings: ask about that")
	w.Stop(p)
	about := metav1.ListOptions{FieldSelector: "involvedObject.name=settings"} // the API server deletes it after an hour
	if err := w.Admin.CoreV1().Events(w.Home).DeleteCollection(w.Context(), metav1.DeleteOptions{}, about); err != nil {
		t.Fatal(err)
	}
	s.publisher.says(2, "status settings", "platform/settings: NotKnown")
	s.publisher.says(2, "status -A", "cannot find the controller", "mirror-controller-viewer")
	blind := newPerson(w, "blind", may("", "configmaps", "list"))
	blind.says(2, "status platform/settings", "events is forbidden: ")
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
		"copies: if you may patch the namespace, kubectl label namespace team-a mirror=false"
	tenant.prints(0, "explain settings", copied+". Its content matches its checksum."+remedy)
	tenant.says(2, "status settings", "team-a/settings is a copy of platform/settings: ask about that")
	w.OptOut(plan.OptOutValue, "a")
	tenant.says(0, "explain settings", "It is deleted at the end of the deletion grace", "To change that: remove that label")
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
		"status -A": 1, "status platform/settings": 1, "plan": 1, "explain platform/settings": 0,
		"explain team-b/settings": 0, "explain team-a/settings": 0, "wait platform/settings --timeout=2s": 1, "purge --dry-run": 0,
	} {
		for _, format := range []string{"table", "json"} {
			got := admin(w).says(code, command+" -o "+format, "")
			isControl := func(r rune) bool { return r != '\n' && r != '\t' && !unicode.IsPrint(r) }
			if at := strings.IndexFunc(got.out, isControl); at >= 0 {
				t.Errorf("%s -o %s: control character at %d of %q", command, format, at, got.out)
			}
		}
	}
}
