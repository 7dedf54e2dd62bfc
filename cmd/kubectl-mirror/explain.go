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

const explainHelp = `Explain why a ConfigMap is, is not, or is no longer a source or a copy, and what would change it. If there is no such ConfigMap,
the command explains why there is no copy. namespace/NAME explains why a namespace is or is not a target. -o wide shows every
rule.

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
	ctx, isNamespace := cmd.Context(), typed && slices.Contains([]string{"namespace", "namespaces", "ns"}, kind)
	if isNamespace && (name == "" || strings.Contains(name, "/")) {
		return nil, fmt.Errorf("%q: must be namespace/NAME", arg)
	}
	var asked types.NamespacedName
	if !isNamespace {
		var err error
		if asked, err = c.parseKey(arg); err != nil {
			return nil, err
		}
	}
	s, err := c.begin(cmd)
	var snap *snapshot.Snapshot
	if err == nil {
		snap, err = s.Read(ctx, asked.Name)
	}
	switch {
	case err == nil && isNamespace:
		s.sayOnce(s.settings.Absence())
		return explainNamespace(snap, name), nil
	case err == nil:
		s.sayOnce(s.settings.Absence())
		return s.explain(ctx, snap, asked)
	case isNamespace:
		return nil, err
	}
	o, err := c.owned(cmd, s, err)
	if err != nil {
		return nil, err
	}
	return o.explain(ctx, asked)
}

// explanation is a verdict with the rule that decides it, and what would change it.
type explanation struct {
	Subject string            `json:"subject"`
	Verdict string            `json:"verdict"`
	Remedy  string            `json:"remedy,omitempty"`
	Warning *snapshot.Warning `json:"warning,omitempty"`
	// Rules are all rules by which each source of the name has a copy in the namespace, or any source has.
	Rules []rule `json:"rules"`
	// Sources are those that have a copy in the namespace that is explained, or want one.
	Sources []sourceAt `json:"sources,omitempty"`
	// Diff is the content that a copy would replace.
	Diff string `json:"diff,omitempty"`

	name       string             // as kubectl prints it
	handedOver *snapshot.Decision // what would come of a foreign ConfigMap that is handed over; nil: nothing
}

// rule is a rule about a source; an empty one: about any.
type rule struct {
	Source string `json:"source,omitempty"`
	plan.Judgement
}

// sourceAt is the state of one source at a namespace.
type sourceAt struct {
	Source string `json:"source"`
	State  string `json:"state"`
	Reason string `json:"reason,omitempty"`
}

func newExplanation(subject, name string) *explanation {
	return &explanation{Subject: subject, name: name, Rules: []rule{}}
}

func (x *explanation) addRules(of string, all []plan.Judgement) {
	for _, j := range all {
		x.Rules = append(x.Rules, rule{of, j})
	}
}

// explainNamespace explains a namespace.
func explainNamespace(snap *snapshot.Snapshot, name string) *explanation {
	x, ns := newExplanation("namespace/"+name, "namespace/"+name), snap.Namespace(name)
	if why, remedy := withheld(snap, plan.AnySource(), name); why == "" {
		x.Verdict = fmt.Sprintf("Namespace %s is a target.", name)
	} else {
		x.Verdict, x.Remedy = fmt.Sprintf("Namespace %s is no target: %s.", name, why), remedy
	}
	if ns == nil {
		return x
	}
	x.addRules("", snap.Rules.Judge(plan.AnySource(), ns))
	if value, ok := ns.Labels[snap.Rules.Label()]; ok && value != plan.OptOutValue {
		x.Verdict += fmt.Sprintf(" Its label %s=%s means nothing: only %[1]s=%[3]s opts out.", snap.Rules.Label(), value, plan.OptOutValue)
	}
	for _, s := range snap.Sources(types.NamespacedName{}) {
		for _, t := range s.Targets {
			if t.Namespace == name {
				x.Sources = append(x.Sources, sourceAt{s.Key().String(), t.State, t.Reason})
			}
		}
	}
	return x
}

// withheld says why a source has no copy in a namespace, and what would change that; empty if it claims one.
func withheld(snap *snapshot.Snapshot, s *plan.Source, name string) (why, remedy string) {
	ns := snap.Namespace(name)
	if ns == nil {
		return "there is no namespace " + name, "kubectl create namespace " + name
	}
	if plan.LabelsTruncated(ns) {
		return "its labels take more than 8 KiB", "remove labels of the namespace"
	}
	if status, note := snapshot.StatusOf(s); status != snapshot.InSync {
		return note, ""
	}
	why, remedy = snap.Rules.ExplainExclusion(s, ns)
	if snap.Rules.Exclusion(s, ns) == plan.ExcludedByOptOut {
		remedy = fmt.Sprintf("kubectl label namespace %s %s-", name, snap.Rules.Label())
	}
	return why, remedy
}

// explain explains a ConfigMap.
func (s *session) explain(ctx context.Context, snap *snapshot.Snapshot, asked types.NamespacedName) (*explanation, error) {
	cm, err := s.Get(ctx, asked)
	if err != nil {
		return nil, err
	}
	out := explain(snap, asked, cm)
	if out.handedOver != nil {
		if out.Diff, err = s.diff(ctx, out.handedOver.Change); err != nil {
			return nil, err
		}
	}
	of := asked // the source that the warning is about
	if d := snap.Decision(asked); d != nil && (cm == nil || !s.Rules.AsksToBeMirrored(cm)) {
		of = d.CountsFor()
	}
	if of.Name == "" { // no source claims the namespace
		return out, nil
	}
	sources := snap.Sources(of)
	if err := s.addWarnings(ctx, snap, of.Namespace, sources); err != nil {
		return nil, err
	}
	for _, source := range sources {
		out.Warning = source.Warning
	}
	return out, nil
}

// explain explains a ConfigMap by a snapshot; cm is nil if there is none.
func explain(snap *snapshot.Snapshot, key types.NamespacedName, cm *corev1.ConfigMap) *explanation {
	x, d := newExplanation("configmap/"+key.String(), nameOf(key)), snap.Decision(key)
	if cm != nil && snap.Rules.AsksToBeMirrored(cm) {
		x.source(snap, key)
		return x
	}
	if ns := snap.Namespace(key.Namespace); ns != nil {
		for _, s := range snap.View(key.Name).All() {
			x.addRules(s.Key.String(), snap.Rules.Judge(s, ns))
		}
	}
	var copyOf types.NamespacedName
	ours := false
	if cm != nil {
		copyOf, ours = snap.Rules.SourceOf(cm)
	}
	claimed := d != nil && (d.Source != nil || d.State == plan.StateHeld)
	switch {
	case cm == nil && claimed && d.Op == plan.OpCreate:
		x.Verdict = fmt.Sprintf("There is no ConfigMap %s: a copy of %s is to be created.", key, d.Source.Key)
	case cm == nil && claimed:
		x.Verdict, x.Remedy = fmt.Sprintf("There is no ConfigMap %s: %s.", key, snap.Reason(d)), holdRemedy(snap, d)
	case ours:
		x.copyOf(snap, d, key, copyOf)
	case cm != nil && claimed:
		x.foreign(snap, d, cm)
	default:
		x.Verdict = fmt.Sprintf("There is no ConfigMap %s, and no copy is wanted there: ", key)
		if cm != nil {
			x.Verdict = fmt.Sprintf("ConfigMap %s is neither a source nor a copy: ", key)
		}
		x.unwanted(snap, key)
		for _, s := range snap.Sources(key) {
			x.Verdict += fmt.Sprintf(" It is no longer a source: %s left.", count(len(s.Targets), "copy is", "copies are"))
		}
	}
	if claimed && len(d.Losers) > 0 {
		x.Verdict += fmt.Sprintf(" %s has precedence over %s.", d.CountsFor(), d.Losers[0].Key)
	}
	return x
}

// source explains a ConfigMap that asks to be mirrored.
func (x *explanation) source(snap *snapshot.Snapshot, key types.NamespacedName) {
	x.Verdict = fmt.Sprintf("ConfigMap %s asks to be mirrored.", key) // it is younger than the snapshot
	for _, s := range snap.Sources(key) {
		_, state, _ := strings.Cut(s.Summary(), ": ")
		x.Verdict = fmt.Sprintf("ConfigMap %s is a source: %s.", key, state)
		if s.Note != "" {
			x.Verdict = fmt.Sprintf("ConfigMap %s is a source: %s: %s.", key, state, s.Note)
		}
		if s.Counts[plan.StateSuperseded.Metric()] > 0 {
			x.Verdict += " Another source of this name comes first. To change that, rename one of the two, or narrow its targets by an annotation."
		}
	}
}

// copyOf explains a copy of ours.
func (x *explanation) copyOf(snap *snapshot.Snapshot, d *snapshot.Decision, key, of types.NamespacedName) {
	x.Verdict = fmt.Sprintf("ConfigMap %s is a copy of %s", key, of)
	switch {
	case d == nil || d.Status() == plan.StateNone:
		x.Verdict += ", without its label, and no source claims the namespace: it counts as released, and stays: "
		x.unwanted(snap, key)
	case d.Status() == plan.StateSynced:
		x.Verdict += ", and in sync."
	default:
		x.Verdict += fmt.Sprintf(", and %s: %s.", strings.ReplaceAll(d.Status().String(), "_", " "), snap.Reason(d))
		if d.Status() == plan.StateExpiring {
			_, x.Remedy = withheld(snap, cmp.Or(snap.View(key.Name).FindAny(of), plan.AnySource()), key.Namespace)
		}
		x.Remedy = cmp.Or(x.Remedy, holdRemedy(snap, d))
	}
}

// holdRemedy says what ends a hold; empty if there is none.
func holdRemedy(snap *snapshot.Snapshot, d *snapshot.Decision) string {
	if d.State != plan.StateHeld {
		return ""
	}
	_, remedy := snap.View(d.Key.Name).FindAny(d.CountsFor()).Hold()
	return remedy + " of " + d.CountsFor().String()
}

// foreign explains a foreign ConfigMap where a copy is wanted.
func (x *explanation) foreign(snap *snapshot.Snapshot, d *snapshot.Decision, cm *corev1.ConfigMap) {
	key := plan.KeyOf(cm)
	if d.Op != plan.OpNone {
		x.Verdict = fmt.Sprintf("ConfigMap %s is foreign, and handed over: it becomes a copy of %s.", key, d.Source.Key)
		return
	}
	why, adoptable := snap.Rules.Foreign(cm)
	if x.Verdict = fmt.Sprintf("ConfigMap %s is foreign, so %s is not copied there: %s.", key, d.CountsFor(), why); !adoptable {
		return
	}
	after := snap.HandedOver(cm)
	if after.State == plan.StateHeld {
		x.Verdict += " Handed over, it becomes a copy when the hold ends."
		after.Op = after.Withheld
	}
	if after.Op == plan.OpRecreate {
		x.Verdict += fmt.Sprintf(" Handed over, it is deleted and created again, without the labels and annotations of others: %s.", after.WhyRecreated())
	}
	x.Remedy, x.handedOver = handOver(key), after
}

// unwanted adds why no source of the name claims the namespace, by the first of them.
func (x *explanation) unwanted(snap *snapshot.Snapshot, key types.NamespacedName) {
	sources := snap.View(key.Name).All()
	if len(sources) == 0 {
		x.Verdict += fmt.Sprintf("no ConfigMap %s has the label %s=%s.", key.Name, snap.Rules.Label(), plan.SourceValue)
		return
	}
	var why string
	why, x.Remedy = withheld(snap, sources[0], key.Namespace)
	x.Verdict += fmt.Sprintf("of source %s: %s.", sources[0].Key, cmp.Or(why, "it claims the namespace"))
}

func (x *explanation) names() []string { return []string{x.name} }

func (x *explanation) table(w io.Writer, wide bool) error {
	text := printable(x.Verdict) + "\n"
	if x.Remedy != "" {
		text += "To change that: " + printable(x.Remedy) + "\n"
	}
	if x.Warning != nil {
		text += printable(x.Warning.String()) + "\n"
	}
	if x.Diff != "" {
		text += "The copy would replace:\n" + x.Diff
	}
	var rows, rules [][]any
	for _, s := range x.Sources {
		rows = append(rows, []any{s.Source, s.State, printable(s.Reason)})
	}
	for _, r := range x.Rules {
		rules = append(rules, []any{r.Source, map[bool]string{true: "yes", false: "NO"}[r.Holds], printable(r.Text)})
	}
	_, err := io.WriteString(w, text)
	if err == nil {
		err = printTable(w, wide, []string{"Source", "State", "Reason"}, rows)
	}
	if err == nil && wide {
		err = printTable(w, wide, []string{"Source", "Holds", "Rule"}, rules)
	}
	return err
}
