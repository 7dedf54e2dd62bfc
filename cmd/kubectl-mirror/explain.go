package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mirror-controller/mirror-controller/cmd/kubectl-mirror/snapshot"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

const explainHelp = `Explain, rule by rule, why a ConfigMap is, is not, or is no longer a source or a copy, and what would change it. If there is no
such ConfigMap, the command explains why there is no copy. namespace/NAME explains why a namespace is or is not a target.

Of a foreign ConfigMap, whose name a copy needs, the command shows which content the copy would replace, and how to hand it over.

Exit codes: 0 explained, 2 unknown.`

func newExplain(c *cli) *cobra.Command {
	var output outputFlag
	cmd := &cobra.Command{
		Use:               "explain [NAMESPACE/]NAME | namespace/NAME",
		Short:             "Explain why a ConfigMap or a namespace takes part or not",
		Long:              explainHelp,
		Example:           "  kubectl mirror explain settings -n team-a\n  kubectl mirror explain namespace/team-a",
		Args:              arguments(1, 1),
		ValidArgsFunction: c.complete(c.sources),
		RunE: func(cmd *cobra.Command, args []string) error {
			if output == "name" {
				return errors.New("--output=name: explain names nothing: use table, json or yaml")
			}
			kind, name, typed := strings.Cut(args[0], "/")
			isNamespace := typed && slices.Contains([]string{"namespace", "namespaces", "ns"}, kind)
			arg := args[0]
			if typed && slices.Contains([]string{"configmap", "configmaps", "cm"}, kind) {
				arg = name
			}
			if isNamespace && (name == "" || strings.Contains(name, "/")) {
				return fmt.Errorf("%q: must be namespace/NAME", arg)
			}
			asked, err := c.parseKey(arg)
			if err != nil && !isNamespace {
				return err
			}
			s, err := c.begin(cmd)
			var e printed
			switch {
			case err == nil && isNamespace:
				e, err = s.explainNamespace(cmd.Context(), name)
			case err == nil:
				e, err = s.explain(cmd.Context(), asked)
			}
			if err != nil && !isNamespace {
				e, err = c.seen(cmd, asked, err)
			}
			if err != nil {
				return err
			}
			return output.print(cmd.OutOrStdout(), e)
		},
	}
	output.bind(cmd)
	return cmd
}

// explainNamespace explains a namespace.
func (s *session) explainNamespace(ctx context.Context, name string) (*explanation, error) {
	snap, err := s.Read(ctx, "", false)
	if err != nil {
		return nil, err
	}
	s.sayAbsence(ctx)
	e := &explainer{options: s.Options, snap: snap, settings: s.settings.Origin}
	return e.namespace(name), nil
}

// explain explains a ConfigMap.
func (s *session) explain(ctx context.Context, asked types.NamespacedName) (*explanation, error) {
	snap, err := s.Read(ctx, asked.Name, false)
	if err != nil {
		return nil, err
	}
	cm, err := s.Get(ctx, asked)
	if err != nil {
		return nil, err
	}
	s.sayAbsence(ctx)
	e := &explainer{options: s.Options, snap: snap, settings: s.settings.Origin}
	out := e.configMap(asked, cm)
	if out.handedOver != nil {
		out.Diff, err = s.diff(ctx, out.handedOver.Change)
	}
	if err != nil {
		return nil, err
	}
	of := asked // the source that the warning is about
	if d := snap.Decision(asked); d != nil && (cm == nil || !s.Rules.AsksToBeMirrored(cm)) {
		of = d.CountsFor()
	}
	sources := snap.Sources(s.Options, func(k types.NamespacedName) bool { return k == of })
	if err := s.addWarnings(ctx, snap, sources); err != nil {
		return nil, err
	}
	for _, source := range sources {
		out.Warning = source.Warning
	}
	return out, nil
}

// explainer explains by a snapshot. It is pure.
type explainer struct {
	options  *plan.Options
	snap     *snapshot.Snapshot
	settings string
}

