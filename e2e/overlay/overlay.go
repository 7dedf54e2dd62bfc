// Package overlay makes kustomizations above the shipped ones, as users do who install the controller.
package overlay

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mirror-controller/mirror-controller/e2e/shipped"
)

// deploy is the folder of all that is installed, from the folder of a test.
const deploy = "../../deploy"

// Dir returns a new folder with a copy of deploy/ and kustomizations beside it, by the names of their folders.
func Dir(t testing.TB, kustomizations map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	err := os.CopyFS(filepath.Join(dir, "deploy"), os.DirFS(deploy))
	for name, content := range kustomizations {
		folder := filepath.Join(dir, name)
		err = errors.Join(err, os.MkdirAll(folder, 0o755),
			os.WriteFile(filepath.Join(folder, "kustomization.yaml"), []byte(content), 0o644))
	}
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// Render returns what Kustomize makes of the kustomization in the folder top.
func Render(t testing.TB, kustomizations map[string]string) shipped.Manifests {
	t.Helper()
	m, err := shipped.Render(filepath.Join(Dir(t, kustomizations), "top"))
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// Example is a copy of deploy/example, in a folder beside deploy/, with these texts replaced by those behind them.
func Example(oldnew ...string) string {
	content, err := os.ReadFile(filepath.Join(deploy, "example", "kustomization.yaml"))
	if err != nil {
		panic(err)
	}
	return strings.NewReplacer(append(oldnew, "- ../", "- ../deploy/")...).Replace(string(content))
}

// Above is a kustomization on top of another one, with components of deploy/ and more lines.
func Above(resource, lines string, components ...string) string {
	var all strings.Builder
	for _, component := range components {
		all.WriteString("- ../deploy/components/" + component + "\n")
	}
	return "resources: [../" + resource + "]\ncomponents:\n" + all.String() + lines
}

// SetPrefix sets the prefixes of an installation: what the first flag and the policies say.
func SetPrefix(prefix string) string {
	return patch("Deployment", "replace", "/spec/template/spec/containers/0/args/0", "--namespace-prefix="+prefix) +
		setting("namespace-prefix", prefix)
}

// AddFlag adds a flag with a value, which the policies know as well.
func AddFlag(flag, value string) string {
	return patch("Deployment", "add", "/spec/template/spec/containers/0/args/-", "--"+flag+"="+value) +
		setting(flag, value)
}

func setting(flag, value string) string {
	return patch("ClusterRoleBinding", "add", "/metadata/annotations/mirror-controller.github.io~1"+flag, value)
}

func patch(kind, op, path, value string) string {
	return fmt.Sprintf("- target: {kind: %s, name: mirror-controller}\n  patch: |\n"+
		"    - {op: %s, path: %s, value: %q}\n", kind, op, path, value)
}
