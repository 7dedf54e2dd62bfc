package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

const statusHelp = `Show each source with the number of its targets by state. With SOURCE, which is a name or NAMESPACE/NAME, show each
target with its state and the reason.

  synced        the copy holds what the source holds
  pending       the controller is about to create or update the copy
  foreign       a ConfigMap of the name exists that is not a copy of this controller
  superseded    another source of that name has the target
  failed        the API server rejects the copy, or the annotations of the source are malformed
  out_of_scope  the copy is not allowed by the flags, and stays
  expiring      no source claims the copy: it is deleted at the end of the deletion grace

Exit codes: 0 all in sync, 1 not, 2 error.`

func newStatus(c *cli) *cobra.Command {
	var output outputFlag
	var watch bool
	cmd := &cobra.Command{
		Use:               "status [SOURCE]",
		Short:             "Show which copies are in sync",
		Long:              statusHelp,
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: c.completeSources,
		RunE: func(cmd *cobra.Command, args []string) error {
			s, err := c.begin(cmd)
			if err != nil {
				return err
			}
			return s.showStatus(cmd, func() (reported, error) { return s.status(cmd.Context(), c.namespace(), args) }, &output, watch)
		},
	}
	output.bind(cmd)
	cmd.Flags().BoolVarP(&watch, "watch", "w", false, "Print again what has changed, until interrupted.")
	return cmd
}

