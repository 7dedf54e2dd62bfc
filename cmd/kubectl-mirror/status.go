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

const statusHelp = `Show each source of a namespace with the number of its targets by state. With SOURCE, a name or
NAMESPACE/NAME, show the targets that are not in sync, with the state and the reason.

  synced        the copy holds what the source holds
  pending       the controller is about to create or update the copy, or the API server rejects that
  foreign       a ConfigMap of the name exists that is not a copy of this controller
  superseded    another source of that name has the target
  frozen        an annotation of the source is malformed or not known: the copy stays as it is
  held          the copy is not in sync, and stays as it is by the annotation rollout or paused of the source
  out_of_scope  the copy is not allowed by the flags, and stays
  expiring      no source claims the copy: it is deleted at the end of the deletion grace

A user who may read no more than the source and its events sees, with SOURCE, whether its content has arrived, by the
newest report of the controller: NotYet if that is of another version or before a warning, NotKnown if there is none.
It does not show what namespaces or flags changed since. A user who may write events in that namespace can forge it.

Exit codes: 0 all in sync, 1 not, 2 unknown, also if there is no report.`

func newStatus(c *cli) *cobra.Command {
	var all, everywhere bool
	cmd := c.command("status [SOURCE]", "Show which copies are in sync", statusHelp,
		"  kubectl mirror status -A\n  kubectl mirror status settings -n platform", cobra.MaximumNArgs(1),
		func(cmd *cobra.Command, args []string) (printed, error) { return c.status(cmd, args, everywhere, all) })
	cmd.Flags().BoolVar(&all, "all", false, "Show the targets that are in sync, too.")
	cmd.Flags().BoolVarP(&everywhere, "all-namespaces", "A", false, "Show the sources of all namespaces.")
	return cmd
}

func (c *cli) status(cmd *cobra.Command, args []string, everywhere, all bool) (printed, error) {
	switch {
	case len(args) == 1 && everywhere:
		return nil, errors.New("--all-namespaces beside SOURCE: give one of the two")
	case len(args) == 0:
		return c.statusOfAll(cmd, everywhere)
	}
	s, asked, err := c.beginOne(cmd, args[0])
	if err != nil {
		return nil, err
	}
	r, err := s.ask(cmd.Context(), asked)
	if err != nil {
		return nil, err
	}
	r.all = all
	return r, nil
}

// statusOfAll reports on the sources of each controller, in the namespace of -n or of the context, or everywhere.
func (c *cli) statusOfAll(cmd *cobra.Command, everywhere bool) (printed, error) {
	var asked types.NamespacedName
	sessions, err := c.beginAll(cmd)
	if err == nil && !everywhere {
		asked.Namespace, _, err = c.kube.ToRawKubeConfigLoader().Namespace()
	}
	if err != nil {
		return nil, err
	}
	var all []*snapshot.Source
	for _, s := range sessions {
		found, err := s.read(cmd.Context(), asked)
		if err != nil {
			return nil, err
		}
		for _, source := range found {
			if source.Targets = nil; len(sessions) > 1 {
				source.Controller = keyOf(s.settings.deployment)
			}
		}
		all = append(all, found...)
	}
	return newReport(all), nil
}

// read returns the state of one source, of those of a namespace, or of all, by what the cluster holds. With a name it
// reads nothing of other names.
func (s *session) read(ctx context.Context, asked types.NamespacedName) ([]*snapshot.Source, error) {
	snap, err := s.Read(ctx, asked.Name)
	if err != nil {
		return nil, err
	}
	sources := snap.Sources(asked)
	if len(sources) == 0 && asked.Namespace != "" && snap.Namespaces[asked.Namespace] == nil {
		return nil, errors.New("there is no namespace " + asked.Namespace)
	}
	return sources, s.warn(ctx, asked.Namespace, sources)
}

// warn adds the newest warning to each source that is not in sync, if the user may list events. The sources are in the
// namespace; empty: in any.
func (s *session) warn(ctx context.Context, namespace string, sources []*snapshot.Source) error {
	if newReport(sources).InSync {
		return nil
	}
	reports, err := s.Reports(ctx, namespace, "")
	if apierrors.IsForbidden(err) {
		s.say("Not checked: whether the controller has warned, because you may not list events")
		return nil
	}
	for _, source := range sources {
		if source.Count(plan.StateExpiring) == 0 {
			delete(reports[source.UID], plan.ReasonExpiring) // that is over
		}
		if !source.IsInSync() && source.Status != snapshot.Frozen { // which tells by itself why, and its copies stay
			source.Warning = reports[source.UID].Warning()
		}
	}
	return err
}

// ask reports on one source: by what the cluster holds or, if the user may not see that, by what the controller has
// reported.
func (s *session) ask(ctx context.Context, asked types.NamespacedName) (*report, error) {
	var found []*snapshot.Source
	err := s.limit
	if err == nil {
		found, err = s.read(ctx, asked)
	}
	if s.isLimited(err) {
		found, err = s.reported(ctx, asked)
	}
	if err == nil && len(found) == 0 {
		err = fmt.Errorf("no source %s: no ConfigMap of this name has the label %s=%s there, and you see no copy; if some "+
			"are left: kubectl events -n %s --for cm/%s", asked, s.Rules.Label(), plan.SourceValue, asked.Namespace, asked.Name)
	}
	if err != nil {
		return nil, err
	}
	r := newReport(found)
	if r.one = true; found[0].Status == snapshot.NotKnown {
		r.answer = exitUnknown
	}
	return r, nil
}

// report is the state of one source with its targets, or of many without.
type report struct {
	InSync  bool               `json:"inSync"`
	Sources []*snapshot.Source `json:"sources"`

	one, all bool     // there is one source, which was asked for; show its targets in sync, too
	answer   exitCode // ends the command
}

func newReport(sources []*snapshot.Source) *report {
	inSync := !slices.ContainsFunc(sources, func(s *snapshot.Source) bool { return !s.IsInSync() })
	return &report{InSync: inSync, Sources: append([]*snapshot.Source{}, sources...), answer: verdict(inSync)}
}

func (r *report) end() error { return r.answer }

func (r *report) table(w io.Writer, wide bool) {
	switch {
	case r.one:
		printSource(w, wide, r.Sources[0], r.all)
		return
	case len(r.Sources) == 0:
		printLines(w, "No sources found. -A shows those of all namespaces.")
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
		rows = append(rows, append(row, warning, s.Note))
	}
	printTable(w, wide, append(columns, "Warning", "+Note"), rows)
}

// printSource prints a source itself, and its targets that are not in sync, or all.
func printSource(w io.Writer, wide bool, s *snapshot.Source, all bool) {
	var rows [][]any
	for _, t := range s.Targets {
		if all || t.State != plan.StateSynced.Metric() {
			rows = append(rows, []any{t.Namespace, t.State, t.Reason})
		}
	}
	printLines(w, s.Key().String()+": "+s.Summary(), s.Note, s.Warning.String())
	printTable(w, wide, []string{"Target", "State", "Reason"}, rows)
}
