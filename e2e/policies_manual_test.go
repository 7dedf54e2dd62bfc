package e2e

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// selfTest finds, in the manual, an answer that a reader is to get, and the command to get it with.
var selfTest = regexp.MustCompile("(?s)must be refused with `([^`]+)`:\n\n```\n(.*?)```")

// testSelfTests runs the commands by which the manual has its readers see that the policies hold.
func (w *policed) testSelfTests(t *testing.T) {
	manual, err := os.ReadFile(deployed("README.md"))
	if err != nil {
		t.Fatal(err)
	}
	copied := w.create(teamA, "self-test", w.copied(teamA, "self-test")...)
	settings := []*strings.Replacer{
		strings.NewReplacer(), // as the controller that is shipped
		strings.NewReplacer("NAMESPACE", platform, "USER", tenant),
		strings.NewReplacer("NAMESPACE", teamA, "COPY", copied.Name),
	}
	found := selfTest.FindAllStringSubmatch(string(manual), -1)
	if len(found) != len(settings) {
		t.Fatalf("the manual has %d self-tests, want %d", len(found), len(settings))
	}
	for i, match := range found {
		answer, script := match[1], settings[i].Replace(match[2])
		if out, err := w.cluster.Shell(w.ctx, script).CombinedOutput(); err == nil || !strings.Contains(string(out), answer) {
			t.Errorf("%s: %v, %s", script, err, out)
		}
	}
}
