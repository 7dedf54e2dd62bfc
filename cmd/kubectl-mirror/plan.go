package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/mirror-controller/mirror-controller/cmd/kubectl-mirror/snapshot"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

const planHelp = `Show what a controller with these settings would create, update and delete when it takes over, and why: before a first
installation, or before a change of flags. The settings are those of the flags, or of an installed controller; flags beside
--controller change those of that one.

ConfigMap data is shown with --diff only.

Exit codes: 0 nothing to do, 1 there are changes, or copies that the prune limit keeps, 2 unknown.`

func newPlan(c *cli) *cobra.Command {
	var output outputFlag
	var diff bool
	cmd := &cobra.Command{
		Use:               "plan",
		Short:             "Show what a controller would change",
		Long:              planHelp,
		Example:           "  kubectl mirror plan --namespace-prefix=team-\n  kubectl mirror plan --controller=mirror-system/mirror-controller --prune-limit=100% --diff",
		Args:              arguments(0, 0),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := c.refuseNamespace(); err != nil {
				return err
			}
			s, err := c.begin(cmd)
			if err != nil {
				return err
			}
			p, err := s.plan(cmd.Context())
			if err == nil && diff {
				err = s.addDiffs(cmd.Context(), p)
			}
			if err == nil {
				err = output.print(cmd.OutOrStdout(), p)
			}
			if err != nil {
				return err
			}
			return verdict(len(p.Changes)+p.Blocked == 0)
		},
	}
	output.bind(cmd)
	cmd.Flags().BoolVar(&diff, "diff", false, "Show the content of each change. That prints ConfigMap data, and needs permission to get ConfigMaps.")
	return cmd
}

// planned is what a controller that takes over would do.
type planned struct {
	Settings string    `json:"settings"`
	Changes  []*change `json:"changes"`
	// Blocked is the number of copies out of scope of the flags that the prune limit keeps; Copies is of how many.
	Blocked    int    `json:"blockedByPruneLimit"`
	Copies     int    `json:"copies,omitempty"`
	PruneLimit string `json:"pruneLimit"`
	// Foreign is the number of targets that have a foreign object of the name.
	Foreign int `json:"foreign"`
	// Frozen are the sources for which nothing is changed, with the reason.
	Frozen []frozenSource `json:"frozen"`

	grace string // how long copies expire; empty: not known
}

// frozenSource is a source whose annotations are malformed.
type frozenSource struct {
	Source string `json:"source"`
	Reason string `json:"reason"`
}

// change is one change to a ConfigMap.
type change struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Operation string `json:"operation"`
	Source    string `json:"source"`
	Reason    string `json:"reason"`
	Diff      string `json:"diff,omitempty"`

	decision *snapshot.Decision
}

// plan returns what a controller would do.
func (s *session) plan(ctx context.Context) (*planned, error) {
	snap, err := s.Read(ctx, "", true)
	if err != nil {
		return nil, err
	}
	p := newPlanned(snap)
	p.Settings, p.PruneLimit, p.grace = s.settings.Origin, s.Options.PruneLimit.String(), s.grace()
	return p, nil
}

// newPlanned lists the changes among the decisions, sorted.
func newPlanned(s *snapshot.Snapshot) *planned {
	p := &planned{Changes: []*change{}, Frozen: []frozenSource{}}
	if s.Pruning.Blocked {
		p.Blocked, p.Copies = len(s.Pruning.OutOfScope), s.Pruning.Copies
	}
	for _, d := range s.All() {
		switch {
		case d.Op != plan.OpNone:
			p.Changes = append(p.Changes, &change{Namespace: d.Key.Namespace, Name: d.Key.Name, Operation: d.Op.String(),
				Source: d.CountsFor().String(), Reason: s.Reason(d), decision: d})
		case d.State == plan.StateForeign:
			p.Foreign++
		}
	}
	for v := range s.Views() {
		for _, source := range v.Sources {
			if source.Frozen != nil && !source.Reserved {
				p.Frozen = append(p.Frozen, frozenSource{source.Key.String(), strings.ReplaceAll(source.Frozen.Error(), "\n", "; ")})
			}
		}
	}
	slices.SortFunc(p.Frozen, func(a, b frozenSource) int { return strings.Compare(a.Source, b.Source) })
	slices.SortFunc(p.Changes, func(a, b *change) int { return strings.Compare(a.key(), b.key()) })
	return p
}

func (c *change) key() string { return c.Namespace + "/" + c.Name }

func (p *planned) names() (names []string) {
	for _, c := range p.Changes {
		names = append(names, nameOf(c.decision.Key))
	}
	return names
}

func (p *planned) table(w io.Writer, wide bool) error {
	var rows [][]any
	for _, c := range p.Changes {
		rows = append(rows, []any{c.Operation, c.key(), c.Source, printable(c.Reason)})
	}
	if err := printTable(w, wide, []string{"Operation", "ConfigMap", "Source", "Reason"}, rows); err != nil {
		return err
	}
	var b strings.Builder
	for _, c := range p.Changes {
		b.WriteString(printableLines(c.Diff))
	}
	_, err := io.WriteString(w, b.String()+p.summary())
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
	text := "Changes: none.\n"
	if len(parts) > 0 {
		text = "Changes: " + strings.Join(parts, ", ") + ".\n"
	}
	if counts[plan.OpDelete.String()] > 0 && p.grace != "" {
		text += "Deletions wait for the deletion grace" + p.grace + ".\n"
	}
	if p.Foreign > 0 {
		text += fmt.Sprintf("Left alone: %s: kubectl mirror status SOURCE names the namespaces.\n", count(p.Foreign, "foreign ConfigMap", "foreign ConfigMaps"))
	}
	for _, f := range p.Frozen {
		text += fmt.Sprintf("Frozen: the copies of %s stay as they are until its annotation is fixed: %s\n", f.Source, printable(f.Reason))
	}
	if p.Blocked > 0 {
		text += fmt.Sprintf("Blocked: %d of %d copies are out of scope of the flags, which is more than --prune-limit=%s allows: none of them is deleted. "+
			"Is a flag mistyped? --prune-limit=100%% deletes them.\n", p.Blocked, p.Copies, p.PruneLimit)
	}
	return text
}
