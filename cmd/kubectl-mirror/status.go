package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/mirror-controller/mirror-controller/cmd/kubectl-mirror/snapshot"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// statusTable is the table of the statuses of a source in the help of status
// and wait, and in deploy/docs/kubectl-mirror.md.
const statusTable = `
  status        the targets                                           wait        exit code of wait
  InSync        each is in sync, or held by the source                ends        0
  Pending       some are to be written: this version is not reported  goes on     1 at its timeout
  Rejected      none is pending; the API server refuses some          goes on     1 at its timeout
                                       with --ignore-blocked:         ends        0
  Blocked       none is pending or rejected; some are foreign,        ends        1
                superseded or fought over  with --ignore-blocked:     ends        0
  Frozen, ReservedName, OutOfScope, NoTargets, Gone                   ends        1
  NotKnown      the controller has not reported                       goes on     2 at its timeout
`

const statusHelp = `Show what the controller has reported about the present version of each source of a namespace:
the number of its targets by state, and the warnings that can still hold. With SOURCE, a name or NAMESPACE/NAME, show
the text of the warnings. With --problems show only what is wrong, one warning a line.
` + statusTable + `
Reports are events. They do not show which namespaces or flags have changed since, and a user who may write events in
the namespace of a source can forge them. kubectl mirror plan SOURCE reads the cluster instead, and lists single
targets.

Exit codes: 0 all are InSync, or nothing is wrong; 1 not so; 2 not known.`

func newStatus(c *cli) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "status [SOURCE...]",
		Short: "Show which copies are in sync",
		Long:  statusHelp,
		Example: "  kubectl mirror status -A\n  kubectl mirror status settings -n platform\n" +
			"  kubectl mirror status -A --problems",
	}
	everywhere := cmd.Flags().BoolP("all-namespaces", "A", false,
		"Show the sources of all namespaces.")
	problems := cmd.Flags().Bool("problems", false,
		"Show only what is wrong now, with the remedy.")
	return c.command(cmd, false, func(
		ctx context.Context, s *session, keys []types.NamespacedName,
	) error {
		hasNames := len(keys) > 0
		switch {
		case hasNames && *everywhere:
			return errors.New("--all-namespaces beside SOURCE: give one of the two")
		case *everywhere:
			keys = append(keys, types.NamespacedName{})
		case !hasNames:
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
		if *problems {
			sources = slices.DeleteFunc(sources, isWell)
			s.print(&troubles{statuses{Sources: sources}, s.stalled != ""})
			if s.stalled != "" && len(sources) == 0 {
				return exitNo // no controller would report a problem
			}
			return exitOf(sources, isWell)
		}
		s.print(&statuses{sources, hasNames})
		return exitOf(sources, isInSync)
	})
}

// isInSync reports whether nothing is to be done for a source, and nothing is
// in its way.
func isInSync(s *snapshot.Source) bool { return s.Status == snapshot.InSync }

// isWell reports whether a source is in sync, and has no warnings.
func isWell(s *snapshot.Source) bool { return isInSync(s) && len(warningsOf(s)) == 0 }

// warningsOf returns the warnings about a source.
func warningsOf(s *snapshot.Source) []snapshot.Message {
	return slices.DeleteFunc(slices.Clone(s.Messages), func(m snapshot.Message) bool {
		return m.Reason == plan.ReasonHeld // that is what the source asks for
	})
}

// sources returns the statuses of the sources that the keys name. A key without
// a name stands for all sources of its namespace, and an empty one for those of
// the whole cluster. It is an error if a namespace has no such source: that is
// rather a typing error than in sync.
func (s *session) sources(
	ctx context.Context, keys []types.NamespacedName,
) ([]*snapshot.Source, error) {
	if err := s.begin(ctx); err != nil {
		return nil, err
	}
	s.askForLeader(ctx)
	all := []*snapshot.Source{} // JSON has [], not null
	for _, key := range keys {
		found, err := s.Sources(ctx, key)
		isGone := len(found) == 0 || key.Name != "" && found[0].Status == snapshot.Gone
		if err == nil && isGone && key.Namespace != "" {
			err = s.explainGone(ctx, key, found)
		}
		if err != nil {
			return nil, err
		}
		all = append(all, found...)
	}
	return all, nil
}

// explainGone sets the note of a source that is gone, if there is a ConfigMap
// that shows why. If there is no report on it either, it returns an error with
// what is there instead: a user often means a copy.
func (s *session) explainGone(
	ctx context.Context, key types.NamespacedName, found []*snapshot.Source,
) error {
	if key.Name == "" {
		return fmt.Errorf("no source in namespace %s: no ConfigMap there has the label %s=%s; "+
			"-A shows those of all namespaces", key.Namespace, s.Rules.Label(), plan.SourceValue)
	}
	cm, err := s.Get(ctx, key)
	if err != nil && len(found) == 0 { // else the report says enough
		return err
	}
	why := mislabelled(s.Rules, cm)
	if len(found) > 0 {
		found[0].Note = cmp.Or(why, found[0].Note)
		return nil
	}
	x := &subject{Rules: s.Rules, key: key, cm: cm}
	return fmt.Errorf("%w %s: %s", errNoSource, key, cmp.Or(why, x.describe()))
}

// errNoSource is the error that a source is not there, and has no report.
var errNoSource = errors.New("no source")

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

// statuses is the answer of status and wait.
type statuses struct {
	Sources []*snapshot.Source `json:"sources"`

	details bool // the table has each source at length, instead of a row
}

// table prints the number of targets of each source by state, and the reasons
// of its events.
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
	columns = append(columns, "Until", "Events")
	var rows [][]any
	for _, s := range a.Sources {
		row := []any{s.Namespace, s.Name, s.Status, s.Total()}
		for _, state := range plan.Counted {
			row = append(row, s.Count(state))
		}
		var reasons []string
		for _, m := range s.Messages {
			reasons = append(reasons, m.Reason)
		}
		rows = append(rows, append(row, s.Until, strings.Join(reasons, ",")))
	}
	printTable(w, columns, rows)
}

// troubles is the answer of status --problems: the sources with problems.
type troubles struct {
	statuses

	stalled bool // no controller would report one
}

// table prints the warnings about each source or, if there is none, its status
// and the reason of that.
func (a *troubles) table(w io.Writer) {
	if len(a.Sources) == 0 && !a.stalled {
		printLines(w, "No problems found.")
	}
	var rows [][]any
	for _, s := range a.Sources {
		warnings := warningsOf(s)
		if len(warnings) == 0 {
			warnings = []snapshot.Message{{Reason: s.Status, Text: s.Note}}
		}
		for _, m := range warnings {
			until := ""
			if m.Reason == plan.ReasonExpiring {
				until = s.Until
			}
			rows = append(rows, []any{s.Namespace, s.Name, m.Reason, until, m.Text})
		}
	}
	printTable(w, []string{"Namespace", "Name", "Problem", "Until", "Message"}, rows)
}

// printSource prints a source with the age of its report, its events and its
// note.
func printSource(w io.Writer, s *snapshot.Source) {
	printLines(w, s.Key().String()+": "+s.Summary())
	if !s.Reported.IsZero() {
		age := max(0, time.Since(s.Reported.Time))
		printLines(w, "as reported "+duration.HumanDuration(age)+" ago")
	}
	for _, m := range s.Messages {
		printLines(w, m.Reason+": "+m.Text)
	}
	printLines(w, s.Note)
}
