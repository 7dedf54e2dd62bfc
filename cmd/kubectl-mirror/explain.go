package main

import (
	"cmp"
	"context"
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
			e, err := c.explain(cmd, args[0])
			if err != nil {
				return err
			}
			return output.print(cmd.OutOrStdout(), e)
		},
	}
	output.bind(cmd)
	return cmd
}

// explain explains what an argument names: a ConfigMap, or a namespace.
func (c *cli) explain(cmd *cobra.Command, arg string) (printed, error) {
	kind, name, typed := strings.Cut(arg, "/")
	switch {
	case !typed: // a ConfigMap may have the name of a kind
	case slices.Contains([]string{"namespace", "namespaces", "ns"}, kind):
		if name == "" || strings.Contains(name, "/") {
			return nil, fmt.Errorf("%q: must be namespace/NAME", arg)
		}
		s, err := c.begin(cmd)
		if err != nil {
			return nil, err
		}
		return s.explainNamespace(cmd.Context(), name)
	case slices.Contains([]string{"configmap", "configmaps", "cm"}, kind):
		arg = name
	}
	asked, err := c.parseKey(arg)
	if err != nil {
		return nil, err
	}
	s, err := c.begin(cmd)
	if err == nil {
		var e *explanation
		if e, err = s.explain(cmd.Context(), asked); err == nil {
			return e, nil
		}
	}
	return c.seen(cmd, asked, err)
}

// explainNamespace explains a namespace.
func (s *session) explainNamespace(ctx context.Context, name string) (*explanation, error) {
	snap, err := s.Read(ctx, "")
	if err != nil {
		return nil, err
	}
	s.sayAbsence(ctx)
	x := explainNamespace(s.Options, snap, name)
	x.Settings = s.settings.Origin
	return x, nil
}

// explainNamespace explains a namespace by a snapshot.
func explainNamespace(o *plan.Options, snap *snapshot.Snapshot, name string) *explanation {
	rules, subject := namespaceRules(o, name, snap.Namespace(name)), "namespace/"+name
	is := map[bool]string{true: "a target", false: "no target"}[rules.holds()]
	x := &explanation{Subject: subject, name: subject, Verdict: fmt.Sprintf("Namespace %s is %s.", name, is)}
	x.add(rules)
	for _, s := range snap.Sources(o, types.NamespacedName{}) {
		for _, t := range s.Targets {
			if t.Namespace == name {
				x.Sources = append(x.Sources, sourceAt{s.Key().String(), t.State, t.Reason})
			}
		}
	}
	return x
}

// explain explains a ConfigMap.
func (s *session) explain(ctx context.Context, asked types.NamespacedName) (*explanation, error) {
	snap, err := s.Read(ctx, asked.Name)
	if err != nil {
		return nil, err
	}
	cm, err := s.Get(ctx, asked)
	if err != nil {
		return nil, err
	}
	s.sayAbsence(ctx)
	out := explain(s.Options, snap, asked, cm)
	out.Settings = s.settings.Origin
	if out.handedOver != nil {
		if out.Diff, err = s.diff(ctx, out.handedOver.Change); err != nil {
			return nil, err
		}
	}
	of := asked // the source that the warning is about
	if out.decision != nil && (cm == nil || !s.Rules.AsksToBeMirrored(cm)) {
		of = out.decision.CountsFor()
	}
	if of.Name == "" { // no source claims the namespace
		return out, nil
	}
	sources := snap.Sources(s.Options, of)
	if err := s.addWarnings(ctx, snap, of.Namespace, sources); err != nil {
		return nil, err
	}
	for _, source := range sources {
		out.Warning = source.Warning
	}
	return out, nil
}

// explanation is a verdict, and the rules that lead to it.
type explanation struct {
	Settings string            `json:"settings"`
	Subject  string            `json:"subject"`
	Verdict  string            `json:"verdict"`
	Warning  *snapshot.Warning `json:"warning,omitempty"`
	Sections []section         `json:"sections"`
	// Sources are those that have a copy in the namespace that is explained, or want one.
	Sources []sourceAt `json:"sources,omitempty"`
	// Diff is the content that a copy would replace.
	Diff string `json:"diff,omitempty"`

	name       string // as kubectl prints it
	options    *plan.Options
	snap       *snapshot.Snapshot
	decision   *snapshot.Decision // nil: there is nothing to decide
	handedOver *snapshot.Decision // what would come of a foreign ConfigMap that is handed over; nil: nothing
}

