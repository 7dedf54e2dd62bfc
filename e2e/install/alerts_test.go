package install

import (
	"bytes"
	"regexp"
	"slices"
	"strings"
	"testing"
	"text/template"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"sigs.k8s.io/yaml"

	"github.com/mirror-controller/mirror-controller/e2e/manual"
	"github.com/mirror-controller/mirror-controller/e2e/shipped"
	"github.com/mirror-controller/mirror-controller/e2e/suite"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// TestAlertsNameTheSource runs the commands of each alert about one of several
// installations, as they stand there, where sources are in all these states: each
// answer names the source. What the plug-in shows as a problem holds. The API
// server takes the FlowSchema that the alerts lead to. Case C89.
func TestAlertsNameTheSource(t *testing.T) {
	t.Parallel()
	w := startWithProblems(t)
	w.Sh("kubectl apply --dry-run=server --validate=strict -f - <<'END'\n" +
		manual.Find(t, "e2e/BENCHMARKS.md", "kind: FlowSchema").Text + "END")
	names := map[string]string{
		"ForeignObject": "in-the-way", "Held": "in-stages", "WritesRejected": "malformed", "OutOfScope": "ruled-out",
		"CopiesExpiring": "withdrawn", "ManyCopiesExpiring": "withdrawn", "SlowPropagation": "narrowed",
		"CopiesOutOfSync": "narrowed", "Fight": "", "NoLeader": "", "StaleWatch": "",
	}
	rules := alertRules(t)
	if len(rules) != len(names) {
		t.Errorf("there are %d alerts, and the test knows %d", len(rules), len(names))
	}
	ofPage := manual.Commands(t, "deploy/docs/troubleshooting.md", "status -A --problems", "mirror-system", w.Namespace)
	if out := w.outputOf(ofPage); !strings.Contains(out, "withdrawn ") || isOver.MatchString(out) {
		t.Errorf("%s does not show what holds:\n%s", ofPage, out)
	}
	labels := map[string]string{"namespace": w.Namespace, "pod": "none", "resource": "configmaps"}
	for _, rule := range rules {
		want := names[strings.TrimPrefix(rule.Alert, "MirrorController")]
		for command := range strings.SplitSeq(described(t, rule, labels), "\n") {
			if !strings.HasPrefix(command, "kubectl ") {
				continue
			}
			out := w.outputOf(command)
			isAboutSources := !strings.Contains(command, w.Namespace) || strings.Contains(command, "kubectl mirror")
			if want != "" && isAboutSources && !regexp.MustCompile(w.Home+`\b.*\b`+want+`\b`).MatchString(out) {
				t.Errorf("%s: %s does not name %s/%s:\n%s", rule.Alert, command, w.Home, want, out)
			}
			if strings.Contains(command, "--problems") && isOver.MatchString(out) {
				t.Errorf("%s: %s shows what is over:\n%s", rule.Alert, command, out)
			}
			if strings.Contains(command, "Expiring") && !strings.Contains(out, "narrowed") {
				t.Errorf("%s: %s does not show all:\n%s", rule.Alert, command, out)
			}
		}
	}
}

// isOver finds a problem that was solved. Copies of the same sources are out of scope.
var isOver = regexp.MustCompile(`-no-more +(Foreign|Expiring)`)

// TestAlertOfNoInstallation runs the commands of the alert that Prometheus scrapes no installation, where several are
// installed: the answers name each, and how to choose it. Case C89.
func TestAlertOfNoInstallation(t *testing.T) {
	t.Parallel()
	w := &charted{suite.NewInstallation(t, "unscraped"), newHelm(t)}
	w.run("install", w.Namespace, suite.Deployed("chart"), "--create-namespace", "--set=mirrorLabel="+w.Label,
		"--set=instance="+w.Instance, "--set=namespacePrefixes={"+w.Prefix+"}")
	rules := alertRules(t)
	noLeader := slices.IndexFunc(rules, func(r monitoringv1.Rule) bool {
		return strings.HasSuffix(r.Alert, "NoLeader")
	})
	_, commands, _ := strings.Cut(described(t, rules[noLeader], nil), "\n")
	ofKubectl, ofPlugin, _ := strings.Cut(commands, "\n")
	for command, want := range map[string]string{
		ofKubectl: "deployment.apps/" + w.FullName + " ",
		ofPlugin:  "--controller=" + w.Namespace,
	} {
		t.Run(command, func(t *testing.T) {
			out, _ := w.Cluster.Shell(t.Context(), withPlugin(command)).CombinedOutput() // the text tells
			if !strings.Contains(string(out), want) {
				t.Errorf("there is no %q in\n%s", want, out)
			}
		})
	}
}

// alertRules returns the alerts.
func alertRules(t *testing.T) []monitoringv1.Rule {
	t.Helper()
	var object monitoringv1.PrometheusRule
	alerts := manual.Read(t, "deploy/components/monitoring/alerts.yaml")
	if err := yaml.Unmarshal([]byte(alerts), &object); err != nil || len(object.Spec.Groups) != 1 {
		t.Fatalf("%d groups: %v", len(object.Spec.Groups), err)
	}
	return object.Spec.Groups[0].Rules
}

// described returns the description of an alert with these labels, as Prometheus renders it.
func described(t *testing.T, rule monitoringv1.Rule, labels map[string]string) string {
	t.Helper()
	text := template.New("").Funcs(template.FuncMap{"humanizeDuration": func(any) string { return "1m" }})
	text, err := text.Parse("{{ $labels := .labels }}{{ $value := .value }}" + rule.Annotations["description"])
	var out bytes.Buffer
	if err == nil {
		err = text.Execute(&out, map[string]any{"labels": labels, "value": 1.0})
	}
	if err != nil {
		t.Fatalf("%s: %v", rule.Alert, err)
	}
	return out.String()
}

// startWithProblems runs an installation with a source for each alert, and sources of which a foreign object, and
// deletions that were announced, are no-more. Another installation reports about the same sources.
func startWithProblems(t *testing.T) *charted {
	t.Helper()
	w := &charted{suite.NewInstallation(t, "alerts", "a", "b", "c"), newHelm(t)}
	a, b, c := w.NS("a"), w.NS("b"), w.NS("c")
	w.run("install", w.Namespace, suite.Deployed("chart"), "--create-namespace", "--set=mirrorLabel="+w.Label,
		"--set=instance="+w.Instance, "--set=namespacePrefixes={"+w.Prefix+"}", "--set=deletionGrace=1h")
	w.Create(a, "in-the-way")
	w.Create(a, "in-the-way-no-more")
	w.CreateSource(w.Home, "in-the-way")
	freed := w.CreateSource(w.Home, "in-the-way-no-more")
	w.CreateSource(w.Home, "in-stages", suite.WithAnnotation(plan.RolloutAnnotation, "tier=none"))
	w.CreateSource(w.Home, "malformed", suite.WithAnnotation(plan.SelectorAnnotation, "(("))
	p := w.Start()
	for _, name := range []string{"ruled-out", "withdrawn", "narrowed", "withdrawn-no-more"} {
		w.WaitInSync(w.CreateSource(w.Home, name), a, b, c)
	}
	w.WaitEvent(w.Home, freed.Name, plan.ReasonForeign)
	w.Delete(a, freed.Name)
	w.WaitInSync(freed, a, b, c)
	w.WaitEvent(w.Home, freed.Name, plan.ReasonMirrored, "to 3 namespaces")
	w.WaitEvent(w.Home, "withdrawn-no-more", plan.ReasonMirrored) // so the next one comes seconds after the announcement
	w.Delete(w.Home, "withdrawn-no-more")
	w.WaitEvent(w.Home, "withdrawn-no-more", plan.ReasonExpiring)
	again := w.CreateSource(w.Home, "withdrawn-no-more")
	w.WaitEvent(w.Home, "withdrawn-no-more", plan.ReasonMirrored, "version "+again.ResourceVersion)
	w.Stop(p)

	w.Delete(w.Home, "withdrawn")
	w.Edit(w.Home, "narrowed", suite.WithAnnotation(plan.PrefixAnnotation, a))
	w.run("upgrade", w.Namespace, suite.Deployed("chart"), "--reuse-values", "--set=excludeNamespaces={"+b+"}")
	w.Start()
	w.WaitEvent(w.Home, "ruled-out", plan.ReasonOutOfScope)
	w.WaitEvent(w.Home, "withdrawn", plan.ReasonExpiring)
	w.WaitEvent(w.Home, "in-the-way", plan.ReasonForeign)
	w.WaitEvent(w.Home, "narrowed", plan.ReasonMirrored, "expires")
	edited := w.Edit(w.Home, "narrowed", suite.WithKey("key", "two")) // so that a Mirrored is seconds newer than Expiring
	w.WaitEvent(w.Home, "narrowed", plan.ReasonMirrored, "version "+edited.ResourceVersion, "expires")

	other, err := w.World.Installed.Start(shipped.RunOptions{Args: []string{"--leader-elect=false",
		"--namespace-prefix=other-", "--mirror-label=" + w.Label, "--instance=other"}})
	if err != nil {
		t.Fatal(err)
	}
	w.StopAtEnd(other)
	w.WaitEvent(w.Home, "narrowed", plan.ReasonNoTargets)
	return w
}

// outputOf returns what a command prints that ends with 0 or 1.
func (w *charted) outputOf(command string) string {
	w.Helper()
	cmd := w.Cluster.Shell(w.Context(), withPlugin(strings.ReplaceAll(command, "-l mirror=", "-l "+w.Label+"=")))
	out, _ := cmd.CombinedOutput() // the exit code tells
	if code := cmd.ProcessState.ExitCode(); code != 0 && code != 1 || strings.Contains(string(out), "nknown") {
		w.Errorf("%s: exit code %d, %s", command, code, out)
	}
	return string(out)
}