// showStatus prints the status once, or again whenever it has changed. The exit code is that of the last one.
func (s *session) showStatus(cmd *cobra.Command, status func() (reported, error), output *outputFlag, watch bool) error {
	out := cmd.OutOrStdout()
	inSync, printed, shown := false, false, []byte(nil)
	err := follow(cmd.Context(), func() (bool, error) {
		r, err := status()
		if err != nil && printed && cmd.Context().Err() != nil {
			return true, nil // interrupted
		}
		if err != nil {
			return false, err
		}
		var text bytes.Buffer
		if err := output.print(&text, r); err != nil {
			return false, err
		}
		if inSync = r.inSync(); printed && bytes.Equal(text.Bytes(), shown) {
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
	if err == nil && !inSync {
		err = errNo
	}
	return err
}

// reported is what status prints.
type reported interface {
	printed
	inSync() bool
}

// status returns the report on all sources of the namespace, or on the one that is named. An empty namespace means all.
func (s *session) status(ctx context.Context, namespace string, args []string) (reported, error) {
	if len(args) == 0 {
		r, err := s.report(ctx, "", func(k types.NamespacedName) bool { return namespace == "" || k.Namespace == namespace })
		if err != nil {
			return nil, err
		}
		r.namespace = namespace
		for i := range r.Sources {
			r.Sources[i].Targets = nil
		}
		return r, nil
	}
	return s.statusOf(ctx, namespace, args[0])
}

// statusOf returns the report on one source.
func (s *session) statusOf(ctx context.Context, namespace, source string) (*oneReport, error) {
	asked, err := parseKey(source, namespace)
	if err != nil {
		return nil, err
	}
	r, err := s.report(ctx, asked.Name, func(k types.NamespacedName) bool {
		return k.Name == asked.Name && (asked.Namespace == "" || k.Namespace == asked.Namespace)
	})
	if err != nil {
		return nil, err
	}
	switch len(r.Sources) {
	case 0:
		return nil, fmt.Errorf("no source %s: no ConfigMap of this name has the label %s=%s there, and no copy is left: "+
			"kubectl mirror explain NAMESPACE/NAME says why", source, s.settings.Label, plan.SourceValue)
	case 1:
		return &oneReport{Settings: r.Settings, InSync: r.InSync, sourceReport: r.Sources[0]}, nil
	}
	return nil, fmt.Errorf("%d sources have the name %s: name one of: %s", len(r.Sources), asked.Name, strings.Join(r.names(), ", "))
}

// report reads the cluster and reports the sources that keep chooses. With a name it reads nothing of other names.
func (s *session) report(ctx context.Context, name string, keep func(types.NamespacedName) bool) (*report, error) {
	snap, err := s.cluster.read(ctx, s.settings.PruneLimit, name)
	if err != nil {
		return nil, err
	}
	// A running controller has deleted the copies that were out of scope when it took over, unless the limit blocked that.
	all, err := snap.decideAll(false, snap.judge().blocked, s.cluster.listNamed(ctx))
	if err != nil {
		return nil, err
	}
	if err := s.addFailures(ctx, snap, all); err != nil {
		return nil, err
	}
	r := newReport(snap, all, keep)
	r.Settings = s.settings.origin
	return r, nil
}

// addFailures marks the pending targets of which an event says that the API server rejects the copy.
func (s *session) addFailures(ctx context.Context, snap *snapshot, all map[string][]*decided) error {
	if !anyPending(all) {
		return nil
	}
	failures, known, err := s.cluster.failures(ctx)
	if !known && err == nil && !s.saidUnknown {
		s.saidUnknown = true
		s.say("Not checked: whether the API server rejects pending copies, because you may not list events.events.k8s.io")
	}
	snap.fail(all, failures)
	return err
}

func anyPending(all map[string][]*decided) bool {
	for _, decisions := range all {
		if slices.ContainsFunc(decisions, func(d *decided) bool { return d.state() == plan.StatePending }) {
			return true
		}
	}
	return false
}

// parseKey parses NAMESPACE/NAME, or a name. Without a namespace it is that of -n, which may be empty.
func parseKey(arg, namespace string) (types.NamespacedName, error) {
	before, name, found := strings.Cut(arg, "/")
	if !found {
		return types.NamespacedName{Namespace: namespace, Name: arg}, nil
	}
	switch {
	case before == "" || name == "" || strings.Contains(name, "/"):
		return types.NamespacedName{}, fmt.Errorf("%q: must be NAMESPACE/NAME or a name", arg)
	case namespace != "" && namespace != before:
		return types.NamespacedName{}, fmt.Errorf("%q: is not in the namespace of --namespace=%q: give one of the two", arg, namespace)
	}
	return types.NamespacedName{Namespace: before, Name: name}, nil
}

func (r *report) inSync() bool { return r.InSync }

func (r *report) names() (names []string) {
	for _, s := range r.Sources {
		names = append(names, s.key().String())
	}
	return names
}

func (r *report) table(w io.Writer, wide bool) error {
	if len(r.Sources) == 0 {
		where := ""
		if r.namespace != "" {
			where = " in namespace " + r.namespace
		}
		_, err := fmt.Fprintf(w, "No sources found%s.\n", where)
		return err
	}
	columns := []column{{name: "Namespace"}, {name: "Name"}, {name: "Status"}, {name: "Targets"}}
	for _, state := range counted {
		columns = append(columns, column{name: strings.ReplaceAll(state.Metric(), "_", "-")})
	}
	columns = append(columns, column{name: "Note", wide: true})
	var rows [][]any
	for _, s := range r.Sources {
		row := []any{s.Namespace, s.Name, s.Status, s.targets()}
		for _, state := range counted {
			row = append(row, s.Counts[state.Metric()])
		}
		rows = append(rows, append(row, s.Note))
	}
	return printTable(w, wide, columns, rows)
}

// oneReport is the state of one source, with its targets.
type oneReport struct {
	Settings string `json:"settings"`
	InSync   bool   `json:"inSync"`
	sourceReport
}

func (r *oneReport) inSync() bool { return r.InSync }

// names returns the copies that are wanted or there.
func (r *oneReport) names() (names []string) {
	for _, t := range r.Targets {
		names = append(names, t.Namespace+"/"+r.Name)
	}
	return names
}

func (r *oneReport) table(w io.Writer, wide bool) error {
	if _, err := fmt.Fprintf(w, "%s: %s%s\n", r.key(), r.Status, r.summary()); err != nil {
		return err
	}
	var rows [][]any
	for _, t := range r.Targets {
		rows = append(rows, []any{t.Namespace, t.State, t.Operation, t.Reason})
	}
	return printTable(w, wide, []column{{name: "Target"}, {name: "State"}, {name: "Operation", wide: true}, {name: "Reason"}}, rows)
}

// summary lists the counts, and says why nothing is mirrored.
func (r *oneReport) summary() string {
	var parts []string
	for _, state := range counted {
		if n := r.Counts[state.Metric()]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, state.Metric()))
		}
	}
	text := ", no targets"
	if len(parts) > 0 {
		text = ", " + strings.Join(parts, ", ")
	}
	if r.Note != "" {
		text += "\n" + r.Note
	}
	return text
}
