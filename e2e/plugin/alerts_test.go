package plugin

import (
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/mirror-controller/mirror-controller/e2e/suite"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

var alertCommand = regexp.MustCompile(`(?s)- alert: MirrorController(\w+)\n.*?description: ".*? Run: ([^"\n]+)"\n`)

// kubectlCommand is a command of the plug-in.
var kubectlCommand = regexp.MustCompile(`kubectl mirror (\w+)`)

// TestAlertsNameTheSource runs the command of each alert, as it stands there, where sources are in all these states:
// its answer names the source. The Pods of an alert are not there, so for these the command only has to be right.
func TestAlertsNameTheSource(t *testing.T) {
	t.Parallel()
	w := suite.New(t, "a", "b")
	a, b := w.NS("a"), w.NS("b")
	w.Create(a, "in-the-way")
	w.CreateSource(w.Home, "in-the-way")
	w.CreateSource(w.Home, "in-stages", suite.WithAnnotation(plan.RolloutAnnotation, "tier=none"))
	w.CreateSource(w.Home, "malformed", suite.WithAnnotation(plan.SelectorAnnotation, "(("))
	p := w.Start(suite.Graced(time.Hour)...)
	w.WaitInSync(w.CreateSource(w.Home, "ruled-out"), a, b)
	w.WaitInSync(w.CreateSource(w.Home, "withdrawn"), a, b)
	w.Stop(p)
	w.Delete(w.Home, "withdrawn")
	w.Start(append(suite.Graced(time.Hour), "--exclude-namespace="+b)...)
	w.WaitEvent(w.Home, "ruled-out", plan.ReasonOutOfScope)
	w.WaitEvent(w.Home, "withdrawn", plan.ReasonExpiring)
	w.WaitEvent(w.Home, "in-the-way", plan.ReasonForeign)

	names := map[string]string{
		"ForeignObject": "in-the-way", "Held": "in-stages", "WritesRejected": "malformed", "OutOfScope": "ruled-out",
		"CopiesExpiring": "withdrawn", "ManyCopiesExpiring": "withdrawn",
		"CopiesOutOfSync": "", "Fight": "", "NoLeader": "", "SlowPropagation": "", "StaleWatch": "",
	}
	alerts, err := os.ReadFile(suite.Deployed("components/monitoring/alerts.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	commands := alertCommand.FindAllStringSubmatch(string(alerts), -1)
	if n := strings.Count(string(alerts), "- alert: "); n != len(commands) || n != len(names) {
		t.Errorf("%d of %d alerts have a command, and the test knows %d", len(commands), n, len(names))
	}
	flags := strings.Join(append(w.Args(), "--exclude-namespace="+b), " ")
	for _, found := range commands {
		alert, command := found[1], found[2]
		want := names[alert]
		if strings.Contains(command, "{{") {
			continue // of a Pod
		}
		cmd := w.Cluster.Shell(w.Context(), kubectlCommand.ReplaceAllString(command, plugin()+" $1 "+flags))
		out, _ := cmd.CombinedOutput() // the exit code tells
		if code := cmd.ProcessState.ExitCode(); code != 0 && code != 1 || strings.Contains(string(out), "nknown") {
			t.Errorf("%s: %s: exit code %d, %s", alert, command, code, out)
		}
		if want != "" && !regexp.MustCompile(`(?m)^`+w.Home+` .*`+want).Match(out) {
			t.Errorf("%s: %s does not name %s/%s:\n%s", alert, command, w.Home, want, out)
		}
	}
}
