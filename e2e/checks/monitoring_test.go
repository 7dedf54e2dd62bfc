package checks

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring"
	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"

	"github.com/mirror-controller/mirror-controller/e2e/shipped"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

var helm = flag.String("helm", "../../bin/helm", "the program helm")

// TestOperatorKnowsTheFields reads what is for the Prometheus operator into the operator's own types: a field that these do
// not have is an error. The API server of the other tests does not know the kinds.
func TestOperatorKnowsTheFields(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := monitoringv1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	strict := serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDeserializer()
	for name, m := range map[string]shipped.Manifests{"kustomize": monitored.render(t), "chart": chart(t)} {
		found := map[string]bool{}
		for _, o := range m {
			if o.GroupVersionKind().Group != monitoring.GroupName {
				continue
			}
			found[o.GetKind()] = true
			content, err := o.MarshalJSON()
			if err != nil {
				t.Fatal(err)
			}
			if _, _, err := strict.Decode(content, nil, nil); err != nil {
				t.Errorf("%s: %s: %v", name, o.GetKind(), err)
			}
		}
		if name == "chart" && !found[monitoringv1.PodMonitorsKind] {
			t.Error("chart: there is no PodMonitor")
		}
		if !found[monitoringv1.ServiceMonitorsKind] || !found[monitoringv1.PrometheusRuleKind] {
			t.Errorf("%s: a ServiceMonitor and a PrometheusRule should be there, and are: %v", name, found)
		}
	}
}

// monitored is the installation with component monitoring alone.
var monitored = installation{base: "base", components: []string{"monitoring"}}

// chart returns what the chart renders with all that it has.
func chart(t *testing.T) shipped.Manifests {
	t.Helper()
	h := shipped.Helm{Program: program(t, *helm), Home: t.TempDir()}
	m, err := h.Template(t.Context(), "checked", filepath.Join(deploy, "chart"), "mirror-system",
		"--values="+filepath.Join("..", "packaging", "testdata", "everything.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// dashboard is that of Grafana, as far as the tests look at it.
type dashboard struct {
	Panels []struct {
		ID          int
		Description string
		Targets     []struct{ RefID, Expr string }
	}
	Templating struct {
		List []struct{ Name string }
	}
}

// TestDashboardIsPromQL has promtool read what the panels ask for: as rules, because it checks no other expressions, and with
// values in place of the dashboard's variables. Each panel has a description.
func TestDashboardIsPromQL(t *testing.T) {
	content, err := os.ReadFile(filepath.Join(deploy, "components", "monitoring", "dashboard.json"))
	if err != nil {
		t.Fatal(err)
	}
	var d dashboard
	if err := json.Unmarshal(content, &d); err != nil {
		t.Fatal(err)
	}
	values := []string{"$__rate_interval", "5m"}
	for _, variable := range d.Templating.List {
		values = append(values, "$"+variable.Name, ".*")
	}
	type recording struct {
		Record string `json:"record"`
		Expr   string `json:"expr"`
	}
	var rules []recording
	ids := map[int]bool{}
	for _, panel := range d.Panels {
		if panel.Description == "" || ids[panel.ID] {
			t.Errorf("panel %d has no description, or the id of another one", panel.ID)
		}
		ids[panel.ID] = true
		for _, target := range panel.Targets {
			r := recording{fmt.Sprintf("panel_%d_%s", panel.ID, target.RefID), strings.NewReplacer(values...).Replace(target.Expr)}
			if strings.Contains(r.Expr, "$") {
				t.Errorf("%s: a variable that the dashboard does not have: %s", r.Record, target.Expr)
			}
			rules = append(rules, r)
		}
	}
	if all := bytes.Count(content, []byte(`"expr":`)); len(rules) != all || all == 0 {
		t.Errorf("%d expressions in panels, and %d in all", len(rules), all)
	}
	checkRules(t, map[string]any{"groups": []any{map[string]any{"name": "dashboard", "rules": rules}}})
}

// states finds the states of copies that an expression names, also in JSON.
var states = regexp.MustCompile(`mirror_copies\{state[=!~]+\\?"([^"\\]*)`)

// TestMonitoringNamesStates: an alert on a state that does not exist never fires, and promtool does not know which exist.
func TestMonitoringNamesStates(t *testing.T) {
	known := map[string]bool{}
	for state := range plan.States {
		known[state.Metric()] = true
	}
	delete(known, "") // of states that are not counted
	for _, file := range []string{
		filepath.Join(deploy, "components", "monitoring", "alerts.yaml"),
		filepath.Join(deploy, "components", "monitoring", "dashboard.json"),
		filepath.Join("testdata", "alerts.yaml"),
	} {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		all := states.FindAllSubmatch(content, -1)
		if named := bytes.Count(content, []byte("mirror_copies{state")); len(all) != named || named == 0 {
			t.Errorf("%s: %d states are read of %d", file, len(all), named)
		}
		for _, found := range all {
			for state := range strings.SplitSeq(string(found[1]), "|") {
				if !known[state] {
					t.Errorf("%s: no copy counts as %q", file, state)
				}
			}
		}
	}
}

// checkRules has promtool check the content of a rule file.
func checkRules(t *testing.T, rules any) {
	t.Helper()
	content, err := json.Marshal(rules)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	writeFile(t, filepath.Join(dir, "rules.yaml"), content)
	runPromtool(t, dir, "check", "rules", "--lint=all", "--lint-fatal", "rules.yaml")
}
