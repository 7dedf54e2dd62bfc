package main

import (
	"fmt"
	"io"
	"strings"
)

// names is not reached: explain has no output of names.
func (x *explanation) names() []string { return nil }

func (x *explanation) table(w io.Writer, _ bool) error {
	var b strings.Builder
	fmt.Fprintln(&b, x.Verdict)
	for _, s := range x.Sections {
		verdict := "yes"
		if !s.holds() {
			verdict = "no"
		}
		fmt.Fprintf(&b, "\n%s: %s\n", s.Title, verdict)
		for _, c := range s.Checks {
			c.print(&b)
		}
	}
	if len(x.Targets) > 0 {
		fmt.Fprintf(&b, "\nTargets that are not in sync%s:\n", x.more)
	}
	if len(x.Sources) > 0 {
		fmt.Fprintln(&b, "\nSources with a copy there, or that want one:")
	}
	if _, err := io.WriteString(w, b.String()); err != nil || len(x.Sources)+len(x.Targets) == 0 {
		return err
	}
	var rows [][]any
	for _, t := range x.Targets {
		rows = append(rows, []any{t.Namespace, t.State, t.Reason})
	}
	if len(x.Targets) > 0 {
		return printTable(w, false, []column{{name: "Target"}, {name: "State"}, {name: "Reason"}}, rows)
	}
	for _, s := range x.Sources {
		rows = append(rows, []any{s.Source, s.State, s.Reason})
	}
	return printTable(w, false, []column{{name: "Source"}, {name: "State"}, {name: "Reason"}}, rows)
}

func (c check) print(b *strings.Builder) {
	mark := "  ok   "
	if !c.Holds {
		mark = "  NOT  "
	}
	fmt.Fprintf(b, "%s%s (%s)\n", mark, c.Rule, printable(c.Finding))
	if c.Remedy != "" {
		fmt.Fprintf(b, "       To change that: %s\n", c.Remedy)
	}
}
