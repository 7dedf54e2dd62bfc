package checks

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// rule is an alert, as far as the tests look at it.
type rule struct {
	Alert       string            `json:"alert"`
	Annotations map[string]string `json:"annotations"`
}

// ruleFile is the spec of a PrometheusRule, which is what Prometheus itself reads.
type ruleFile struct {
	Groups []struct {
		Rules []rule `json:"rules"`
	} `json:"groups"`
}

// names returns those of the alerts, sorted.
func (f ruleFile) names() []string {
	var out []string
	for _, group := range f.Groups {
		for _, r := range group.Rules {
			out = append(out, r.Alert)
		}
	}
	slices.Sort(out)
	return out
}

// constants are annotations without values of metrics. The cases for promtool leave them out.
var constants = regexp.MustCompile(`"description":"[^"]*",`)

// alerts returns the alerts of the components, and writes them for promtool into a folder, which it returns.
func alerts(t *testing.T) (found ruleFile, dir string) {
	t.Helper()
	var groups []json.RawMessage
	for _, component := range []string{"monitoring", "admission-alerts"} {
		content, err := os.ReadFile(filepath.Join(deploy, "components", component, "alerts.yaml"))
		if err != nil {
			t.Fatal(err)
		}
		var object struct {
			Spec struct {
				Groups []json.RawMessage `json:"groups"`
			} `json:"spec"`
		}
		if err := yaml.Unmarshal(content, &object); err != nil {
			t.Fatal(err)
		}
		groups = append(groups, object.Spec.Groups...)
	}
	rules, err := json.Marshal(map[string]any{"groups": groups})
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(rules, &found); err != nil {
		t.Fatal(err)
	}
	dir = t.TempDir()
	writeFile(t, filepath.Join(dir, "rules.yaml"), constants.ReplaceAll(rules, nil))
	return found, dir
}

// runPromtool runs promtool in the folder; it has to find nothing wrong.
func runPromtool(t *testing.T, dir string, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), program(t, *promtool), args...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("promtool %v: %v\n%s", args, err, out)
	}
}

func TestAlertsAreRules(t *testing.T) {
	_, dir := alerts(t)
	runPromtool(t, dir, "check", "rules", "--lint=all", "--lint-fatal", "rules.yaml")
}

// TestAlertsFire has promtool play the cases in testdata/alerts.yaml. Each alert has to be among them as one that fires and
// as one that does not.
func TestAlertsFire(t *testing.T) {
	rules, dir := alerts(t)
	content, err := os.ReadFile(filepath.Join("testdata", "alerts.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, filepath.Join(dir, "alerts.yaml"), content)
	runPromtool(t, dir, "test", "rules", "alerts.yaml")

	var cases struct {
		Tests []struct {
			Cases []struct {
				Alert    string `json:"alertname"`
				Expected []any  `json:"exp_alerts"`
			} `json:"alert_rule_test"`
		} `json:"tests"`
	}
	if err := yaml.Unmarshal(content, &cases); err != nil {
		t.Fatal(err)
	}
	fires, silent := map[string]bool{}, map[string]bool{}
	for _, test := range cases.Tests {
		for _, c := range test.Cases {
			fires[c.Alert] = fires[c.Alert] || len(c.Expected) > 0
			silent[c.Alert] = silent[c.Alert] || len(c.Expected) == 0
		}
	}
	for _, alert := range rules.names() {
		if !fires[alert] || !silent[alert] {
			t.Errorf("%s: among the cases as one that fires: %v, as one that does not: %v; want both", alert, fires[alert], silent[alert])
		}
	}
	if count := len(rules.names()); count != len(fires) {
		t.Errorf("%d alerts, and cases for %d: an alert that does not exist never fires", count, len(fires))
	}
}

// TestAlertsAreExplained: each alert has a summary, a description, and a row on the troubleshooting page. It has no link: the
// chart makes one where the docs are hosted.
func TestAlertsAreExplained(t *testing.T) {
	rules, _ := alerts(t)
	page, err := os.ReadFile(filepath.Join(deploy, "docs", "troubleshooting.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, group := range rules.Groups {
		for _, r := range group.Rules {
			if r.Annotations["summary"] == "" || r.Annotations["description"] == "" {
				t.Errorf("%s: want a summary and a description, got %q", r.Alert, r.Annotations)
			}
			if link := r.Annotations["runbook_url"]; link != "" {
				t.Errorf("%s: the link %s leads nowhere from a cluster", r.Alert, link)
			}
			row := `<a id="` + strings.ToLower(r.Alert) + "\"></a>`" + strings.TrimPrefix(r.Alert, "MirrorController") + "`"
			if !strings.Contains(string(page), row) {
				t.Errorf("the troubleshooting page has no %s", row)
			}
		}
	}
	if rows := strings.Count(string(page), "<a id="); rows != len(rules.names()) {
		t.Errorf("the troubleshooting page explains %d alerts, and there are %d", rows, len(rules.names()))
	}
}