// sourceAt is the state of one source at a namespace.
type sourceAt struct {
	Source string `json:"source"`
	State  string `json:"state"`
	Reason string `json:"reason,omitempty"`
}

func (x *explanation) add(sections ...section) { x.Sections = append(x.Sections, sections...) }

// explain explains a ConfigMap by a snapshot; cm is nil if there is none.
func explain(o *plan.Options, snap *snapshot.Snapshot, key types.NamespacedName, cm *corev1.ConfigMap) *explanation {
	d := snap.Decision(key)
	x := &explanation{Subject: "configmap/" + key.String(), name: nameOf(key), options: o, snap: snap, decision: d}
	switch {
	case cm == nil && d != nil && d.Op == plan.OpCreate:
		x.Verdict = fmt.Sprintf("There is no ConfigMap %s: a copy of %s is to be created.", key, d.Source.Key)
		x.wanted(key)
	case cm == nil && d != nil && d.State == plan.StateHeld:
		x.Verdict = fmt.Sprintf("There is no ConfigMap %s: %s.", key, snap.Reason(d))
		x.wanted(key)
	case cm == nil:
		x.Verdict = fmt.Sprintf("There is no ConfigMap %s, and no source wants a copy there.", key)
		x.wanted(key)
	case snap.Rules.AsksToBeMirrored(cm):
		x.source(cm)
	default:
		return x.copyOrForeign(cm)
	}
	x.Verdict += precedence(d)
	return x
}

// precedenceRule says which of several sources of a name has a target, and how that changes.
const precedenceRule = " A source in a namespace that cannot be a target comes first, then the older source. " +
	"To change that, rename one of them, or narrow its targets by an annotation."

// precedence says that a target has several sources; empty if it has not.
func precedence(d *snapshot.Decision) string {
	if d == nil || d.Source == nil || len(d.Losers) == 0 {
		return ""
	}
	var others []string
	for _, s := range d.Losers {
		others = append(others, s.Key.String())
	}
	return fmt.Sprintf(" Of the sources that select the namespace, %s has precedence over %s.", d.Source.Key, strings.Join(others, ", ")) +
		precedenceRule
}

// wanted adds the rules by which sources of the name want a copy in the namespace.
func (x *explanation) wanted(key types.NamespacedName) {
	ns := x.snap.Namespace(key.Namespace)
	x.add(namespaceRules(x.options, key.Namespace, ns))
	sources := x.snap.View(key.Name).All()
	if len(sources) == 0 {
		missing := section{Title: "There is a source of the name " + key.Name}
		label := x.options.Label + "=" + plan.SourceValue
		missing.add(false, fmt.Sprintf("A ConfigMap %s has the label %s.", key.Name, label), "none has",
			fmt.Sprintf("kubectl -n NAMESPACE label configmap %s %s", key.Name, label))
		x.add(missing)
	}
	for _, s := range sources {
		x.add(sourceRules(x.options, s.ConfigMap))
		switch {
		case s.Frozen != nil:
			x.add(freezeRules(s))
		case ns != nil:
			x.add(narrowingRules(s, ns))
			if s.HeldBy() != "" {
				x.add(holdRules(s, ns))
			}
		}
	}
}

// source explains a ConfigMap that asks to be mirrored.
func (x *explanation) source(cm *corev1.ConfigMap) {
	key, source := plan.KeyOf(cm), x.snap.Rules.ParseSource(cm)
	rules := sourceRules(x.options, cm)
	x.add(rules)
	is := "is a source"
	switch {
	case !rules.holds():
		is = "asks to be mirrored, and is not mirrored"
	case source.Frozen != nil:
		is = "is a source, and frozen"
		fallthrough
	default:
		x.add(freezeRules(source))
	}
	x.Verdict = fmt.Sprintf("ConfigMap %s %s", key, is)
	more := "."
	for _, s := range x.snap.Sources(x.options, key) { // none, if it is younger than the snapshot
		_, counts, _ := strings.Cut(s.Summary(), ", ")
		if s.Status == snapshot.NoTargets {
			counts = s.Note
		}
		x.Verdict += ": " + cmp.Or(counts, "no targets")
		if s.Counts[plan.StateHeld.Metric()] > 0 {
			more += " The " + s.Note + "."
		}
		if n := s.Counts[plan.StateSuperseded.Metric()]; n > 0 {
			more += " Another source of this name comes first at " + count(n, "target", "targets") + "." + precedenceRule
		}
	}
	x.Verdict += more
	if d := x.decision; d != nil && d.Source != nil {
		x.Verdict += fmt.Sprintf(" While it is here, no copy of %s is created in this namespace.", d.Source.Key)
	}
}

