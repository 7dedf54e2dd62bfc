package packaging

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

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
	for id := range merge(byA, byB) {
		switch {
		case byA[id] == nil:
			t.Errorf("%s: only in %s", id, nameB)
		case byB[id] == nil:
			t.Errorf("%s: only in %s", id, nameA)
		default:
			for _, d := range differences("", byA[id], byB[id]) {
				t.Errorf("%s%s: %s %s, %s %s", id, d.path, nameA, d.a, nameB, d.b)
			}
		}
	}
}

// byIdentity returns the objects, as JSON knows them, by what tells them apart in a cluster.
func byIdentity(t *testing.T, m shipped.Manifests) map[string]any {
	t.Helper()
	out := map[string]any{}
	for _, o := range m {
		id := identity(o)
		if out[id] != nil {
			t.Errorf("%s: is there twice", id)
		}
		content, err := json.Marshal(o.Object)
		if err != nil {
			t.Fatal(err)
		}
		var plain any // numbers of one type
		if err := json.Unmarshal(content, &plain); err != nil {
			t.Fatal(err)
		}
		out[id] = plain
	}
	return out
}

func identity(o *unstructured.Unstructured) string {
	return fmt.Sprintf("%s %s/%s", o.GetKind(), o.GetNamespace(), o.GetName())
}

// difference is a place in which two objects differ, and what each has there.
type difference struct{ path, a, b string }

// differences compares two values as JSON has them.
func differences(path string, a, b any) []difference {
	var out []difference
	switch x := a.(type) {
	case map[string]any:
		if y, ok := b.(map[string]any); ok {
			for key := range merge(x, y) {
				out = append(out, differences(path+"."+key, x[key], y[key])...)
			}
			return out
		}
	case []any:
		if y, ok := b.([]any); ok && len(x) == len(y) {
			for i := range x {
				out = append(out, differences(fmt.Sprintf("%s[%d]", path, i), x[i], y[i])...)
			}
			return out
		}
	}
	if text(a) != text(b) {
		out = append(out, difference{path, text(a), text(b)})
	}
	return out
}

func text(v any) string {
	if v == nil {
		return "nothing"
	}
	content, _ := json.Marshal(v) // it came from JSON
	return string(content)
}

// merge returns the keys of both, sorted.
func merge(a, b map[string]any) func(func(string) bool) {
	all := maps.Clone(a)
	maps.Copy(all, b)
	return slices.Values(slices.SortedFunc(maps.Keys(all), strings.Compare))
}
