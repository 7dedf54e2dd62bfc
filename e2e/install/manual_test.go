package install

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/mirror-controller/mirror-controller/e2e/manual"
	"github.com/mirror-controller/mirror-controller/e2e/suite"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// TestDocsRelease turns copies into ordinary ConfigMaps by the commands of the manual.
func TestDocsRelease(t *testing.T) {
	t.Parallel()
	w := suite.New(t, "a", "b")
	source := w.CreateSource(w.Home, "settings")
	p := w.Start()
	w.WaitInSync(source, w.NS("a"), w.NS("b"))
	w.Stop(p)
	sh(w, ofManual(w, manual.Commands(t, "deploy/docs/operate.md", "mirror=copy mirror-\n")))
	released := []*corev1.ConfigMap{w.Live(w.NS("a"), "settings"), w.Live(w.NS("b"), "settings")}
	for _, cm := range released {
		if cm.Labels[w.Label] != "" || cm.Annotations[plan.CopyAnnotation] != "" {
			t.Errorf("%s is still a copy: %v, %v", cm.Namespace, cm.Labels, cm.Annotations)
		}
	}
	w.Start()
	w.Eventually("both are foreign", w.Noted("settings", "Foreign", w.NS("a"), w.NS("b")))
	w.AllUntouched(released)
}

// TestDocsKeep releases a copy by the commands of the manual, changes it, and sees that it stays.
func TestDocsKeep(t *testing.T) {
	t.Parallel()
	w := suite.New(t, "a", "b")
	source := w.CreateSource(w.Home, "settings")
	w.Start()
	w.WaitInSync(source, w.NS("a"), w.NS("b"))
	sh(w, ofManual(w, manual.Commands(t, "deploy/docs/receive.md", "team-a mirror-\n", "team-a", w.NS("a"))))
	w.Eventually("it is foreign", w.Noted("settings", "Foreign", w.NS("a")))
	released := []*corev1.ConfigMap{w.Edit(w.NS("a"), "settings", suite.WithData(map[string]string{"key": "mine"}))}
	w.WaitInSync(w.Edit(w.Home, "settings", suite.WithData(map[string]string{"key": "two"})), w.NS("b"))
	w.Settle(w.NS("a"))
	w.AllUntouched(released)
}

// TestDocsEvents asks for the events on a source, by the command of the manual.
func TestDocsEvents(t *testing.T) {
	t.Parallel()
	w := suite.New(t, "a")
	source := w.CreateSource(w.Home, "settings")
	w.Start()
	w.WaitInSync(source, w.NS("a"))
	w.WaitEvent(w.Home, "settings", "Mirrored")
	ask := ofManual(w, manual.Commands(t, "deploy/docs/publish.md", "kubectl events"))
	out, err := w.Cluster.Shell(w.Context(), ask).CombinedOutput()
	if err != nil || !strings.Contains(string(out), "Mirrored") {
		t.Errorf("%s: %v, %s", ask, err, out)
	}
}

// TestDocsOwner asks who wrote a copy, by the command of the manual.
func TestDocsOwner(t *testing.T) {
	t.Parallel()
	w := suite.New(t, "a")
	source := w.CreateSource(w.Home, "settings")
	w.Start()
	w.WaitInSync(source, w.NS("a"))
	ask := manual.Commands(t, "deploy/docs/receive.md", "--show-managed-fields", "team-a", w.NS("a"))
	out, err := w.Cluster.Shell(w.Context(), ask).CombinedOutput()
	for _, want := range []string{plan.SourceAnnotation + ": " + w.Home + "/settings\n", "manager: mirror-controller\n"} {
		if err != nil || !strings.Contains(string(out), want) {
			t.Errorf("%s: %v, and no %q in %s", ask, err, want, out)
		}
	}
}
