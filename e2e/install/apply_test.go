package install

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mirror-controller/mirror-controller/e2e/cluster"
	"github.com/mirror-controller/mirror-controller/e2e/suite"
)

// alwaysConfigured is what kubectl prints each time: it always sends the selector, which the API says to replace as a whole.
const alwaysConfigured = "poddisruptionbudget.policy/mirror-controller configured\n"

// TestDocsApplyTwice applies what users apply, twice. The second time kubectl reports no change, so that its output shows a
// change that somebody made. A default of the API in a list that kubectl replaces as a whole would count as a change.
func TestDocsApplyTwice(t *testing.T) {
	t.Parallel()
	c, err := cluster.Start(t.Context(), cluster.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
	})
	example, err := os.ReadFile(suite.Deployed("example/kustomization.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	// The API server does not know the kinds of the Prometheus operator.
	without := strings.NewReplacer("- ../components/monitoring\n", "", "- ../components/admission-alerts\n", "").Replace
	everything := strings.NewReplacer("# - ../", "- ../", "namespace: mirror-system", "namespace: my-system").Replace(string(example))
	for name, content := range map[string]string{
		"default":    "resources: [deploy/default]\n",
		"example":    fromRoot(string(example)),
		"everything": fromRoot(without(everything)),
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			err := errors.Join(os.CopyFS(filepath.Join(dir, "deploy"), os.DirFS(suite.Deployed("."))),
				os.WriteFile(filepath.Join(dir, "kustomization.yaml"), []byte(content), 0o644))
			if err != nil {
				t.Fatal(err)
			}
			apply(t, c, "-k", dir)
			for line := range strings.Lines(apply(t, c, "-k", dir)) {
				if !strings.HasSuffix(line, " unchanged\n") && line != alwaysConfigured {
					t.Errorf("applied again: %s", line)
				}
			}
		})
	}
}

// fromRoot returns a kustomization of deploy/example for the folder above deploy.
func fromRoot(kustomization string) string {
	return strings.ReplaceAll(kustomization, "- ../", "- deploy/")
}

// apply runs kubectl apply, and returns its output.
func apply(t *testing.T, c *cluster.Cluster, args ...string) string {
	t.Helper()
	out, err := c.KubectlCommand(t.Context(), append([]string{"apply"}, args...)...).CombinedOutput()
	if err != nil {
		t.Fatalf("kubectl apply: %v\n%s", err, out)
	}
	return string(out)
}
