package main

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

// TestReadmeListsTheFlags compares the table of flags in the README with the flags; -update writes it anew.
func TestReadmeListsTheFlags(t *testing.T) {
	const file, begin, end = "../../README.md", "<!-- flags -->\n", "<!-- /flags -->"
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	head, rest, found := strings.Cut(string(content), begin)
	have, tail, ended := strings.Cut(rest, end)
	if !found || !ended {
		t.Fatalf("the README has no section between %q and %q", begin, end)
	}
	want := flagTable()
	if have == want {
		return
	}
	if *update {
		if err := os.WriteFile(file, []byte(head+begin+want+end+tail), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	t.Errorf("the README's table of flags is not that of the program (go test ./cmd/... -update writes it); want:\n%s", want)
}

// flagTable is the table of all flags, in the order and the words of the help text.
func flagTable() string {
	var b strings.Builder
	b.WriteString("| flag | default | meaning |\n|---|---|---|\n")
	sections := newOptions().bind()
	for _, section := range sections.Order {
		sections.FlagSets[section].VisitAll(func(f *pflag.Flag) {
			_, usage := pflag.UnquoteUsage(f)
			fmt.Fprintf(&b, "| `%s` | %s | %s |\n", spell(f), defaultOf(f), usage)
		})
	}
	return b.String()
}

// defaultOf is the default as a user would write it; nothing where it says nothing.
func defaultOf(f *pflag.Flag) string {
	switch value := strings.Trim(f.DefValue, "[]"); value {
	case "", "false":
		return ""
	default:
		return "`" + value + "`"
	}
}
