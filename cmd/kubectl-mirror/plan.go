package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mirror-controller/mirror-controller/cmd/kubectl-mirror/snapshot"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

const planHelp = `Show what a controller with these settings would create, update and delete, and why: before a first
installation, or before a change of flags. The settings are those of the flags, or of an installed controller; flags beside
--controller change those of that one. The command also shows the copies that are out of scope of the flags: they stay
unchanged, unless --prune is set; and the targets that a source holds, with what comes once the hold ends.

ConfigMap data is shown with --diff only.

Exit codes: 0 nothing to do, 1 there are changes, or copies out of scope, 2 unknown.`

func newPlan(c *cli) *cobra.Command {
	var output outputFlag
	var diff bool
	cmd := &cobra.Command{
		Use:   "plan",
		Short: "Show what a controller would change",
		Long:  planHelp,
		Example: "  kubectl mirror plan --namespace-prefix=team-\n" +
			"  kubectl mirror plan --controller=mirror-system/mirror-controller --namespace-prefix=dev- --prune --diff",
		Args: arguments(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := c.refuseNamespace(); err != nil {
				return err
			}
			s, err := c.begin(cmd)
			if err != nil {
				return err
			}
			snap, err := s.Read(cmd.Context(), "")
			if err != nil {
				return err
			}
			p := newPlanned(snap)
			if s.settings.deployment != nil {
				p.grace = fmt.Sprintf(" (--deletion-grace=%v)", s.settings.DeletionGrace)
			}
			for _, c := range p.Changes {
				if diff && err == nil {
					c.Diff, err = s.diff(cmd.Context(), c.decision.Change)
				}
			}
			if err == nil {
				err = output.print(cmd.OutOrStdout(), p)
			}
			return cmp.Or(err, verdict(len(p.Changes)+len(p.OutOfScope) == 0))
		},
	}
	output.bind(cmd)
	cmd.Flags().BoolVar(&diff, "diff", false, "Show the content of each change. That prints ConfigMap data, and needs permission to get ConfigMaps.")
	return cmd
}

// planned is what a controller would do.
type planned struct {
	Changes []*change `json:"changes"`
	// OutOfScope are the copies that stay unchanged, because the flags do not allow them.
	OutOfScope []*change `json:"outOfScope"`
	// Held are the targets that stay as they are, with what is done once the hold ends.
	Held []*change `json:"held"`
	// Foreign is the number of targets that have a foreign object of the name.
	Foreign int `json:"foreign"`
	// Frozen has the reason for each source for which nothing is changed.
	Frozen map[string]string `json:"frozen"`

	grace string // how long copies expire; empty: not known
}

// change is one change to a ConfigMap; none to a copy that is out of scope. At a held target it comes once the hold ends.
type change struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Operation string `json:"operation"`
	Source    string `json:"source"`
	Reason    string `json:"reason,omitempty"`
	Diff      string `json:"diff,omitempty"`

	decision *snapshot.Decision
}

// newPlanned lists the changes among the decisions, sorted.
func newPlanned(s *snapshot.Snapshot) *planned {
	p := &planned{Changes: []*change{}, OutOfScope: []*change{}, Held: []*change{}, Frozen: map[string]string{}}
	for _, d := range s.All() {
		add := func(to *[]*change) {
			*to = append(*to, &change{Namespace: d.Key.Namespace, Name: d.Key.Name, Operation: cmp.Or(d.Op, d.Withheld).String(),
				Source: d.CountsFor().String(), Reason: s.Reason(d), decision: d})
		}
		switch {
		case d.Op != plan.OpNone:
			add(&p.Changes)
		case d.State == plan.StateOutOfScope:
			add(&p.OutOfScope)
		case d.State == plan.StateHeld:
			add(&p.Held)
		case d.State == plan.StateForeign:
			p.Foreign++
		}
	}
	for _, source := range s.Sources(types.NamespacedName{}) {
		if source.Status == snapshot.Frozen {
			p.Frozen[source.Key().String()] = source.Note
		}
	}
	return p
}

func (p *planned) names() []string { return namesOf(p.Changes) }

func namesOf(changes []*change) (names []string) {
	for _, c := range changes {
		names = append(names, nameOf(c.decision.Key))
	}
	return names
}

func (p *planned) table(w io.Writer, wide bool) error {
	var rows [][]any
	diffs := ""
	for _, c := range slices.Concat(p.Changes, p.OutOfScope, p.Held) {
		operation := c.Operation
		if c.decision.State == plan.StateHeld {
			operation = "held, " + operation
		}
		rows = append(rows, []any{operation, c.Namespace + "/" + c.Name, c.Source, printable(c.Reason)})
		diffs += c.Diff
	}
	if err := printTable(w, wide, []string{"Operation", "ConfigMap", "Source", "Reason"}, rows); err != nil {
		return err
	}
	_, err := io.WriteString(w, diffs+p.summary())
	return err
}

// summary counts the changes, and says what keeps others from being made.
func (p *planned) summary() string {
	counts := map[string]int{}
	for _, c := range p.Changes {
		counts[c.Operation]++
	}
	var parts []string
	for op := plan.OpCreate; op <= plan.OpDelete; op++ {
		if n := counts[op.String()]; n > 0 {
			parts = append(parts, fmt.Sprintf("%s %d", op, n))
		}
	}
	text := "Changes: " + cmp.Or(strings.Join(parts, ", "), "none") + ".\n"
	if counts[plan.OpDelete.String()] > 0 && p.grace != "" {
		text += "Deletions wait for the deletion grace" + p.grace + ".\n"
	}
	if p.Foreign > 0 {
		text += fmt.Sprintf("Left alone: %s: kubectl mirror status SOURCE names the namespaces.\n", count(p.Foreign, "foreign ConfigMap", "foreign ConfigMaps"))
	}
	for _, source := range slices.Sorted(maps.Keys(p.Frozen)) {
		text += fmt.Sprintf("Frozen: of %s: %s\n", source, printable(p.Frozen[source]))
	}
	if n := len(p.Held); n > 0 {
		text += fmt.Sprintf("Held: %s until an annotation of the source is removed.\n", count(n, "target stays as it is", "targets stay as they are"))
	}
	if n := len(p.OutOfScope); n > 0 {
		text += fmt.Sprintf("Out of scope: %s unchanged. Is a flag mistyped? With --prune such copies are deleted.\n", count(n, "copy stays", "copies stay"))
	}
	return text
}