// explanation is a verdict, and the rules that lead to it.
type explanation struct {
	Settings string            `json:"settings"`
	Subject  string            `json:"subject"`
	Verdict  string            `json:"verdict"`
	Warning  *snapshot.Warning `json:"warning,omitempty"`
	Sections []section         `json:"sections"`
	// Sources are those that have something to do with the namespace that is explained.
	Sources []targetOf `json:"sources,omitempty"`
	// Targets are the first few of the source that is explained that are not in sync.
	Targets []snapshot.Target `json:"targets,omitempty"`
	// Diff is the content that a copy would replace.
	Diff string `json:"diff,omitempty"`

	more       string             // how many targets are left out; empty: none
	handedOver *snapshot.Decision // what would come of a foreign ConfigMap that is handed over; nil: nothing
}

// targetOf is the state of one source at the namespace that is explained.
type targetOf struct {
	Source string `json:"source"`
	State  string `json:"state"`
	Reason string `json:"reason,omitempty"`
}

// namespace explains a namespace.
func (e *explainer) namespace(name string) *explanation {
	rules := namespaceRules(e.options, name, e.snap.Namespace(name))
	out := &explanation{Settings: e.settings, Subject: "namespace/" + name, Sections: []section{rules}}
	out.Verdict = fmt.Sprintf("Namespace %s is a target.", name)
	if !rules.holds() {
		out.Verdict = fmt.Sprintf("Namespace %s is no target.", name)
	}
	for _, s := range e.snap.Sources(e.options, func(types.NamespacedName) bool { return true }) {
		for _, t := range s.Targets {
			if t.Namespace == name {
				out.Sources = append(out.Sources, targetOf{s.Key().String(), t.State, t.Reason})
			}
		}
	}
	return out
}

// configMap explains a ConfigMap; cm is nil if there is none.
func (e *explainer) configMap(key types.NamespacedName, cm *corev1.ConfigMap) *explanation {
	out := &explanation{Settings: e.settings, Subject: "configmap/" + key.String()}
	d := e.snap.Decision(key)
	switch {
	case cm == nil && d != nil && d.Op == plan.OpCreate:
		out.Verdict = fmt.Sprintf("There is no ConfigMap %s: a copy of %s is to be created.", key, d.Source.Key)
		e.wanted(out, key)
	case cm == nil:
		out.Verdict = fmt.Sprintf("There is no ConfigMap %s, and no source wants a copy there.", key)
		e.wanted(out, key)
	case e.snap.Rules.AsksToBeMirrored(cm):
		e.source(out, cm)
		if d != nil && d.Source != nil {
			out.Verdict += fmt.Sprintf(" While it is here, no copy of %s is created in this namespace.", d.Source.Key)
		}
	default:
		e.copyOrForeign(out, cm, d)
		return out
	}
	out.Verdict += precedence(d)
	return out
}

// precedenceRule says which of several sources of a name has a target, and precedenceRemedy what changes that.
const (
	precedenceRule   = "A source in a namespace that cannot be a target comes first, then the older source."
	precedenceRemedy = "rename one of them, or narrow its targets by an annotation"
)

// precedence says that a target has several sources; empty if it has not.
func precedence(d *snapshot.Decision) string {
	if d == nil || d.Source == nil || len(d.Losers) == 0 {
		return ""
	}
	var others []string
	for _, s := range d.Losers {
		others = append(others, s.Key.String())
	}
	return fmt.Sprintf(" Of the sources that select the namespace, %s has precedence over %s. %s To change that, %s.", d.Source.Key, strings.Join(others, ", "),
		precedenceRule, precedenceRemedy)
}

// wanted adds the rules by which sources of the name want a copy in the namespace.
func (e *explainer) wanted(out *explanation, key types.NamespacedName) {
	ns := e.snap.Namespace(key.Namespace)
	out.Sections = append(out.Sections, namespaceRules(e.options, key.Namespace, ns))
	sources := e.snap.View(key.Name).All()
	if len(sources) == 0 {
		missing := section{Title: "There is a source of the name " + key.Name}
		missing.add(false, fmt.Sprintf("A ConfigMap %s has the label %s=%s.", key.Name, e.options.Label, plan.SourceValue), "none has",
			fmt.Sprintf("kubectl -n NAMESPACE label configmap %s %s=%s", key.Name, e.options.Label, plan.SourceValue))
		out.Sections = append(out.Sections, missing)
		return
	}
	for _, s := range sources {
		out.Sections = append(out.Sections, sourceRules(e.options, s.ConfigMap))
		switch {
		case s.Frozen != nil:
			out.Sections = append(out.Sections, freezeRules(s))
		case ns != nil:
			out.Sections = append(out.Sections, narrowingRules(s, ns))
		}
	}
}

