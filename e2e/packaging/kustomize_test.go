package packaging

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/diff"

	"github.com/mirror-controller/mirror-controller/e2e/shipped"
)

// kustomization is an installation as a user composes it from deploy/: settings below the policies, as deploy/docs/install.md
// asks for, and patches of the policies above.
type kustomization struct {
	// settings are the lines of a kustomization on top of the base, and settingsComponents are named in it.
	settings           string
	settingsComponents []string
	// components are those of the kustomization on top, and above are more lines of it.
	components []string
	above      string
}

// kustomized renders the kustomization.
func kustomized(t *testing.T, k kustomization) shipped.Manifests {
	t.Helper()
	dir := t.TempDir()
	if err := os.CopyFS(filepath.Join(dir, "deploy"), os.DirFS(deploy)); err != nil {
		t.Fatal(err)
	}
	for folder, content := range map[string]string{
		"settings": "resources: [../deploy/base]\n" + componentLines(k.settingsComponents) + k.settings,
		"whole":    "resources: [../settings]\n" + componentLines(k.components) + k.above,
	} {
		folder = filepath.Join(dir, folder)
		err := errors.Join(os.Mkdir(folder, 0o755), os.WriteFile(filepath.Join(folder, "kustomization.yaml"), []byte(content), 0o644))
		if err != nil {
			t.Fatal(err)
		}
	}
	m, err := shipped.Render(filepath.Join(dir, "whole"))
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func componentLines(names []string) string {
	lines := "components:\n"
	for _, name := range names {
		lines += "- ../deploy/components/" + name + "\n"
	}
	return lines
}

// expectSame compares two installations object by object, in whatever order they come.
func expectSame(t *testing.T, nameA string, a shipped.Manifests, nameB string, b shipped.Manifests) {
	t.Helper()
	byA, byB := byIdentity(t, a), byIdentity(t, b)
	all := maps.Clone(byA)
	maps.Copy(all, byB)
	for id := range all {
		if d := diff.Diff(byA[id], byB[id]); d != "" {
			t.Errorf("%s: %s (-), %s (+)\n%s", id, nameA, nameB, d)
		}
	}
}

// byIdentity returns the objects by what tells them apart in a cluster.
func byIdentity(t *testing.T, m shipped.Manifests) map[string]any {
	t.Helper()
	out := map[string]any{}
	for _, o := range m {
		id := identity(o)
		if out[id] != nil {
			t.Errorf("%s: is there twice", id)
		}
		out[id] = o.Object
	}
	return out
}

func identity(o *unstructured.Unstructured) string {
	return fmt.Sprintf("%s %s/%s", o.GetKind(), o.GetNamespace(), o.GetName())
}
