package install

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/mirror-controller/mirror-controller/e2e/overlay"
	"github.com/mirror-controller/mirror-controller/e2e/suite"
)

// alwaysConfigured is what kubectl prints each time: it always sends the selector, which the API says to replace as a
// whole.
const alwaysConfigured = "poddisruptionbudget.policy/mirror-controller configured\n"

// TestDocsApplyTwice applies the example with all components, twice. The second time kubectl reports no change, so that
// its output shows a change that somebody made. A default of the API in a list that kubectl replaces as a whole would
// count as a change.
func TestDocsApplyTwice(t *testing.T) {
	t.Parallel()
	w := suite.NewAlone(t)
	// The API server does not know the kinds of the Prometheus operator.
	dir := overlay.Dir(t, map[string]string{"mine": overlay.Example("# - ../components/monitoring\n", "",
		"# - ../", "- ../deploy/", "namespace: mirror-system", "namespace: my-system")})
	for _, again := range []bool{false, true} {
		out, err := w.Cluster.Shell(t.Context(), "kubectl apply -k "+filepath.Join(dir, "mine")).CombinedOutput()
		if err != nil {
			t.Fatalf("kubectl apply: %v\n%s", err, out)
		}
		for line := range strings.Lines(string(out)) {
			if again && !strings.HasSuffix(line, " unchanged\n") && line != alwaysConfigured {
				t.Errorf("applied again: %s", line)
			}
		}
	}
}
