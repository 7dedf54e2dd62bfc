package plugin

import (
	"errors"
	"os"
	"os/exec"
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

// TestAlertsNameTheSource runs the command of each alert, as it stands there, where sources are in all these states: its
// answer names the source. The Pods of an alert are not there, so for these the command only has to be right.
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
		"CopiesOutOfSync": "", "Fight": "", "NoLeader": "", "NotConfined": "", "SlowPropagation": "", "StaleWatch": "",
	}
	for _, file := range []string{"monitoring", "admission-alerts"} {
		content, err := os.ReadFile(suite.Deployed("components/" + file + "/alerts.yaml"))
		if err != nil {
			t.Fatal(err)
		}
		if all := strings.Count(string(content), "- alert: "); all != len(alertCommand.FindAllString(string(content), -1)) {
			t.Errorf("%s: not each of %d alerts has a command", file, all)
		}
		for _, found := range alertCommand.FindAllStringSubmatch(string(content), -1) {
			alert, command := found[1], found[2]
			want, known := names[alert]
			if delete(names, alert); !known {
				t.Errorf("%s: an alert that the test does not know", alert)
			}
			if strings.Contains(command, "{{") || command == "kubectl mirror check" {
				continue // of a Pod, or of an installation: other tests run check
			}
			flags := strings.Join(append(w.Args(), "--exclude-namespace="+b), " ")
			ours := kubectlCommand.ReplaceAllString(command, plugin()+" $1 "+flags)
			out, err := w.Cluster.Shell(w.Context(), ours).CombinedOutput()
			var exit *exec.ExitError
			if err != nil && (!errors.As(err, &exit) || exit.ExitCode() != 1) || strings.Contains(string(out), "nknown") {
				t.Errorf("%s: %s: %v, %s", alert, command, err, out)
			}
			if want != "" && !regexp.MustCompile(`(?m)^`+w.Home+` .*`+want).Match(out) {
				t.Errorf("%s: %s does not name %s/%s:\n%s", alert, command, w.Home, want, out)
			}
		}
	}
	if len(names) > 0 {
		t.Errorf("there are no alerts %v", names)
	}
}