// source explains a ConfigMap that asks to be mirrored.
func (e *explainer) source(out *explanation, cm *corev1.ConfigMap) {
	key, source := plan.KeyOf(cm), e.snap.Rules.ParseSource(cm)
	rules := sourceRules(e.options, cm)
	out.Sections = append(out.Sections, rules)
	if rules.holds() {
		out.Sections = append(out.Sections, freezeRules(source))
	}
	is := "is a source"
	switch {
	case !rules.holds():
		is = "asks to be mirrored, and is not mirrored"
	case source.Frozen != nil:
		is = "is a source, and frozen"
	}
	out.Verdict = fmt.Sprintf("ConfigMap %s %s.", key, is)
	for _, found := range e.snap.Sources(e.options, func(k types.NamespacedName) bool { return k == key }) {
		_, counts, _ := strings.Cut(found.Summary(), ", ")
		switch {
		case found.Status == snapshot.NoTargets:
			counts = found.Note
		case counts == "":
			counts = "no targets"
		}
		out.Verdict = fmt.Sprintf("ConfigMap %s %s: %s.", key, is, counts)
		e.addTargets(out, found)
	}
}

// fewTargets is how many targets of a source are explained. kubectl mirror status shows all.
const fewTargets = 10

// addTargets adds the first targets that are not in sync, and the rule by which other sources have some.
func (e *explainer) addTargets(out *explanation, found *snapshot.Source) {
	rest := 0
	for _, t := range found.Targets {
		switch {
		case t.State == plan.StateSynced.Metric():
		case len(out.Targets) < fewTargets:
			out.Targets = append(out.Targets, t)
		default:
			rest++
		}
	}
	if rest > 0 {
		out.more = fmt.Sprintf(" (%d more: kubectl mirror status %s)", rest, found.Key())
	}
	if n := found.Counts[plan.StateSuperseded.Metric()]; n > 0 {
		s := section{Title: fmt.Sprintf("Source %s has precedence at all its targets", found.Key())}
		s.add(false, precedenceRule, "another source comes first at "+count(n, "target", "targets"), precedenceRemedy)
		out.Sections = append(out.Sections, s)
	}
}

// copyOrForeign explains a ConfigMap that does not ask to be mirrored.
func (e *explainer) copyOrForeign(out *explanation, cm *corev1.ConfigMap, d *snapshot.Decision) {
	key := plan.KeyOf(cm)
	owner, ours := e.snap.Rules.SourceOf(cm)
	switch {
	case ours:
		out.Sections = append(out.Sections, copyRules(e.options, cm))
		out.Verdict = fmt.Sprintf("ConfigMap %s is a copy of %s%s.", key, owner, e.copyState(d))
		e.wanted(out, key)
	case d != nil && d.Source != nil && d.Op != plan.OpNone:
		out.Sections = append(out.Sections, copyRules(e.options, cm))
		out.Verdict = fmt.Sprintf("ConfigMap %s is foreign, and handed over: it becomes a copy of %s.", key, d.Source.Key)
	case d != nil && d.Source != nil:
		out.Sections = append(out.Sections, copyRules(e.options, cm))
		out.Verdict = fmt.Sprintf("ConfigMap %s is foreign, so %s is not copied there.%s Delete or rename it%s", key, d.Source.Key, precedence(d), e.handOver(out, cm))
		return // the command is last, so that a user can copy it
	default:
		out.Sections = append(out.Sections, sourceRules(e.options, cm))
		out.Verdict = fmt.Sprintf("ConfigMap %s is neither a source nor a copy%s.", key, e.left(key))
		if len(cm.Annotations[plan.CopyAnnotation])+len(cm.Annotations[plan.SourceAnnotation]) > 0 || plan.NamesItself(cm) {
			out.Sections = append(out.Sections, copyRules(e.options, cm))
		}
	}
	out.Verdict += precedence(d)
}

