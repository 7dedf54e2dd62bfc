package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
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

Who may read only the source and its events is told, with SOURCE, whether its content has arrived, by the newest report of the
controller. Whoever may write events in that namespace can forge the report.

Exit codes: 0 all in sync, 1 not, 2 unknown, also if there is no report.`

func newStatus(c *cli) *cobra.Command {
	var output outputFlag
	var all, everywhere bool
	cmd := &cobra.Command{
		Use:     "status [SOURCE]",
		Short:   "Show which copies are in sync",
		Long:    statusHelp,
		Example: "  kubectl mirror status -A\n  kubectl mirror status settings -n platform",
		Args:    arguments(0, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			r, err := c.status(cmd, args, everywhere, all)
			if err == nil {
				err = output.print(cmd.OutOrStdout(), r)
			}
			if err != nil {
				return err
			}
			return r.verdict()
		},
	}
	output.bind(cmd)
	cmd.Flags().BoolVar(&all, "all", false, "Show the targets that are in sync, too.")
	cmd.Flags().BoolVarP(&everywhere, "all-namespaces", "A", false, "Show the sources of all namespaces.")
	return cmd
}

func (c *cli) status(cmd *cobra.Command, args []string, everywhere, all bool) (judged, error) {
	if len(args) == 1 {
		asked, err := c.parseKey(args[0])
		if everywhere {
			err = errors.New("--all-namespaces beside SOURCE: give one of the two")
		}
		if err != nil {
			return nil, err
		}
		return (&asker{cli: c, cmd: cmd, asked: asked, all: all}).ask()
	}
	namespace, _, err := c.kube.ToRawKubeConfigLoader().Namespace()
	if everywhere {
		namespace, err = "", nil
	}
	if err != nil {
		return nil, err
	}
	sessions, err := c.beginAll(cmd)
	if err != nil {
		return nil, err
	}
	r := &report{InSync: true, Sources: []*listed{}, namespace: namespace}
	for _, s := range sessions {
		sources, err := s.sources(cmd.Context(), types.NamespacedName{Namespace: namespace})
		if err != nil {
			return nil, err
		}
		for _, source := range sources {
			source.Targets = nil
			l := &listed{Source: source}
			if len(sessions) > 1 {
				l.Controller = keyOf(s.settings.deployment)
			}
			r.InSync, r.Sources = r.InSync && source.IsInSync(), append(r.Sources, l)
		}
	}
	slices.SortStableFunc(r.Sources, func(a, b *listed) int { return strings.Compare(a.Key().String(), b.Key().String()) })
	return r, nil
}

// sources returns the state of one source, of those of a namespace, or of all, with warnings, and says if no controller runs.
// With a name it reads nothing of other names.
func (s *session) sources(ctx context.Context, asked types.NamespacedName) ([]*snapshot.Source, error) {
	snap, err := s.Read(ctx, asked.Name)
	if err != nil {
		return nil, err
	}
	s.say(s.settings.absence())
	sources := snap.Sources(asked)
	return sources, s.addWarnings(ctx, asked.Namespace, sources)
}

// addWarnings adds warnings, if the user may list events.
func (s *session) addWarnings(ctx context.Context, namespace string, sources []*snapshot.Source) error {
	err := s.AddWarnings(ctx, namespace, sources)
	if apierrors.IsForbidden(err) {
		s.say("Not checked: whether the controller has warned, because you may not list events")
		return nil
	}
	return err
}

// asker asks about one source: about its targets or, if the user may not see these, by the reports of the controller.
type asker struct {
	*cli
	*session
	cmd   *cobra.Command
	asked types.NamespacedName
	all   bool // show the targets in sync, too
}

func (a *asker) ask() (*oneReport, error) {
	ctx, s, err := a.cmd.Context(), a.session, error(nil)
	if s == nil {
		s, err = a.begin(a.cmd)
	}
	var found []*snapshot.Source
	if err == nil && !s.isOwner {
		found, err = s.sources(ctx, a.asked)
	}
	if err != nil {
		s, err = a.owned(a.cmd, s, err)
	}
	if err == nil && s.isOwner {
		found, err = s.reported(ctx, a.asked)
	}
	if err != nil {
		return nil, err
	}
	if a.session = s; len(found) == 0 {
		return nil, fmt.Errorf("no source %s: no ConfigMap of this name has the label %s=%s there, and no copy is left: "+
			"kubectl mirror explain %[1]s says why", a.asked, s.Rules.Label(), plan.SourceValue)
	}
	return &oneReport{InSync: found[0].IsInSync(), Source: found[0], all: a.all}, nil
}

// judged is what status prints.
type judged interface {
	printed
	verdict() error
}

// report is the state of the sources of a namespace, or of all.
type report struct {
	InSync  bool      `json:"inSync"`
	Sources []*listed `json:"sources"`

	namespace string // empty: all
}

// listed is a source in a list.
type listed struct {
	Controller string `json:"controller,omitempty"` // if there are several
	*snapshot.Source
}

func (r *report) verdict() error { return verdict(r.InSync) }

func (r *report) names() (names []string) {
	for _, s := range r.Sources {
		if names = append(names, nameOf(s.Key())); r.namespace != "" {
			names[len(names)-1] = "configmap/" + s.Name
		}
	}
	return slices.Compact(names)
}

func (r *report) table(w io.Writer, wide bool) error {
	if len(r.Sources) == 0 {
		return printLines(w, []string{"No sources found. -A shows those of all namespaces."})
	}
	columns := []string{"Namespace", "Name", "Controller", "Status", "Targets"}
	for _, state := range snapshot.Counted {
		columns = append(columns, strings.ReplaceAll(state.Metric(), "_", "-"))
	}
	var rows [][]any
	for _, s := range r.Sources {
		row := []any{s.Namespace, s.Name, s.Controller, s.Status, s.Total()}
		for _, state := range snapshot.Counted {
			row = append(row, s.Count(state))
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
	InSync bool `json:"inSync"`
	*snapshot.Source

	all bool // show the targets in sync, too
}

func (r *oneReport) verdict() error {
	if r.Status == snapshot.NotKnown {
		return errUnknown
	}
	return verdict(r.InSync)
}

// names returns the copies that are wanted or there.
func (r *oneReport) names() (names []string) {
	for _, t := range r.Targets {
		names = append(names, nameOf(types.NamespacedName{Namespace: t.Namespace, Name: r.Name}))
	}
	return names
}

// table prints the source itself, and the targets that are not in sync, or all.
func (r *oneReport) table(w io.Writer, wide bool) error {
	lines := []string{r.Key().String() + ": " + r.Summary(), r.Note}
	if r.Warning != nil {
		lines = append(lines, r.Warning.String())
	}
	var rows [][]any
	for _, t := range r.Targets {
		if r.all || t.State != plan.StateSynced.Metric() {
			rows = append(rows, []any{t.Namespace, t.State, t.Operation, printable(t.Reason)})
		}
	}
	if err := printLines(w, lines); err != nil {
		return err
	}
	return printTable(w, wide, []string{"Target", "State", "+Operation", "Reason"}, rows)
}
