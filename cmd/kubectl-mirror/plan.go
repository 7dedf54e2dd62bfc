package main

import (
	"cmp"
	"context"
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
installation, or before a change of flags. Flags beside --controller change the settings of that one. The command also
shows the targets that stay as they are: foreign ConfigMaps, copies of a frozen source, targets that a source holds, or
that another source of the name wins, and copies that are out of scope of the flags, which --prune would delete. With
SOURCE, a name or NAMESPACE/NAME, show the targets of that source.

Exit codes: 0 nothing to do, 1 there are changes, or copies out of scope, 2 unknown.`

func newPlan(c *cli) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "plan [SOURCE]",
		Short: "Show what a controller would change",
		Long:  planHelp,
		Example: "  kubectl mirror plan --namespace-prefix=team-\n  kubectl mirror plan --prune\n" +
			"  kubectl mirror plan platform/settings",
		Args: cobra.MaximumNArgs(1),
	}
	return c.command(cmd, true, showPlan)
}

// showPlan prints the changes that the settings lead to.
func showPlan(ctx context.Context, s *session, keys []types.NamespacedName) error {
	if err := s.begin(ctx); err != nil {
		return err
	}
	source := append(keys, types.NamespacedName{})[0] // empty: those of all sources
	snap, err := s.Read(ctx, source.Name)
	if err != nil {
		return err
	}
	s.say(s.Rules.WithoutTarget(maps.Values(snap.Namespaces)))
	planned := newChanges(snap, source)
	isKnown := len(planned.Targets) > 0 || snap.View(source.Name).Find(source) != nil
	if source.Name != "" && !isKnown {
		return s.explainGone(ctx, source, nil) // rather a typing error than nothing to do
	}
	if s.settings.deployment != nil {
		// Without the flags of the user. Invalid arguments are read as far as possible.
		installed, _ := newSettingsFlags().settingsOf(s.settings.deployment)
		planned.Abandons = !installed.sharesCopiesWith(s.settings)
	}
	s.print(planned)
	return verdict(!planned.Abandons && !planned.needed)
}

// changes is the answer of plan, and the list of purge: what is to be done at
// targets, and the targets that stay as they are and are not in sync.
type changes struct {
	Targets []*change `json:"targets"`
	// Abandons is set if the installed controller has another mirror label or
	// instance. Its copies would be those of no controller.
	Abandons bool `json:"abandons,omitempty"`

	// needed is set if a controller would change a target, or --prune would.
	needed bool
}

// change is one row of the answer, about one target.
type change struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Operation is what is to be done or, if that is nothing, the state of the
	// target: "create", or "foreign".
	Operation string `json:"operation"`
	Source    string `json:"source"`           // whose copy is, or is to be, there
	Reason    string `json:"reason,omitempty"` // why it is so, in words

	decision *plan.Change
}

// newChanges returns the decisions of a snapshot about the targets of one
// source or, if the key is empty, of all: but for targets that are in sync, or
// no targets at all.
func newChanges(snap *snapshot.Snapshot, source types.NamespacedName) *changes {
	a := &changes{Targets: []*change{}} // JSON has [], not null
	for _, c := range snap.All() {
		isAskedFor := source.Name == "" || source == c.Owner
		if isAskedFor && c.State != plan.StateNone && c.State != plan.StateSynced {
			a.add(c, snap.Reason(c))
		}
		for _, superseded := range snap.Superseded(c) {
			if isAskedFor || source == superseded.Key {
				row := *c
				row.Op = plan.OpNone
				row.State = plan.StateSuperseded
				row.Owner = superseded.Key
				a.add(&row, c.Owner.String()+" has precedence")
			}
		}
	}
	return a
}

// add adds the decision about a target, and why it is so.
func (a *changes) add(c *plan.Change, reason string) {
	operation := c.Op.String()
	if c.Op == plan.OpNone {
		operation = c.State.String()
	}
	a.needed = a.needed || c.Op != plan.OpNone || c.State == plan.StateOutOfScope
	a.Targets = append(a.Targets,
		&change{c.Key.Namespace, c.Key.Name, operation, c.Owner.String(), reason, c})
}

// table prints one row a target, and the number of targets by operation.
func (a *changes) table(w io.Writer) {
	var rows [][]any
	counts := map[string]int{}
	for _, row := range a.Targets {
		rows = append(rows,
			[]any{row.Operation, row.Namespace + "/" + row.Name, row.Source, row.Reason})
		counts[row.Operation]++
	}
	printTable(w, []string{"Operation", "ConfigMap", "Source", "Reason"}, rows)
	var parts []string
	if a.Abandons {
		parts = []string{"all copies of the installed controller, which has another --mirror-label " +
			"or --instance, stay and are in the way: deploy/docs/operate.md says what to do first"}
	}
	for _, operation := range slices.Sorted(maps.Keys(counts)) {
		parts = append(parts, fmt.Sprintf("%s %d", operation, counts[operation]))
	}
	fmt.Fprintf(w, "In all: %s.\n", cmp.Or(strings.Join(parts, ", "), "nothing"))
}
