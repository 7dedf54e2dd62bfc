package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mirror-controller/mirror-controller/cmd/kubectl-mirror/snapshot"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

const statusHelp = `Show each source of a namespace with the number of its targets by state. With SOURCE, a name or NAMESPACE/NAME,
show the targets that are not in sync, with the state and the reason.

  synced        the copy holds what the source holds
  pending       the controller is about to create or update the copy, or the API server rejects that
  foreign       a ConfigMap of the name exists that is not a copy of this controller
  superseded    another source of that name has the target
  frozen        an annotation of the source is malformed or not known: the copy stays as it is
  held          the copy is not in sync, and stays as it is by the annotation rollout or paused of the source
  out_of_scope  the copy is not allowed by the flags, and stays
  expiring      no source claims the copy: it is deleted at the end of the deletion grace

A user who may read no more than the source and its events sees, with SOURCE, whether its content has arrived, by the
newest report of the controller. A user who may write events in that namespace can forge the report.

Exit codes: 0 all in sync, 1 not, 2 unknown, also if there is no report.`

func newStatus(c *cli) *cobra.Command {
	var all, everywhere bool
	cmd := c.command("status [SOURCE]", "Show which copies are in sync", statusHelp,
		"  kubectl mirror status -A\n  kubectl mirror status settings -n platform", 0, 1,
		func(cmd *cobra.Command, args []string) (printed, error) { return c.status(cmd, args, everywhere, all) })
	cmd.Flags().BoolVar(&all, "all", false, "Show the targets that are in sync, too.")
	cmd.Flags().BoolVarP(&everywhere, "all-namespaces", "A", false, "Show the sources of all namespaces.")
	return cmd
}

func (c *cli) status(cmd *cobra.Command, args []string, everywhere, all bool) (printed, error) {
	asked := types.NamespacedName{} // all
	var err error
	switch {
	case len(args) == 1 && everywhere:
		err = errors.New("--all-namespaces beside SOURCE: give one of the two")
	case len(args) == 1:
		if asked, err = c.parseKey(args[0]); err == nil {
			return (&asker{cli: c, cmd: cmd, asked: asked, all: all}).ask()
		}
	case !everywhere:
		asked.Namespace, _, err = c.kube.ToRawKubeConfigLoader().Namespace()
	}
	if err != nil {
		return nil, err
	}
	sessions, err := c.beginAll(cmd)
	r := &report{InSync: true, Sources: []*listed{}}
	for _, s := range sessions {
		if err == nil {
			err = s.sources(cmd.Context(), asked, r)
		}
	}
	for _, source := range r.Sources {
		if source.Targets = nil; len(sessions) == 1 {
			source.Controller = ""
		}
	}
	slices.SortStableFunc(r.Sources, func(a, b *listed) int { return strings.Compare(a.Key().String(), b.Key().String()) })
	return r, err
}

// sources adds the state of one source, of those of a namespace, or of all, with warnings if the user may list events,
// and says if no controller runs. With a name it reads nothing of other names.
func (s *session) sources(ctx context.Context, asked types.NamespacedName, r *report) error {
	snap, err := s.Read(ctx, asked.Name)
	if err != nil {
		return err
	}
	s.say(s.settings.absence())
	sources := snap.Sources(asked)
	for _, source := range sources {
		r.add(source, s.settings.deployment)
	}
	return s.warnings(ctx, asked.Namespace, sources)
}

// warnings adds warnings, if the user may list events.
func (s *session) warnings(ctx context.Context, namespace string, sources []*snapshot.Source) error {
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

func (a *asker) ask() (*report, error) {
	r, ctx, s, err := &report{InSync: true, one: true, all: a.all}, a.cmd.Context(), a.session, error(nil)
	if s == nil {
		s, err = a.begin(a.cmd)
	}
	if err == nil && !s.isOwner {
		err = s.sources(ctx, a.asked, r)
	}
	if err != nil {
		s, err = a.owned(a.cmd, s, err)
	}
	if err == nil && s.isOwner {
		err = s.reported(ctx, a.asked, r)
	}
	if err != nil {
		return nil, err
	}
	if a.session = s; len(r.Sources) == 0 {
		return nil, fmt.Errorf("no source %s: no ConfigMap of this name has the label %s=%s there, and no copy is left: "+
			"kubectl mirror explain %[1]s says why", a.asked, s.Rules.Label(), plan.SourceValue)
	}
	return r, nil
}

// report is the state of one source with its targets, or of many without.
type report struct {
	InSync  bool      `json:"inSync"`
	Sources []*listed `json:"sources"`

	one, all  bool // there is one source, which was asked for; show its targets in sync, too
	explained bool // the command explains, and ends with 0
}

// listed is a source in a report.
type listed struct {
	Controller string `json:"controller,omitempty"` // if there are several
	*snapshot.Source
}

func (r *report) add(source *snapshot.Source, d *appsv1.Deployment) {
	l := &listed{Source: source}
	if d != nil && !r.one {
		l.Controller = keyOf(d)
	}
	r.InSync, r.Sources = r.InSync && source.IsInSync(), append(r.Sources, l)
}

func (r *report) end() error {
	if r.one && r.Sources[0].Status == snapshot.NotKnown && !r.explained {
		return errUnknown
	}
	return verdict(r.InSync || r.explained)
}

// names returns the sources; of one source the copies that are wanted or there.
func (r *report) names() (names []string) {
	for _, s := range r.Sources {
		if !r.one {
			names = append(names, nameOf(s.Key()))
		}
		for _, t := range s.Targets {
			names = append(names, nameOf(types.NamespacedName{Namespace: t.Namespace, Name: s.Name}))
		}
	}
	return slices.Compact(names)
}

func (r *report) table(w io.Writer, wide bool) error {
	if r.one {
		return r.Sources[0].table(w, wide, r.all)
	}
	if len(r.Sources) == 0 {
		return printLines(w, "No sources found. -A shows those of all namespaces.")
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

// table prints the source itself, and the targets that are not in sync, or all.
func (s *listed) table(w io.Writer, wide, all bool) error {
	var rows [][]any
	for _, t := range s.Targets {
		if all || t.State != plan.StateSynced.Metric() {
			rows = append(rows, []any{t.Namespace, t.State, t.Operation, printable(t.Reason)})
		}
	}
	if err := printLines(w, s.Key().String()+": "+s.Summary(), s.Note, s.Warning.String()); err != nil {
		return err
	}
	return printTable(w, wide, []string{"Target", "State", "+Operation", "Reason"}, rows)
}