// handOver says how to hand a foreign ConfigMap over, or why that cannot be.
func (e *explainer) handOver(out *explanation, cm *corev1.ConfigMap) string {
	switch d := e.snap.HandedOver(cm); {
	case d.Op == plan.OpRecreate:
		out.handedOver = d
		return ", or hand it over (this REPLACES ITS DATA; it is immutable, so it is deleted and created again, without the labels and " +
			"annotations of others): " + handOver(plan.KeyOf(cm))
	case d.Op == plan.OpUpdate:
		out.handedOver = d
		return ", or hand it over (this REPLACES ITS DATA): " + handOver(plan.KeyOf(cm))
	case len(cm.Finalizers) > 0:
		return ". It cannot be handed over: it has the finalizer " + cm.Finalizers[0] + "."
	case plan.NamesItself(cm):
		return fmt.Sprintf(". It cannot be handed over: it is a copy of another instance, %s.", cm.Annotations[plan.InstanceAnnotation])
	}
	return ". It cannot be handed over: it is being deleted."
}

// left says that a ConfigMap is no longer a source, if copies of it are left.
func (e *explainer) left(key types.NamespacedName) string {
	n := 0
	for _, d := range e.snap.Decisions(key.Name) {
		if d.CopyOf == key {
			n++
		}
	}
	if n == 0 {
		return ""
	}
	return fmt.Sprintf(". It is no longer a source: %s left to be deleted or replaced", count(n, "copy is", "copies are"))
}

// copyState says how a copy of ours is.
func (e *explainer) copyState(d *snapshot.Decision) string {
	switch {
	case d == nil || d.Status() == plan.StateNone && d.Have == nil:
		return ", without its label, and no source wants it: it counts as released, and stays"
	case d.Status() == plan.StateSynced:
		return ", and in sync"
	case d.Status() == plan.StateNone:
		return ", and stays as it is"
	}
	return fmt.Sprintf(", and %s: %s", strings.ReplaceAll(d.Status().String(), "_", " "), e.snap.Reason(d))
}

// names is not reached: explain has no output of names.
func (x *explanation) names() []string { return nil }

func (x *explanation) table(w io.Writer, _ bool) error {
	var b strings.Builder
	fmt.Fprintln(&b, printable(x.Verdict))
	if x.Warning != nil {
		fmt.Fprintln(&b, printable(x.Warning.String()))
	}
	for _, s := range x.Sections {
		fmt.Fprintf(&b, "\n%s: %s\n", s.Title, map[bool]string{true: "yes", false: "no"}[s.holds()])
		for _, c := range s.Checks {
			c.print(&b)
		}
	}
	if x.Diff != "" {
		fmt.Fprintf(&b, "\nThe copy would replace:\n%s", printableLines(x.Diff))
	}
	var rows [][]any
	columns := []string{"Target", "State", "Reason"}
	for _, t := range x.Targets {
		rows = append(rows, []any{t.Namespace, t.State, printable(t.Reason)})
	}
	if len(x.Targets) > 0 {
		fmt.Fprintf(&b, "\nTargets that are not in sync%s:\n", x.more)
	} else if len(x.Sources) > 0 {
		columns[0] = "Source"
		fmt.Fprintln(&b, "\nSources with a copy there, or that want one:")
	}
	for _, s := range x.Sources {
		rows = append(rows, []any{s.Source, s.State, printable(s.Reason)})
	}
	if _, err := io.WriteString(w, b.String()); err != nil {
		return err
	}
	return printTable(w, false, columns, rows)
}

func (c check) print(b *strings.Builder) {
	mark := "  ok   "
	if !c.Holds {
		mark = "  NOT  "
	}
	fmt.Fprintf(b, "%s%s (%s)\n", mark, c.Rule, printable(c.Finding))
	if c.Remedy != "" {
		fmt.Fprintf(b, "       To change that: %s\n", c.Remedy)
	}
}
