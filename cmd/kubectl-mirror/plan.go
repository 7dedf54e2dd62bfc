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
shows the targets that stay as they are: foreign ConfigMaps, copies of a frozen source, targets that a source holds, and
copies that are out of scope of the flags, which --prune would delete.

Exit codes: 0 nothing to do, 1 there are changes, or copies out of scope, 2 unknown.`

func newPlan(c *cli) *cobra.Command {
	cmd := &cobra.Command{Use: "plan", Short: "Show what a controller would change", Long: planHelp,
		Example: "  kubectl mirror plan --namespace-prefix=team-\n  kubectl mirror plan --prune", Args: cobra.NoArgs}
	return showSettings(c.command(cmd, true, func(ctx context.Context, s *session, _ []types.NamespacedName) (printed, error) {
		snap, err := s.Read(ctx, "")
		if err != nil {
			return nil, err
		}
		s.say(s.Rules.WithoutTarget(maps.Values(snap.Namespaces)))
		p := newPlanned(snap)
		if p.abandoned, err = s.abandoned(ctx); p.abandoned > 0 {
			s.say(fmt.Sprint(p.abandoned, " copies of the installed controller are abandoned: they have another --mirror-label ",
				"or --instance, stay, and are in the way. deploy/docs/operate.md says what to do first."))
		}
		return p, err
	}))
}

// abandoned returns the number of copies that the installed controller has, and that are none by the flags.
func (s *session) abandoned(ctx context.Context) (int, error) {
	if s.settings.deployment == nil {
		return 0, nil
	}
	installed, err := newSettingsFlags().settingsOf(s.settings.deployment)
	if err != nil || installed.Instance == s.settings.Instance && installed.Label == s.settings.Label {
		return 0, nil // with invalid arguments it never ran
	}
	snap, err := (&snapshot.Reader{Client: s.Client, Rules: plan.NewRules(&installed.Options.Options)}).Read(ctx, "")
	if err != nil {
		return 0, err
	}
	return len(snap.Copies()), nil
}

// planned is what a controller would do, and the targets that stay as they are, but for those in sync.
type planned struct {
	Targets   []*target `json:"targets"`
	abandoned int       // copies of the installed controller that the flags make foreign
}

// target is one ConfigMap.
type target struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Operation is the change, or the state in which the target stays as it is.
	Operation string `json:"operation"`
	Source    string `json:"source"`
	Reason    string `json:"reason,omitempty"`

	change *plan.Change
}

func newPlanned(s *snapshot.Snapshot) *planned {
	p := &planned{Targets: []*target{}}
	for _, c := range s.All() {
		if c.State != plan.StateNone && c.State != plan.StateSynced {
			p.add(c, s.Reason(c))
		}
	}
	return p
}

func (p *planned) add(c *plan.Change, reason string) {
	operation := c.Op.String()
	if c.Op == plan.OpNone {
		operation = c.State.String()
	}
	p.Targets = append(p.Targets, &target{c.Key.Namespace, c.Key.Name, operation, c.Owner.String(), reason, c})
}

func (p *planned) end() error {
	return verdict(p.abandoned == 0 && !slices.ContainsFunc(p.Targets, func(t *target) bool {
		return t.change.Op != plan.OpNone || t.change.State == plan.StateOutOfScope
	}))
}

func (p *planned) table(w io.Writer) {
	var rows [][]any
	counts := map[string]int{}
	for _, t := range p.Targets {
		rows = append(rows, []any{t.Operation, t.Namespace + "/" + t.Name, t.Source, t.Reason})
		counts[t.Operation]++
	}
	var parts []string
	for _, operation := range slices.Sorted(maps.Keys(counts)) {
		parts = append(parts, fmt.Sprintf("%s %d", operation, counts[operation]))
	}
	printTable(w, []string{"Operation", "ConfigMap", "Source", "Reason"}, rows)
	fmt.Fprintf(w, "In all: %s.\n", cmp.Or(strings.Join(parts, ", "), "nothing"))
}
