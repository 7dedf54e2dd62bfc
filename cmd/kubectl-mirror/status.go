package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mirror-controller/mirror-controller/cmd/kubectl-mirror/snapshot"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// states is the table of the help, and of deploy/docs/kubectl-mirror.md.
const states = `
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
` + states + `
A user who may read no more than the sources and events of a namespace sees what the controller has reported about the
present version of each source. That does not show which namespaces or flags have changed since, and a user who may
write events in that namespace can forge it.

Exit codes: 0 all are InSync, 1 not all, 2 not known.`

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
	s, asked, err := c.beginSome(cmd, args)
	if err != nil {
		return nil, err
	}
	source, err := s.ask(cmd.Context(), asked[0])
	if err != nil {
		return nil, err
	}
	r := newReport([]*snapshot.Source{source})
	r.details, r.all = true, all
	return r, nil
}

// statusOfAll reports on the sources of each controller, in the namespace of -n or of the context, or everywhere.
func (c *cli) statusOfAll(cmd *cobra.Command, everywhere bool) (printed, error) {
	var asked types.NamespacedName
	sessions, err := c.beginAll(cmd)
	if apierrors.IsForbidden(err) && !everywhere {
		var limited *session
		limited, err = c.beginLimited(cmd)
		sessions = []*session{limited}
	}
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

// read returns the state of one source, of those of a namespace, or of all: by what the cluster holds or, if the user
// may not see that, by what the controller has reported. With a name it reads nothing of other names.
func (s *session) read(ctx context.Context, asked types.NamespacedName) (found []*snapshot.Source, err error) {
	if !s.limited {
		found, err = s.readAll(ctx, asked)
		s.limited = apierrors.IsForbidden(err) && asked.Namespace != ""
	}
	if s.limited {
		found, err = s.readReports(ctx, asked)
	}
	return found, err
}

func (s *session) readAll(ctx context.Context, asked types.NamespacedName) ([]*snapshot.Source, error) {
	snap, err := s.Read(ctx, asked.Name)
	if err != nil {
		return nil, err
	}
	sources := snap.Sources(asked)
	if len(sources) == 0 && asked.Namespace != "" && snap.Namespaces[asked.Namespace] == nil {
		return nil, errors.New("there is no namespace " + asked.Namespace)
	}
	return sources, s.learn(ctx, asked.Namespace, sources)
}

// learn adds what the controller has reported to the sources, if the user may list events. The sources are in the
// namespace; empty: in any.
func (s *session) learn(ctx context.Context, namespace string, sources []*snapshot.Source) error {
	quiet := func(s *snapshot.Source) bool { return s.IsInSync() && s.Count(plan.StateExpiring) == 0 }
	if !slices.ContainsFunc(sources, func(s *snapshot.Source) bool { return !quiet(s) }) {
		return nil
	}
	reports, err := s.Reports(ctx, namespace, "")
	if apierrors.IsForbidden(err) {
		s.say("Not checked: what the controller has reported, because you may not list events")
		return nil
	}
	for _, source := range sources {
		if !quiet(source) {
			source.Learn(reports[source.UID])
		}
	}
	return err
}

// readReports is readAll by what the controller has reported in a namespace.
func (s *session) readReports(ctx context.Context, asked types.NamespacedName) (all []*snapshot.Source, err error) {
	var sources []*corev1.ConfigMap
	if asked.Name == "" {
		sources, err = s.SourcesIn(ctx, asked.Namespace)
	} else if cm, failed := s.Get(ctx, asked); cm != nil && s.Rules.AsksToBeMirrored(cm) {
		sources = append(sources, cm)
	} else {
		err = failed
	}
	if err != nil {
		return nil, err
	}
	reports, err := s.Reports(ctx, asked.Namespace, "")
	isForbidden := apierrors.IsForbidden(err)
	for _, cm := range sources {
		source := s.Rules.ParseSource(cm)
		if isForbidden {
			all = append(all, snapshot.Unknown(source, err.Error()))
		} else {
			all = append(all, reports[cm.UID].Judge(source, s.settings.Instance, time.Now()))
		}
	}
	if left := reports[snapshot.GoneUID(asked)].Left(asked); left != nil && len(all) == 0 {
		all = append(all, left)
	}
	if isForbidden {
		err = nil
	}
	return all, err
}

// ask returns the state of one source.
func (s *session) ask(ctx context.Context, asked types.NamespacedName) (*snapshot.Source, error) {
	found, err := s.read(ctx, asked)
	if err != nil {
		return nil, err
	}
	if len(found) > 0 {
		return found[0], nil
	}
	cm, err := s.Get(ctx, asked)
	if cm != nil && plan.MarksOf(cm).Itself {
		return nil, fmt.Errorf("%s is a copy of %s: ask about that", asked, plan.MarksOf(cm).Source)
	}
	if err != nil && !apierrors.IsForbidden(err) {
		return nil, err
	}
	return nil, fmt.Errorf("no source %s: no ConfigMap of this name has the label %s=%s there, and no copy is known",
		asked, s.Rules.Label(), plan.SourceValue)
}

// report is the state of some sources, with their targets or without.
type report struct {
	InSync  bool               `json:"inSync"`
	Sources []*snapshot.Source `json:"sources"`

	details, all bool     // show the targets, also those in sync
	answer       exitCode // ends the command
}

func newReport(sources []*snapshot.Source) *report {
	inSync := !slices.ContainsFunc(sources, func(s *snapshot.Source) bool { return !s.IsInSync() })
	r := &report{InSync: inSync, Sources: append([]*snapshot.Source{}, sources...), answer: verdict(inSync)}
	if slices.ContainsFunc(sources, func(s *snapshot.Source) bool { return s.Status == snapshot.NotKnown }) {
		r.answer = exitUnknown
	}
	return r
}

func (r *report) end() error { return r.answer }

func (r *report) table(w io.Writer, wide bool) {
	if r.details {
		for _, s := range r.Sources {
			printSource(w, wide, s, r.all)
		}
		return
	}
	if len(r.Sources) == 0 {
		printLines(w, "No sources found. -A shows those of all namespaces.")
	}
	columns := []string{"Namespace", "Name", "Controller", "Status", "Targets"}
	for _, state := range snapshot.Counted {
		columns = append(columns, strings.ReplaceAll(state.String(), "_", "-"))
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

// printSource prints a source itself, and its targets that are not in sync, or all. One line tells of all held targets.
func printSource(w io.Writer, wide bool, s *snapshot.Source, all bool) {
	var rows [][]any
	for _, t := range s.Targets {
		isQuiet := t.State == plan.StateSynced.String() || t.State == plan.StateHeld.String()
		if all || !isQuiet {
			rows = append(rows, []any{t.Namespace, t.State, t.Reason})
		}
	}
	printLines(w, s.Key().String()+": "+s.Summary(), s.Note, s.Warning.String())
	printTable(w, wide, []string{"Target", "State", "Reason"}, rows)
}
