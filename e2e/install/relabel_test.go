package install

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mirror-controller/mirror-controller/e2e/manual"
	"github.com/mirror-controller/mirror-controller/e2e/overlay"
	"github.com/mirror-controller/mirror-controller/e2e/suite"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// TestDocsChangeTheLabel changes mirror label and instance by the commands of the manual, beside a tenant who labels
// ConfigMaps with the new label before, and with both whenever the policies let it. Nothing of the tenant is published,
// and the copies stay the objects that they are.
func TestDocsChangeTheLabel(t *testing.T) {
	t.Parallel()
	w := suite.NewInstalled(t, "a", "b", "out")
	a, b := w.NS("a"), w.NS("b")
	w.LabelNamespace(w.NS("out"), w.Label, plan.OptOutValue)
	dir := overlay.Dir(t, map[string]string{"before": overlay.Example(),
		"after": overlay.Example("mirror-label=mirror", "mirror-label=share", "instance=default", "instance=blue")})
	w.Sh("kubectl apply -k " + filepath.Join(dir, "before"))
	w.Sh("kubectl create rolebinding tenant -n team-a --clusterrole=edit --user=tenant")
	tenant := func(name, label string) error {
		command := "kubectl label configmap " + name + " -n team-a --as=tenant --overwrite " + label + "=true"
		out, err := w.Cluster.Shell(w.Context(), command).CombinedOutput()
		if err != nil && !strings.Contains(string(out), "needs the verb") {
			t.Fatalf("%s: %s", command, out)
		}
		return err
	}
	waitGuarded := func(label string) {
		t.Helper()
		w.Until(label+" needs the verb", func() error {
			if tenant("late", label) == nil {
				w.Sh("kubectl label configmap late -n team-a " + label + "-")
				return errors.New("a tenant publishes")
			}
			return nil
		})
	}
	w.Create(a, "early")
	w.Create(a, "late")
	waitGuarded(w.Label)
	_, former := startDeployed(w, "mirror-system")
	w.WaitInSync(w.CreateSource(w.Home, "settings"), a, b)
	copies := w.Copies("settings", a, b)
	if err := tenant("early", "share"); err != nil {
		t.Fatalf("a tenant cannot set any label: %v", err)
	}

	w.Sh(manual.Commands(t, "deploy/docs/operate.md", "scale deployment mirror-controller --replicas=0"))
	w.Stop(former)
	seen := w.Sh(manual.Commands(t, "deploy/docs/operate.md", "mirror-label=share --overwrite"))
	if !strings.Contains(seen, "early") || strings.Contains(seen, "late") {
		t.Errorf("what the tenant labelled is not all that is shown: %s", seen)
	}
	waitGuarded("share")
	w.Sh("kubectl label configmap early -n team-a share-")
	for _, name := range []string{"early", "late"} { // nobody guards the former label
		if err := tenant(name, w.Label); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	w.Sh(manual.Commands(t, "deploy/docs/operate.md", "github.io/adopt=true"))
	w.Sh(manual.Commands(t, "deploy/docs/operate.md", "share=copy mirror-"))
	w.Sh("kubectl apply -k " + filepath.Join(dir, "after"))

	w.Label, w.Instance = "share", "blue"
	startDeployed(w, "mirror-system")
	w.WaitInSync(w.Edit(w.Home, "settings", suite.WithKey("key", "two")), a, b)
	w.WaitEvent(w.Home, "settings", plan.ReasonMirrored)
	w.SameObjects(copies)
	w.Settle(b)
	w.Absent("early", b)
	w.Absent("late", b)
	w.Absent("settings", "team-out")
}
