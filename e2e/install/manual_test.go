package install

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/mirror-controller/mirror-controller/e2e/manual"
	"github.com/mirror-controller/mirror-controller/e2e/plugin"
	"github.com/mirror-controller/mirror-controller/e2e/policies"
	"github.com/mirror-controller/mirror-controller/e2e/shipped"
	"github.com/mirror-controller/mirror-controller/e2e/suite"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// TestDocsKustomization renders the kustomizations that the manual has readers write, and hands the policies in them
// to the API server, which compiles them. The settings that the policies read are the flags.
func TestDocsKustomization(t *testing.T) {
	t.Parallel()
	examples := 0
	for _, page := range manual.Pages(t) {
		for _, b := range manual.Blocks(t, page) {
			if !strings.HasPrefix(b.Text, "# kustomization.yaml") {
				continue
			}
			examples++
			m, err := plugin.RenderExample(t, b.Text)
			if err != nil {
				t.Errorf("%s: %v in\n%s", page, err, b.Text)
				continue
			}
			policies.ExpectAccepted(t, policies.OfGroup(m, "admissionregistration.k8s.io", false), 0)
			expectSettings(t, m, "namespace-prefix", "instance")
		}
	}
	if examples != 1 {
		t.Errorf("%d kustomizations in the manual, want 1: are they still found?", examples)
	}
}

// flagOf returns the value of a flag of the Deployment.
func flagOf(t *testing.T, m shipped.Manifests, flag string) string {
	t.Helper()
	deployment, err := m.Deployment()
	if err != nil {
		t.Fatal(err)
	}
	args := deployment.Spec.Template.Spec.Containers[0].Args
	i := slices.IndexFunc(args, func(arg string) bool { return strings.HasPrefix(arg, flag) })
	if i < 0 {
		t.Fatalf("no %s among %v", flag, args)
	}
	return strings.TrimPrefix(args[i], flag)
}

// expectSettings fails the test unless the ClusterRoleBinding has these flags of the Deployment in its annotations.
func expectSettings(t *testing.T, m shipped.Manifests, flags ...string) {
	t.Helper()
	for _, o := range m {
		if o.GetKind() != "ClusterRoleBinding" {
			continue
		}
		for _, flag := range flags {
			if have, want := o.GetAnnotations()[plan.Domain+"/"+flag], flagOf(t, m, "--"+flag+"="); have != want {
				t.Errorf("the annotation %s is %q, and the flag %q", flag, have, want)
			}
		}
		return
	}
	t.Error("there is no ClusterRoleBinding")
}

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

// TestDocsOwner asks who wrote a copy, by the command of the manual.
func TestDocsOwner(t *testing.T) {
	t.Parallel()
	w := suite.New(t, "a")
	source := w.CreateSource(w.Home, "settings")
	w.Start()
	w.WaitInSync(source, w.NS("a"))
	ask := manual.Commands(t, "deploy/docs/troubleshooting.md", "--show-managed-fields", "team-a", w.NS("a"))
	out, err := w.Cluster.Shell(w.Context(), ask).CombinedOutput()
	for _, want := range []string{plan.SourceAnnotation + ": " + w.Home + "/settings\n", "manager: mirror-controller\n"} {
		if err != nil || !strings.Contains(string(out), want) {
			t.Errorf("%s: %v, and no %q in %s", ask, err, want, out)
		}
	}
}
