package policies

import (
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/mirror-controller/mirror-controller/e2e/shipped"
	"github.com/mirror-controller/mirror-controller/e2e/suite"
)

// TestComponentsAreAccepted hands all components together to the API server.
func TestComponentsAreAccepted(t *testing.T) {
	t.Parallel()
	m, err := RenderWith(t, "", "admission", "protect-copies", "high-availability", "network-policy", "monitoring", "admission-alerts", "viewer")
	if err != nil {
		t.Fatal(err)
	}
	ExpectAccepted(t, m, 3)
	deployment, err := m.Deployment()
	if err != nil {
		t.Fatal(err)
	}
	if *deployment.Spec.Replicas != 2 {
		t.Errorf("%d replicas with high availability, want 2", *deployment.Spec.Replicas)
	}
	ports := map[string]bool{}
	for _, p := range deployment.Spec.Template.Spec.Containers[0].Ports {
		ports[p.Name] = true
	}
	if !ports["metrics"] || !ports["health"] {
		t.Errorf("the Deployment has the ports %v, and Service and NetworkPolicy name metrics and health", ports)
	}
}

// metricName finds the names of metrics in an expression, and in what a dashboard is made of; metricLabel also the first
// label, if an expression asks for one value of it.
var (
	metricName  = regexp.MustCompile(`\b(?:mirror|controller_runtime|workqueue|rest_client|leader_election|process)_[a-z_]+`)
	metricLabel = regexp.MustCompile(`\b((?:mirror|controller_runtime|workqueue)_[a-z_]+)\{(\w+="[^"]+")`)
)

// expectMetricsOfMonitoring compares the metrics that alerts and dashboard name with what a running controller has.
func expectMetricsOfMonitoring(w *suite.World, p *shipped.Process) {
	w.Helper()
	got, err := w.Scrape(p)
	if err != nil {
		w.Fatal(err)
	}
	have := map[string]bool{} // names, and names with one label
	for series := range got {
		name, labels, _ := strings.Cut(strings.TrimSuffix(series, "}"), "{")
		have[name] = true
		for label := range strings.SplitSeq(labels, ",") {
			have[name+"{"+label] = true
		}
	}
	named := map[string]bool{}
	for _, file := range []string{"alerts.yaml", "dashboard.json"} {
		content, err := os.ReadFile(suite.Deployed("components/monitoring/" + file))
		if err != nil {
			w.Fatal(err)
		}
		text := strings.ReplaceAll(string(content), `\"`, `"`)
		for _, name := range metricName.FindAllString(text, -1) {
			named[name] = true
		}
		for _, found := range metricLabel.FindAllStringSubmatch(text, -1) {
			named[found[1]+"{"+found[2]] = true
		}
	}
	if len(named) < 15 {
		w.Errorf("only %v are named, is that all?", slices.Sorted(maps.Keys(named)))
	}
	for name := range named {
		if !have[name] {
			w.Errorf("%s is named in deploy/components/monitoring, and the controller does not have it", name)
		}
	}
}
