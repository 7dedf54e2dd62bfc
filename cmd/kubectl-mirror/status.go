package main

import (
	"bytes"
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

const statusHelp = `Show each source of a namespace with the number of its targets by state. With SOURCE, which is a name or NAMESPACE/NAME, show
the targets that are not in sync, with the state and the reason.

  synced        the copy holds what the source holds
  pending       the controller is about to create or update the copy, or the API server rejects that
  foreign       a ConfigMap of the name exists that is not a copy of this controller
  superseded    another source of that name has the target
  frozen        an annotation of the source is malformed or not known: the copy stays as it is
  held          the copy is not in sync, and stays as it is by the annotation rollout or paused of the source
  out_of_scope  the copy is not allowed by the flags, and stays
  expiring      no source claims the copy: it is deleted at the end of the deletion grace

The newest warning of the controller about a source stands beside it, if it is younger than the last change of the source.

Exit codes: 0 all in sync, 1 not, or flags and annotations of the controller differ, 2 unknown.`

func newStatus(c *cli) *cobra.Command {
	var output outputFlag
	var watch, all, everywhere bool
	cmd := &cobra.Command{
		Use:               "status [SOURCE]",
		Short:             "Show which copies are in sync",
		Long:              statusHelp,
		Example:           "  kubectl mirror status -A\n  kubectl mirror status settings -n platform --watch",
		Args:              arguments(0, 1),
		ValidArgsFunction: c.complete(c.sources),
		RunE: func(cmd *cobra.Command, args []string) error {
			ask, err := c.status(cmd, args, everywhere, all)
			if err != nil {
				return err
			}
			return showStatus(cmd, ask, &output, watch)
		},
	}
	output.bind(cmd)
	cmd.Flags().BoolVarP(&watch, "watch", "w", false, "Print again what has changed, until interrupted.")
	cmd.Flags().BoolVar(&all, "all", false, "Show the targets that are in sync, too.")
	cmd.Flags().BoolVarP(&everywhere, "all-namespaces", "A", false, "Show the sources of all namespaces.")
	return cmd
}

// status returns a function that reads the status.
func (c *cli) status(cmd *cobra.Command, args []string, everywhere, all bool) (func() (reported, error), error) {
	namespace, err := c.namespace()
	if err != nil {
		return nil, err
	}
	if everywhere {
		namespace = ""
		c.settings.Everywhere()
	}
	var asked types.NamespacedName
	if len(args) == 1 {
		if everywhere {
			return nil, errors.New("--all-namespaces beside SOURCE: give one of the two")
		}
		if asked, err = c.parseKey(args[0]); err != nil {
			return nil, err
		}
	}
	s, err := c.begin(cmd)
	return func() (reported, error) {
		if err == nil && asked.Name == "" {
			return s.statusOfAll(cmd.Context(), namespace)
		}
		why := err
		if why == nil {
			var r *oneReport
			if r, why = s.statusOf(cmd.Context(), asked); why == nil {
				r.all = all
				return r, nil
			}
		}
		return c.seen(cmd, asked, why)
	}, nil
}

// reported is what status prints.
type reported interface {
	printed
	verdict() error
}

// showStatus prints the status once, or again whenever it has changed. The exit code is that of the last one.
func showStatus(cmd *cobra.Command, ask func() (reported, error), output *outputFlag, watch bool) error {
	out := cmd.OutOrStdout()
	var verdict error
	printed, shown := false, []byte(nil)
	err := follow(cmd.Context(), func() (bool, error) {
		r, err := ask()
		if err != nil {
			return false, err
		}
		var text bytes.Buffer
		if err := output.print(&text, r); err != nil {
			return false, err
		}
		if verdict = r.verdict(); printed && bytes.Equal(text.Bytes(), shown) {
			return false, nil
		}
		if printed {
			output.separate(out)
		}
		printed, shown = true, text.Bytes()
		if _, err := out.Write(shown); err != nil {
			return false, err
		}
		return !watch, flush(out)
	})
	if err == nil {
		err = verdict
	}
	return err
}

// report is the state of the sources of a namespace, or of all.
type report struct {
	Settings string             `json:"settings"`
	InSync   bool               `json:"inSync"`
	Sources  []*snapshot.Source `json:"sources"`

	*session  `json:"-"`
	namespace string // empty: all
}

// statusOfAll returns the report on all sources of a namespace; empty: of all namespaces.
func (s *session) statusOfAll(ctx context.Context, namespace string) (*report, error) {
	sources, err := s.read(ctx, types.NamespacedName{Namespace: namespace})
	r := &report{Settings: s.settings.Origin, InSync: true, Sources: sources, session: s, namespace: namespace}
	for _, source := range sources {
		r.InSync = r.InSync && source.IsInSync()
		source.Targets = nil
	}
	return r, err
}

// read returns the state of one source, of those of a namespace, or of all, with warnings, and says if no controller runs. With a
// name it reads nothing of other names.
func (s *session) read(ctx context.Context, asked types.NamespacedName) ([]*snapshot.Source, error) {
	snap, err := s.Read(ctx, asked.Name)
	if err != nil {
		return nil, err
	}
	sources := snap.Sources(s.Options, asked)
	s.sayAbsence(ctx)
	for _, source := range sources {
		if grace := s.grace(); source.Counts[plan.StateExpiring.Metric()] > 0 && grace != "" {
			s.sayOnce("Copies that expire are deleted at the end of the deletion grace" + grace)
		}
	}
	return sources, s.addWarnings(ctx, snap, asked.Namespace, sources)
}

// addWarnings adds warnings, if the user may list events.
func (s *session) addWarnings(ctx context.Context, snap *snapshot.Snapshot, namespace string, sources []*snapshot.Source) error {
	err := s.AddWarnings(ctx, snap, namespace, sources)
	if apierrors.IsForbidden(err) {
		s.sayOnce("Not checked: whether the controller has warned, because you may not list events")
		return nil
	}
	return err
}

func (r *report) verdict() error { return r.session.verdict(r.InSync) }

func (r *report) names() (names []string) {
	for _, s := range r.Sources {
		name := nameOf(s.Key())
		if r.namespace != "" {
			name = "configmap/" + s.Name
		}
		names = append(names, name)
	}
	return names
}

func (r *report) table(w io.Writer, wide bool) error {
	if len(r.Sources) == 0 {
		where := "."
		if r.namespace != "" {
			where = fmt.Sprintf(" in namespace %s. -A shows those of all namespaces.", r.namespace)
		}
		_, err := fmt.Fprintf(w, "No sources found%s\n", where)
		return err
	}
	columns := []string{"Namespace", "Name", "Status", "Targets"}
	for _, state := range snapshot.Counted {
		columns = append(columns, strings.ReplaceAll(state.Metric(), "_", "-"))
	}
	var rows [][]any
	for _, s := range r.Sources {
		row := []any{s.Namespace, s.Name, s.Status, s.Total()}
		for _, state := range snapshot.Counted {
			row = append(row, s.Counts[state.Metric()])
		}
		warning := ""
		if s.Warning != nil {
			warning = s.Warning.Reason
		}
		rows = append(rows, append(row, warning, printable(s.Note)))
	}
	return printTable(w, wide, append(columns, "Warning", "+Note"), rows)
}

// oneReport is the state of one source, with its targets.
type oneReport struct {
	Settings string `json:"settings"`
	InSync   bool   `json:"inSync"`
	*snapshot.Source

	*session `json:"-"`
	all      bool // show the targets in sync, too
}

// statusOf returns the report on one source.
func (s *session) statusOf(ctx context.Context, asked types.NamespacedName) (*oneReport, error) {
	sources, err := s.read(ctx, asked)
	switch {
	case err != nil:
		return &oneReport{}, err
	case len(sources) == 0:
		return &oneReport{}, fmt.Errorf("no source %s: no ConfigMap of this name has the label %s=%s there, and no copy is left: "+
			"kubectl mirror explain %[1]s says why", asked, s.settings.Label, plan.SourceValue)
	}
	return &oneReport{Settings: s.settings.Origin, InSync: sources[0].IsInSync(), Source: sources[0], session: s}, nil
}

func (r *oneReport) verdict() error { return r.session.verdict(r.InSync) }

// names returns the copies that are wanted or there.
func (r *oneReport) names() (names []string) {
	for _, t := range r.Targets {
		names = append(names, nameOf(types.NamespacedName{Namespace: t.Namespace, Name: r.Name}))
	}
	return names
}

func (r *oneReport) table(w io.Writer, wide bool) error {
	if _, err := io.WriteString(w, heading(r.Source)); err != nil {
		return err
	}
	return printTargets(w, wide, r.Source, r.all)
}

// heading returns the lines about a source itself: its counts, why nothing is mirrored, and the newest warning.
func heading(s *snapshot.Source) string {
	text := s.Summary() + "\n"
	if s.Note != "" {
		text += printable(s.Note) + "\n"
	}
	if s.Warning != nil {
		text += printable(s.Warning.String()) + "\n"
	}
	return text
}

// printTargets prints the targets that are not in sync, or all.
func printTargets(w io.Writer, wide bool, s *snapshot.Source, all bool) error {
	var rows [][]any
	for _, t := range s.Targets {
		if all || t.State != plan.StateSynced.Metric() {
			rows = append(rows, []any{t.Namespace, t.State, t.Operation, printable(t.Reason)})
		}
	}
	return printTable(w, wide, []string{"Target", "State", "+Operation", "Reason"}, rows)
}
