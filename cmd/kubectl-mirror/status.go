package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mirror-controller/mirror-controller/cmd/kubectl-mirror/snapshot"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// statusTable is the table of the statuses of a source in the help of status
// and wait, and in deploy/docs/kubectl-mirror.md.
const statusTable = `
  status        the targets                                           wait        exit code of wait
  InSync        each is in sync, or held by the source                ends        0
  Pending       some are to be written                                goes on     1 at its timeout
  Rejected      none is pending; the API server refuses some          goes on     1 at its timeout
                                       with --ignore-blocked:         ends        0
  Blocked       none is pending or rejected; some are foreign,        ends        1
                superseded or fought over  with --ignore-blocked:     ends        0
  Frozen, ReservedName, OutOfScope, NoTargets, Gone                   ends        1
  NotKnown      the controller has not reported                       goes on     2 at its timeout
`

const statusHelp = `Show each source of a namespace with the number of its targets by state. With SOURCE, a name or
NAMESPACE/NAME, show the targets that are not in sync, with the state and the reason.
` + statusTable + `
A user who may read no more than the sources and events of a namespace sees what the controller has reported about the
present version of each source. That does not show which namespaces or flags have changed since, and a user who may
write events in that namespace can forge it. A source that is gone is shown to that user if SOURCE names it.

Exit codes: 0 all are InSync, or OutOfScope without copies; 1 not all; 2 not known.`

func newStatus(c *cli) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "status [SOURCE...]",
		Short:   "Show which copies are in sync",
		Long:    statusHelp,
		Example: "  kubectl mirror status -A\n  kubectl mirror status settings -n platform",
	}
	everywhere := cmd.Flags().BoolP("all-namespaces", "A", false,
		"Show the sources of all namespaces.")
	return c.command(cmd, false, func(
		ctx context.Context, s *session, keys []types.NamespacedName,
	) error {
		details := len(keys) > 0
		switch {
		case details && *everywhere:
			return errors.New("--all-namespaces beside SOURCE: give one of the two")
		case *everywhere:
			keys = append(keys, types.NamespacedName{})
		case !details:
			namespace, _, err := c.ToRawKubeConfigLoader().Namespace()
			if err != nil {
				return err
			}
			keys = append(keys, types.NamespacedName{Namespace: namespace})
		}
		sources, err := s.sources(ctx, keys)
		if err != nil {
			return err
		}
		s.print(&statuses{sources, details})
		return exitOf(sources, (*snapshot.Source).IsInSync)
	})
}

// sources returns the statuses of the sources that the keys name. A key without
// a name stands for all sources of its namespace, and an empty one for those of
// the whole cluster. It is an error if a namespace has no such source: that is
// rather a typing error than in sync.
func (s *session) sources(
	ctx context.Context, keys []types.NamespacedName,
) ([]*snapshot.Source, error) {
	all := []*snapshot.Source{} // JSON has [], not null
	for _, key := range keys {
		found, err := s.sourcesOf(ctx, key)
		if err == nil && len(found) == 0 && key.Namespace != "" {
			err = s.noSource(ctx, key)
		}
		if err != nil {
			return nil, err
		}
		all = append(all, found...)
	}
	return all, nil
}

// sourcesOf returns the statuses of the sources that one key names: by what the
// cluster holds or, if the user may not see that, by what the controller has
// reported in the namespace. With a name it reads nothing of other names.
func (s *session) sourcesOf(
	ctx context.Context, key types.NamespacedName,
) ([]*snapshot.Source, error) {
	if s.forbidden == nil {
		found, err := s.sourcesInCluster(ctx, key)
		if !apierrors.IsForbidden(err) {
			return found, err
		}
		s.forbidden = err // also for the next key, and the next round of wait
	}
	if key.Namespace == "" {
		return nil, s.forbidden
	}
	return s.SourcesByReports(ctx, key)
}

// sourcesInCluster reads what the cluster holds and, from the events, what no
// object shows: a rejected write, and a fight.
func (s *session) sourcesInCluster(
	ctx context.Context, key types.NamespacedName,
) ([]*snapshot.Source, error) {
	snap, err := s.Read(ctx, key.Name)
	if err != nil {
		return nil, err
	}
	sources := snap.Sources(key.Namespace)
	reports, err := s.Reports(ctx, key.Namespace)
	for _, source := range sources {
		source.Learn(reports[source.Key()])
	}
	return sources, err
}

// noSource returns an error with the reason why a key names no source. A user
// often means a copy, so that has an error of its own.
func (s *session) noSource(ctx context.Context, key types.NamespacedName) error {
	label := s.Rules.Label() + "=" + plan.SourceValue
	if key.Name == "" {
		return fmt.Errorf("no source in namespace %s: no ConfigMap there has the label %s; "+
			"-A shows those of all namespaces", key.Namespace, label)
	}
	cm, err := s.Get(ctx, key)
	switch {
	case err != nil && !apierrors.IsForbidden(err):
		return err
	case err == nil && cm != nil && plan.MarksOf(cm).Itself:
		return fmt.Errorf("%s is a copy of %s: ask about that", key, plan.MarksOf(cm).Source)
	}
	return fmt.Errorf("no source %s: no ConfigMap of this name has the label %s there, "+
		"and no copy is known", key, label)
}

// exitOf returns the exit code for sources, each of which has to succeed: the
// highest of all.
func exitOf(sources []*snapshot.Source, succeeds func(*snapshot.Source) bool) exitCode {
	code := exitYes
	for _, s := range sources {
		if s.Status == snapshot.NotKnown {
			return exitUnknown
		}
		if !succeeds(s) {
			code = exitNo
		}
	}
	return code
}

// statuses is the answer of status and wait, and that of explain about a
// source.
type statuses struct {
	Sources []*snapshot.Source `json:"sources"`

	// details has the table show the targets of each source that are neither in
	// sync nor held, instead of one row a source.
	details bool
}

// table prints one row a source: its number of targets by state, and the reason
// of its warning. With details it prints each source at length.
func (a *statuses) table(w io.Writer) {
	if a.details {
		for _, s := range a.Sources {
			printSource(w, s)
		}
		return
	}
	if len(a.Sources) == 0 {
		printLines(w, "No sources found.")
	}
	columns := []string{"Namespace", "Name", "Status", "Targets"}
	for _, state := range plan.Counted {
		columns = append(columns, state.String())
	}
	columns = append(columns, "Warning")
	var rows [][]any
	for _, s := range a.Sources {
		row := []any{s.Namespace, s.Name, s.Status, s.Total()}
		for _, state := range plan.Counted {
			row = append(row, s.Count(state))
		}
		reason, _, _ := strings.Cut(s.Warning, ":")
		rows = append(rows, append(row, reason))
	}
	printTable(w, columns, rows)
}

// printSource prints a source with its note and its warning, and the targets
// that are neither in sync nor held: a reader looks for what is wrong, and the
// others may be thousands.
func printSource(w io.Writer, s *snapshot.Source) {
	var rows [][]any
	for _, t := range s.Targets {
		if t.State != plan.StateSynced.String() && t.State != plan.StateHeld.String() {
			rows = append(rows, []any{t.Namespace, t.State, t.Reason})
		}
	}
	printLines(w, s.Key().String()+": "+s.Summary(), s.Note, s.Warning)
	printTable(w, []string{"Target", "State", "Reason"}, rows)
}
