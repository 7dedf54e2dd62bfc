package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/mirror-controller/mirror-controller/mirror/plan/plantest"
)

// TestReferenceTable compares the table of commands in the docs with the commands; -update writes it.
func TestReferenceTable(t *testing.T) {
	var b strings.Builder
	b.WriteString("| command | what it does |\n|---|---|\n")
	for _, cmd := range newRoot().Commands() {
		if cmd.IsAvailableCommand() {
			fmt.Fprintf(&b, "| `kubectl mirror %s` | %s |\n", strings.ReplaceAll(cmd.Use, "|", "or"), cmd.Short)
		}
	}
	plantest.Section(t, "../../deploy/docs/kubectl-mirror.md", "commands", b.String(), *update)
}