// copyOrForeign explains a ConfigMap that does not ask to be mirrored.
func (x *explanation) copyOrForeign(cm *corev1.ConfigMap) *explanation {
	key, d := plan.KeyOf(cm), x.decision
	rules := copyRules(x.options, cm)
	owner, ours := x.snap.Rules.SourceOf(cm)
	switch {
	case ours:
		x.add(rules)
		x.Verdict = fmt.Sprintf("ConfigMap %s is a copy of %s%s.", key, owner, x.copyState())
		x.wanted(key)
	case d != nil && d.Source != nil && d.Op != plan.OpNone:
		x.add(rules)
		x.Verdict = fmt.Sprintf("ConfigMap %s is foreign, and handed over: it becomes a copy of %s.", key, d.Source.Key)
	case d != nil && d.Source != nil: // the command is last, so that a user can copy it
		x.add(rules)
		x.Verdict = fmt.Sprintf("ConfigMap %s is foreign, so %s is not copied there.%s Delete or rename it%s",
			key, d.Source.Key, precedence(d), x.handOver(cm))
		return x
	default:
		x.add(sourceRules(x.options, cm))
		if cm.Annotations[plan.CopyAnnotation]+cm.Annotations[plan.SourceAnnotation] != "" { // it looks like one
			x.add(rules)
		}
		x.Verdict = fmt.Sprintf("ConfigMap %s is neither a source nor a copy.", key)
		for _, s := range x.snap.Sources(x.options, key) {
			x.Verdict += fmt.Sprintf(" It is no longer a source: %s left.", count(len(s.Targets), "copy is", "copies are"))
		}
	}
	x.Verdict += precedence(d)
	return x
}

// handOver says how to hand a foreign ConfigMap over, or why that cannot be.
func (x *explanation) handOver(cm *corev1.ConfigMap) string {
	d, more := x.snap.HandedOver(cm), ""
	if d.State == plan.StateHeld {
		d.Op, more = d.Withheld, "; not before the hold ends"
	}
	switch {
	case d.Op == plan.OpNone && len(cm.Finalizers) > 0:
		return ". It cannot be handed over: it has the finalizer " + cm.Finalizers[0] + "."
	case d.Op == plan.OpNone && plan.NamesItself(cm):
		return ". It cannot be handed over: it is a copy of another instance, " + cm.Annotations[plan.InstanceAnnotation] + "."
	case d.Op == plan.OpNone:
		return ". It cannot be handed over: it is being deleted."
	case d.Op == plan.OpRecreate:
		more += "; " + d.WhyRecreated() + ", so it is deleted and created again, without the labels and annotations of others"
	}
	x.handedOver = d
	return fmt.Sprintf(", or hand it over (this REPLACES ITS DATA%s): %s", more, handOver(plan.KeyOf(cm)))
}

// copyState says how a copy of ours is.
func (x *explanation) copyState() string {
	switch d := x.decision; {
	case d == nil || d.Status() == plan.StateNone && d.Have == nil:
		return ", without its label, and no source wants it: it counts as released, and stays"
	case d.Status() == plan.StateSynced:
		return ", and in sync"
	case d.Status() == plan.StateNone:
		return ", and stays as it is"
	default:
		return fmt.Sprintf(", and %s: %s", strings.ReplaceAll(d.Status().String(), "_", " "), x.snap.Reason(d))
	}
}

func (x *explanation) names() []string { return []string{x.name} }

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
	for i, s := range x.Sources {
		if rows = append(rows, []any{s.Source, s.State, printable(s.Reason)}); i == 0 {
			fmt.Fprintln(&b, "\nSources with a copy there, or that want one:")
		}
	}
	if _, err := io.WriteString(w, b.String()); err != nil {
		return err
	}
	return printTable(w, false, []string{"Source", "State", "Reason"}, rows)
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
