package checks

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mirror-controller/mirror-controller/e2e/shipped"
)

var (
	kubeScore = flag.String("kube-score", "../../bin/kube-score", "the program kube-score")
	promtool  = flag.String("promtool", "../../bin/promtool", "the program promtool")
)

// deploy is the folder of the manifests.
var deploy = filepath.Join("..", "..", "deploy")

// installation is a way to install the controller that many will take.
type installation struct {
	name       string
	base       string   // a folder in deploy
	components []string // folders in deploy/components
}

const byDefault, everything = "default", "everything"

var installations = []installation{
	{name: byDefault, base: "default"},
	{name: everything, base: "base", components: []string{
		"admission", "admission-alerts", "protect-copies", "high-availability", "network-policy", "monitoring", "viewer"}},
}

// render returns the objects of the installation, from a copy of deploy/ with a kustomization beside it.
func (i installation) render(t *testing.T) shipped.Manifests {
	t.Helper()
	dir := t.TempDir()
	if err := os.CopyFS(filepath.Join(dir, "deploy"), os.DirFS(deploy)); err != nil {
		t.Fatal(err)
	}
	var kustomization strings.Builder
	fmt.Fprintf(&kustomization, "resources: [deploy/%s]\ncomponents:\n", i.base)
	for _, c := range i.components {
		fmt.Fprintf(&kustomization, "- deploy/components/%s\n", c)
	}
	writeFile(t, filepath.Join(dir, "kustomization.yaml"), []byte(kustomization.String()))
	m, err := shipped.Render(dir)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// documents returns the objects as documents of one file; JSON is YAML.
func documents(t *testing.T, m shipped.Manifests) []byte {
	t.Helper()
	var out bytes.Buffer
	for _, object := range m {
		out.WriteString("---\n")
		if err := json.NewEncoder(&out).Encode(object.Object); err != nil {
			t.Fatal(err)
		}
	}
	return out.Bytes()
}

func writeFile(t *testing.T, name string, content []byte) {
	t.Helper()
	if err := os.WriteFile(name, content, 0o600); err != nil {
		t.Fatal(err)
	}
}

// program returns the path of a tool that has to be built.
func program(t *testing.T, path string) string {
	t.Helper()
	absolute, err := filepath.Abs(path)
	if err == nil {
		_, err = os.Stat(absolute)
	}
	if err != nil {
		t.Fatalf("not built (make bin/%s builds it): %v", filepath.Base(path), err)
	}
	return absolute
}
