package checks

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/yaml"

	"github.com/mirror-controller/mirror-controller/e2e/manual"
)

// runPromtool runs promtool on the rules, which it finds in rules.yaml. It has to find nothing wrong.
func runPromtool(t *testing.T, rules []monitoringv1.Rule, args ...string) {
	t.Helper()
	content, err := json.Marshal(monitoringv1.PrometheusRuleSpec{
		Groups: []monitoringv1.RuleGroup{{Name: "tested", Rules: rules}}})
	if err != nil {
		t.Fatal(err)
	}
	promtool, err := filepath.Abs(filepath.Join(root, "bin", "promtool"))
	cmd := exec.CommandContext(t.Context(), promtool, args...)
	cmd.Dir = t.TempDir()
	err = errors.Join(err, os.CopyFS(cmd.Dir, os.DirFS("testdata")),
		os.WriteFile(filepath.Join(cmd.Dir, "rules.yaml"), content, 0o600))
	if err != nil {
		t.Fatal(err)
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("promtool %v (make bin/promtool builds it): %v\n%s", args, err, out)
	}
}

var checkRules = []string{"check", "rules", "--lint=all", "--lint-fatal", "rules.yaml"}

// ofKubectl is a line of a description that is a command, not of the plug-in.
var ofKubectl = regexp.MustCompile(`(?m)^kubectl [^m]`)

// played is an alert in a case of promtool.
type played struct {
	alert string
	fires bool
}

// TestAlertsFireAndAreExplained has promtool read the alerts and play the cases in testdata/alerts.yaml: each alert is
// among them as one that fires and as one that does not. Each has a summary, a description with a command of kubectl
// alone, and a row on the troubleshooting page, to which its link leads. For copies that are being deleted the command
// is that of the page. A field that the Prometheus operator does not know is an error.
func TestAlertsFireAndAreExplained(t *testing.T) {
	const troubleshooting = "deploy/docs/troubleshooting.md"
	page := manual.Read(t, troubleshooting)
	ofDeletions := manual.Commands(t, "deploy/docs/troubleshooting.md", "kubectl get events -A")
	var cases struct {
		Tests []struct {
			Cases []struct {
				Alert    string `json:"alertname"`
				Expected []any  `json:"exp_alerts"`
			} `json:"alert_rule_test"`
		}
	}
	var object monitoringv1.PrometheusRule
	if err := errors.Join(yaml.Unmarshal([]byte(manual.Read(t, "e2e/checks/testdata/alerts.yaml")), &cases),
		yaml.UnmarshalStrict([]byte(manual.Read(t, "deploy/components/monitoring/alerts.yaml")), &object)); err != nil {
		t.Fatal(err)
	}
	all := map[played]bool{}
	for _, test := range cases.Tests {
		for _, c := range test.Cases {
			all[played{c.Alert, len(c.Expected) > 0}] = true
		}
	}
	var rules []monitoringv1.Rule
	for _, group := range object.Spec.Groups {
		rules = append(rules, group.Rules...)
	}
	runPromtool(t, rules, checkRules...)
	for _, r := range rules {
		t.Run(r.Alert, func(t *testing.T) {
			for _, fires := range []bool{true, false} {
				if !all[played{r.Alert, fires}] {
					t.Errorf("there is no case where it fires: %v", fires)
				}
			}
			description, anchor := r.Annotations["description"], strings.ToLower(r.Alert)
			if r.Annotations["summary"] == "" || !ofKubectl.MatchString(description) ||
				strings.HasSuffix(r.Alert, "CopiesExpiring") && !strings.Contains(description, "\n"+ofDeletions) {
				t.Errorf("want a summary and a command of kubectl alone, for deletions that of the page, got %q", r.Annotations)
			}
			if got, want := r.Annotations["runbook_url"], troubleshooting+"#"+anchor; got != want {
				t.Errorf("the link is %s, want %s", got, want)
			}
			row := `<a id="` + anchor + "\"></a>`" + strings.TrimPrefix(r.Alert, "MirrorController") + "`"
			if !strings.Contains(page, row) {
				t.Errorf("the troubleshooting page has no %s", row)
			}
		})
		delete(r.Annotations, "description") // no values of metrics are in these, and the cases leave them out
		delete(r.Annotations, "runbook_url")
	}
	if rows := strings.Count(page, "<a id="); rows != len(rules) || len(all) != 2*len(rules) {
		t.Errorf("there are %d alerts, rows for %d, and cases that fire or do not for %d", len(rules), rows, len(all))
	}
	runPromtool(t, rules, "test", "rules", "alerts.yaml")
}

// TestDashboardIsPromQL has promtool read what the panels ask for: as rules, because it checks no other expressions,
// and with values in place of the dashboard's variables.
func TestDashboardIsPromQL(t *testing.T) {
	var dashboard struct {
		Panels []struct {
			ID      int
			Targets []struct{ RefID, Expr string }
		}
		Templating struct{ List []struct{ Name string } }
	}
	content := manual.Read(t, "deploy/components/monitoring/dashboard.json")
	if err := json.Unmarshal([]byte(content), &dashboard); err != nil {
		t.Fatal(err)
	}
	values := []string{"$__rate_interval", "5m"}
	for _, variable := range dashboard.Templating.List {
		values = append(values, "$"+variable.Name, ".*")
	}
	var rules []monitoringv1.Rule
	for _, panel := range dashboard.Panels {
		for _, target := range panel.Targets {
			expr := strings.NewReplacer(values...).Replace(target.Expr)
			if strings.Contains(expr, "$") {
				t.Errorf("panel %d: a variable that the dashboard does not have: %s", panel.ID, target.Expr)
			}
			record := fmt.Sprintf("panel_%d_%s", panel.ID, target.RefID)
			rules = append(rules, monitoringv1.Rule{Record: record, Expr: intstr.FromString(expr)})
		}
	}
	if len(rules) == 0 {
		t.Error("the dashboard has no expressions")
	}
	runPromtool(t, rules, checkRules...)
}
