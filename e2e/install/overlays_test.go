package install

import (
	"testing"

	"github.com/mirror-controller/mirror-controller/e2e/policies"
)

// TestChartOverlays installs the policies by values of the chart, as TestC48Overlays does by kustomizations.
func TestChartOverlays(t *testing.T) {
	t.Parallel()
	policies.CheckCharts(t)
}
