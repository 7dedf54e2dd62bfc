package install

import (
	"regexp"
	"strings"
	"testing"
	"time"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"sigs.k8s.io/yaml"

	"github.com/mirror-controller/mirror-controller/e2e/manual"
	"github.com/mirror-controller/mirror-controller/e2e/plugin"
	"github.com/mirror-controller/mirror-controller/e2e/policies"
	"github.com/mirror-controller/mirror-controller/e2e/suite"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// TestAlertsNameTheSource runs the commands of each alert, as they stand there, where sources are in all these states:
// each answer names the source. The Pods of an alert are not there, so these commands do not run. An announcement of
// deletions that was cancelled is not shown. The API server takes the FlowSchema that the alerts lead to.
func TestAlertsNameTheSource(t *testing.T) {
	t.Parallel()
	w := suite.New(t, "a", "b", "c")
	flags := strings.Join(append(w.Args(), "--exclude-namespace="+w.NS("b")), " ")
	startWithProblems(w)
	policies.Sh(w, "kubectl apply --dry-run=server --validate=strict -f - <<'END'\n"+
		manual.Find(t, "e2e/BENCHMARKS.md", "kind: FlowSchema").Text+"END")
	names := map[string]string{
		"ForeignObject": "in-the-way", "Held": "in-stages", "WritesRejected": "malformed", "OutOfScope": "ruled-out",
		"CopiesExpiring": "withdrawn", "ManyCopiesExpiring": "withdrawn", "SlowPropagation": "narrowed",
		"CopiesOutOfSync": "narrowed", "Fight": "", "NoLeader": "", "StaleWatch": "",
	}
	var object monitoringv1.PrometheusRule
	alerts := manual.Read(t, "deploy/components/monitoring/alerts.yaml")
	if err := yaml.Unmarshal([]byte(alerts), &object); err != nil {
		t.Fatal(err)
	}
	rules := object.Spec.Groups[0].Rules
	if len(rules) != len(names) || len(object.Spec.Groups) != 1 {
		t.Errorf("there are %d alerts, and the test knows %d", len(rules), len(names))
	}
	for _, rule := range rules {
		want := names[strings.TrimPrefix(rule.Alert, "MirrorController")]
		for command := range strings.SplitSeq(rule.Annotations["description"], "\n") {
			if !strings.HasPrefix(command, "kubectl ") || strings.Contains(command, "{{") || command == "kubectl mirror check" {
				continue // no command, or about Pods
			}
			if ofPlugin, is := strings.CutPrefix(command, "kubectl mirror"); is {
				command = plugin.Program() + ofPlugin + " " + flags
			}
			out := outputOf(w, command)
			if want != "" && !regexp.MustCompile(w.Home+`\b.*\b`+want+`\b`).MatchString(out) {
				t.Errorf("%s: %s does not name %s/%s:\n%s", rule.Alert, command, w.Home, want, out)
			}
			if strings.Contains(command, "Expiring") &&
				(strings.Contains(out, "cancelled") || !strings.Contains(out, "narrowed")) {
				t.Errorf("%s: %s shows what was cancelled, or not all:\n%s", rule.Alert, command, out)
			}
		}
	}
}

// startWithProblems starts a controller with a source for each alert, and one whose deletion was announced and undone.
func startWithProblems(w *suite.World) {
	w.Helper()
	a, b, c := w.NS("a"), w.NS("b"), w.NS("c")
	w.Create(a, "in-the-way")
	w.CreateSource(w.Home, "in-the-way")
	w.CreateSource(w.Home, "in-stages", suite.WithAnnotation(plan.RolloutAnnotation, "tier=none"))
	w.CreateSource(w.Home, "malformed", suite.WithAnnotation(plan.SelectorAnnotation, "(("))
	p := w.Start(suite.Graced(time.Hour)...)
	for _, name := range []string{"ruled-out", "withdrawn", "narrowed", "cancelled"} {
		w.WaitInSync(w.CreateSource(w.Home, name), a, b, c)
	}
	w.WaitEvent(w.Home, "cancelled", plan.ReasonMirrored) // so the next one comes seconds after the announcement
	w.Delete(w.Home, "cancelled")
	w.WaitEvent(w.Home, "cancelled", plan.ReasonExpiring)
	again := w.CreateSource(w.Home, "cancelled")
	w.WaitEvent(w.Home, "cancelled", plan.ReasonMirrored, "version "+again.ResourceVersion)
	w.Stop(p)
	w.Delete(w.Home, "withdrawn")
	w.Edit(w.Home, "narrowed", suite.WithAnnotation(plan.PrefixAnnotation, a))
	w.Start(append(suite.Graced(time.Hour), "--exclude-namespace="+b)...)
	w.WaitEvent(w.Home, "ruled-out", plan.ReasonOutOfScope)
	w.WaitEvent(w.Home, "withdrawn", plan.ReasonExpiring)
	w.WaitEvent(w.Home, "in-the-way", plan.ReasonForeign)
	w.WaitEvent(w.Home, "narrowed", plan.ReasonMirrored, "expires")
	edited := w.Edit(w.Home, "narrowed", suite.WithKey("key", "two")) // so that a Mirrored is seconds newer than Expiring
	w.WaitEvent(w.Home, "narrowed", plan.ReasonMirrored, "version "+edited.ResourceVersion, "expires")
}

// outputOf returns what a command prints that ends with 0 or 1.
func outputOf(w *suite.World, command string) string {
	w.Helper()
	cmd := w.Cluster.Shell(w.Context(), strings.ReplaceAll(command, "-l mirror=", "-l "+w.Label+"="))
	out, _ := cmd.CombinedOutput() // the exit code tells
	if code := cmd.ProcessState.ExitCode(); code != 0 && code != 1 || strings.Contains(string(out), "nknown") {
		w.Errorf("%s: exit code %d, %s", command, code, out)
	}
	return string(out)
}
