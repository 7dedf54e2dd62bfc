package e2e

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/mirror-controller/mirror-controller/e2e/shipped"
)

// manualExample finds the examples in deploy/README.md that are kustomizations: files, each below a comment with its
// path, with a line of dashes between them.
var manualExample = regexp.MustCompile("(?s)\n```yaml\n(# [a-z/]*kustomization\\.yaml\n.*?)```\n")

// TestKustomizationsOfTheManual renders the kustomizations that the manual tells people to write, and hands the policies in
// them to the API server, which compiles them. What is patched by its place in a list has to stand there.
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
			expectPoliciesKnow(t, m, map[string]string{"label": flagOf(t, m, "--mirror-label="), "instance": flagOf(t, m, "--instance=")})
		}
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

// expectPoliciesKnow fails the test unless the policies' variables of these names hold these values, and the label is
// what selects the objects that they judge.
func expectPoliciesKnow(t *testing.T, m shipped.Manifests, values map[string]string) {
	t.Helper()
	policies := 0
	for _, o := range m {
		if o.GetKind() != "ValidatingAdmissionPolicy" {
			continue
		}
		policies++
		spec := specOf(t, o)
		for _, v := range spec.Variables {
			if value, ok := values[v.Name]; ok && v.Expression != "'"+value+"'" {
				t.Errorf("%s: the variable %s is %s, want '%s'", o.GetName(), v.Name, v.Expression, value)
			}
		}
		selector := spec.MatchConstraints.ObjectSelector
		if selector != nil && len(selector.MatchExpressions) == 1 && selector.MatchExpressions[0].Key != values["label"] {
			t.Errorf("%s: objects are selected by %v, want the label %s", o.GetName(), selector, values["label"])
		}
	}
	if policies != 3 {
		t.Errorf("%d policies, want 3", policies)
	}
}

func specOf(t *testing.T, o *unstructured.Unstructured) admissionregistrationv1.ValidatingAdmissionPolicySpec {
	t.Helper()
	var policy admissionregistrationv1.ValidatingAdmissionPolicy
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &policy); err != nil {
		t.Fatal(err)
	}
	return policy.Spec
}
