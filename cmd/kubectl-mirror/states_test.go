package main

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/mirror-controller/mirror-controller/cmd/kubectl-mirror/snapshot"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
	"github.com/mirror-controller/mirror-controller/mirror/plan/plantest"
)

// TestReferenceTableOfStates compares the table of states in the docs with the
// code and with the alerts; -update writes the table. Every status of the table
// is one of package snapshot.
func TestReferenceTableOfStates(t *testing.T) {
	meanings := meaningsOfStates(t)
	alerts := alertsByState(t)
	var b strings.Builder
	b.WriteString("| state | meaning | event | status | exit code | alert |\n|---|---|---|---|---|---|\n")
	for _, state := range plan.Counted {
		event, status, code := "", state.Status().String(), ""
		if state.Event() != "" {
			event = "`" + state.Event() + "`"
		}
		if status != "" {
			code = exitCodeOf(t, status)
			status = "`" + status + "`"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s | %s |\n",
			state, meanings[state], event, status, code, strings.Join(alerts[state.String()], ", "))
	}
	plantest.Section(t, "../../deploy/docs/reference.md", "states", b.String(), *update)
}

// meaningsOfStates returns the comments on the states.
func meaningsOfStates(t *testing.T) map[plan.State]string {
	t.Helper()
	code, err := os.ReadFile("../../mirror/plan/state.go")
	if err != nil {
		t.Fatal(err)
	}
	all := map[plan.State]string{}
	for i, match := range regexp.MustCompile(`(?m)^\tState[A-Z]\w+ .*// (.+)$`).FindAllSubmatch(code, -1) {
		all[plan.State(i)] = string(match[1])
	}
	if len(all) != int(plan.States) {
		t.Fatalf("got comments on %d states, want %d", len(all), plan.States)
	}
	return all
}

// exitCodeOf returns the exit code of wait for a source with this status.
func exitCodeOf(t *testing.T, status string) string {
	t.Helper()
	known := []string{snapshot.InSync, snapshot.Pending, snapshot.Rejected, snapshot.Blocked, snapshot.Frozen}
	if !slices.Contains(known, status) {
		t.Errorf("%s is no status of a source", status)
	}
	s := snapshot.Source{Status: status}
	switch {
	case s.Succeeds(false):
		return "0"
	case s.GoesOn(false):
		return "1 at the timeout"
	}
	return "1"
}

// alertsByState returns the names of the alerts on targets, by their states.
func alertsByState(t *testing.T) map[string][]string {
	t.Helper()
	rules, err := os.ReadFile("../../deploy/components/monitoring/alerts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	all := map[string][]string{}
	pattern := regexp.MustCompile(`- alert: MirrorController(\w+)|mirror_copies\{state=~?"([a-z_|]+)"`)
	alert := ""
	for _, match := range pattern.FindAllStringSubmatch(string(rules), -1) {
		if match[1] != "" {
			alert = "`" + match[1] + "`"
			continue
		}
		for state := range strings.SplitSeq(match[2], "|") {
			if !slices.Contains(all[state], alert) {
				all[state] = append(all[state], alert)
			}
		}
	}
	return all
}
