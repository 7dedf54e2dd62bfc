package e2e

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/mirror-controller/mirror-controller/e2e/shipped"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// manualExample finds the examples in deploy/README.md that are kustomizations: files, each below a comment with its
// path, with a line of dashes between them.
var manualExample = regexp.MustCompile("(?s)\n```yaml\n(# [a-z/]*kustomization\\.yaml\n.*?)```\n")

// TestKustomizationsOfTheManual renders the kustomizations that the manual tells people to write, and hands the policies in
// them to the API server, which compiles them. The settings that the policies read are the flags.
func TestKustomizationsOfTheManual(t *testing.T) {
	t.Parallel()
	manual, err := os.ReadFile(deployed("README.md"))
	if err != nil {
		t.Fatal(err)
	}
	examples, relabelled := manualExample.FindAllStringSubmatch(string(manual), -1), 0
	for _, example := range examples {
		m, err := renderExample(t, example[1])
		if err != nil {
			t.Errorf("%v in\n%s", err, example[1])
			continue
		}
		expectAccepted(t, ofGroup(m, "admissionregistration.k8s.io", false), 0)
		if strings.Contains(example[1], "--mirror-label=") {
			relabelled++
			expectSettings(t, m, "mirror-label", "instance")
		}
		expectSettings(t, m, "namespace-prefix")
	}
	if len(examples) < 2 || relabelled != 1 {
		t.Errorf("%d kustomizations in the manual, %d of them with another label, want 2 or more, and 1: are they still found?", len(examples), relabelled)
	}
}

// renderExample writes the files of an example beside a copy of deploy/, and renders the one at the top.
func renderExample(t *testing.T, example string) (shipped.Manifests, error) {
	t.Helper()
	dir := t.TempDir()
	err := os.CopyFS(filepath.Join(dir, "deploy"), os.DirFS(deployed(".")))
	for file := range strings.SplitSeq(example, "---\n") {
		comment, content, _ := strings.Cut(file, "\n")
		path := filepath.Join(dir, strings.TrimPrefix(comment, "# "))
		err = errors.Join(err, os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(content), 0o644))
	}
	if err != nil {
		t.Fatal(err)
	}
	return shipped.Render(dir)
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
