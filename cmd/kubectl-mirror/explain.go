package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

const explainHelp = `Explain, rule by rule, why a ConfigMap is, is not, or is no longer a source or a copy, or why a namespace is or is
not a target, and what would change it. An argument with a '/', or one beside --namespace, names a ConfigMap, and need not
exist: then it is explained why there is no copy.

Exit codes: 0 explained, 2 error.`

func newExplain(c *cli) *cobra.Command {
	var output outputFlag
	cmd := &cobra.Command{
		Use:               "explain NAMESPACE/NAME | NAMESPACE",
		Short:             "Explain why a ConfigMap or a namespace takes part or not",
		Long:              explainHelp,
		Example:           "  kubectl mirror explain team-a/settings\n  kubectl mirror explain team-a",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: c.completeExplained,
		RunE: func(cmd *cobra.Command, args []string) error {
			if output == "name" {
				return errors.New("--output=name: explain names nothing: use table, json or yaml")
			}
			asked, err := parseKey(args[0], c.namespace())
			if err != nil {
				return err
			}
			s, err := c.begin(cmd)
			if err != nil {
				return err
			}
			e, err := s.explain(cmd.Context(), asked)
			if err != nil {
				return err
			}
			return output.print(cmd.OutOrStdout(), e)
		},
	}
	output.bind(cmd)
	return cmd
}

// explain reads what the explanation of a ConfigMap, or of a namespace if the key has none, depends on.
func (s *session) explain(ctx context.Context, asked types.NamespacedName) (*explanation, error) {
	name := asked.Name
	if asked.Namespace == "" {
		name = "" // of all ConfigMaps
	}
	snap, err := s.cluster.read(ctx, s.settings.PruneLimit, name)
	if err != nil {
		return nil, err
	}
	named := s.cluster.listNamed(ctx)
	all, err := snap.decideAll(false, snap.judge().blocked, named)
	if err != nil {
		return nil, err
	}
	if err := s.addFailures(ctx, snap, all); err != nil {
		return nil, err
	}
	e := &explainer{options: &s.settings.Options.Options, snap: snap, all: all, settings: s.settings.origin}
	if asked.Namespace == "" {
		return e.namespace(asked.Name), nil
	}
	objects, err := named(asked.Name)
	if err != nil {
		return nil, err
	}
	return e.configMap(asked, objects[asked.Namespace]), nil
}

// explainer explains by what a snapshot holds. It is pure.
type explainer struct {
	options  *plan.Options
	snap     *snapshot
	all      map[string][]*decided
	settings string
}

// explanation is a verdict, and the rules that lead to it.
type explanation struct {
	Settings string    `json:"settings"`
	Subject  string    `json:"subject"`
	Verdict  string    `json:"verdict"`
	Sections []section `json:"sections"`
	// Sources are those that have something to do with the namespace that is explained.
	Sources []targetOf `json:"sources,omitempty"`
	// Targets are the first few of the source that is explained that are not in sync.
	Targets []targetReport `json:"targets,omitempty"`

	more string // how many targets are left out; empty: none
}

// targetOf is the state of one source at the namespace that is explained.
type targetOf struct {
	Source string `json:"source"`
	State  string `json:"state"`
	Reason string `json:"reason,omitempty"`
}

// namespace explains a namespace.
func (e *explainer) namespace(name string) *explanation {
	rules := namespaceRules(e.options, name, e.snap.namespaces[name])
	out := &explanation{Settings: e.settings, Subject: "namespace/" + name, Sections: []section{rules}}
	out.Verdict = fmt.Sprintf("Namespace %s is a target.", name)
	if !rules.holds() {
		out.Verdict = fmt.Sprintf("Namespace %s is no target.", name)
	}
	r := newReport(e.snap, e.all, func(types.NamespacedName) bool { return true })
	for _, s := range r.Sources {
		for _, t := range s.Targets {
			if t.Namespace == name {
				out.Sources = append(out.Sources, targetOf{s.key().String(), t.State, t.Reason})
			}
		}
	}
	return out
}

// configMap explains a ConfigMap; cm is nil if there is none.
func (e *explainer) configMap(key types.NamespacedName, cm *corev1.ConfigMap) *explanation {
	out := &explanation{Settings: e.settings, Subject: "configmap/" + key.String()}
	d := e.decision(key)
	switch {
	case cm == nil:
		out.Verdict = fmt.Sprintf("There is no ConfigMap %s%s.", key, e.absence(d))
		e.wanted(out, key)
	case e.snap.rules.AsksToBeMirrored(cm):
		e.source(out, cm)
		if d != nil && d.Source != nil {
			out.Verdict += fmt.Sprintf(" It has the name of a copy of %s, which is not created here therefore.", d.Source.Key)
		}
	default:
		e.copyOrForeign(out, cm, d)
	}
	out.Verdict += precedence(d)
	return out
}

// precedence says that a target has several sources; empty if it has not.
func precedence(d *decided) string {
	if d == nil || d.Source == nil || len(d.losers) == 0 {
		return ""
	}
	var others []string
	for _, s := range d.losers {
		others = append(others, s.Key.String())
	}
	return fmt.Sprintf(" Of the sources that select the namespace, %s has precedence over %s. %s To change that, %s.", d.Source.Key, strings.Join(others, ", "),
		precedenceRule, precedenceRemedy)
}

// decision returns the decision about a target; nil if there is none.
func (e *explainer) decision(key types.NamespacedName) *decided {
	for _, d := range e.all[key.Name] {
		if d.Key.Namespace == key.Namespace {
			return d
		}
	}
	return nil
}

func (e *explainer) absence(d *decided) string {
	switch {
	case d != nil && d.failure != "":
		return fmt.Sprintf(": a copy of %s is to be created, but %s", d.Source.Key, d.failure)
	case d != nil && d.Op == plan.OpCreate:
		return fmt.Sprintf(": a copy of %s is to be created", d.Source.Key)
	}
	return ", and no source wants a copy there"
}

// wanted adds the rules by which sources of the name want a copy in the namespace.
func (e *explainer) wanted(out *explanation, key types.NamespacedName) {
	ns := e.snap.namespaces[key.Namespace]
	out.Sections = append(out.Sections, namespaceRules(e.options, key.Namespace, ns))
	g := e.snap.names[key.Name]
	if g == nil || len(g.view.All()) == 0 {
		missing := section{Title: "There is a source of the name " + key.Name}
		missing.add(false, fmt.Sprintf("A ConfigMap %s has the label %s=%s.", key.Name, e.options.Label, plan.SourceValue), "none has",
			fmt.Sprintf("kubectl -n NAMESPACE label configmap %s %s=%s", key.Name, e.options.Label, plan.SourceValue))
		out.Sections = append(out.Sections, missing)
		return
	}
	for _, s := range g.view.All() {
		out.Sections = append(out.Sections, sourceRules(e.options, s.ConfigMap))
		switch {
		case s.Frozen != nil:
			out.Sections = append(out.Sections, freezeRules(s))
		case ns != nil:
			out.Sections = append(out.Sections, narrowingRules(s, ns))
		}
	}
}

// fewTargets is how many targets of a source are explained. kubectl mirror status shows all.
const fewTargets = 10

// source explains a ConfigMap that asks to be mirrored.
func (e *explainer) source(out *explanation, cm *corev1.ConfigMap) {
	key, source := plan.KeyOf(cm), e.snap.rules.ParseSource(cm)
	rules := sourceRules(e.options, cm)
	out.Sections = append(out.Sections, rules)
	if rules.holds() {
		out.Sections = append(out.Sections, freezeRules(source))
	}
	copies := ""
	for _, found := range newReport(e.snap, e.all, func(k types.NamespacedName) bool { return k == key }).Sources {
		copies = ": " + strings.TrimPrefix((&oneReport{sourceReport: sourceReport{Counts: found.Counts}}).summary(), ", ")
		e.addTargets(out, &found)
	}
	switch {
	case !rules.holds():
		out.Verdict = fmt.Sprintf("ConfigMap %s asks to be mirrored, and is not mirrored%s.", key, copies)
	case source.Frozen != nil:
		out.Verdict = fmt.Sprintf("ConfigMap %s is a source, and frozen%s.", key, copies)
	default:
		out.Verdict = fmt.Sprintf("ConfigMap %s is a source%s.", key, copies)
	}
}

// addTargets adds the first targets that are not in sync, and the rule by which other sources have some.
func (e *explainer) addTargets(out *explanation, found *sourceReport) {
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
		out.more = fmt.Sprintf(" (%d more: kubectl mirror status %s)", rest, found.key())
	}
	if found.Counts[plan.StateSuperseded.Metric()] > 0 {
		s := section{Title: fmt.Sprintf("Source %s has precedence at all its targets", found.key())}
		s.add(false, precedenceRule, "another source comes first at "+count(found.Counts[plan.StateSuperseded.Metric()], "target", "targets"), precedenceRemedy)
		out.Sections = append(out.Sections, s)
	}
}

// copyOrForeign explains a ConfigMap that does not ask to be mirrored.
func (e *explainer) copyOrForeign(out *explanation, cm *corev1.ConfigMap, d *decided) {
	key := plan.KeyOf(cm)
	owner, ours := e.snap.rules.SourceOf(cm)
	switch {
	case ours:
		out.Sections = append(out.Sections, copyRules(e.options, cm))
		out.Verdict = fmt.Sprintf("ConfigMap %s is a copy of %s%s.", key, owner, e.copyState(d))
		e.wanted(out, key)
	case d != nil && d.Source != nil:
		out.Sections = append(out.Sections, copyRules(e.options, cm))
		out.Verdict = fmt.Sprintf("ConfigMap %s is foreign, so %s is not copied there. Delete or rename it", key, d.Source.Key)
		if _, why := e.snap.judgeAdoption(e.options, cm); why == "" {
			out.Verdict += ", or hand it over (this REPLACES ITS DATA): kubectl mirror adopt " + key.String()
		} else {
			out.Verdict += fmt.Sprintf(". It cannot be handed over: it %s.", why)
		}
		if d.Op != plan.OpNone {
			out.Verdict = fmt.Sprintf("ConfigMap %s is foreign, and handed over: it becomes a copy of %s.", key, d.Source.Key)
		}
	default:
		out.Sections = append(out.Sections, sourceRules(e.options, cm))
		out.Verdict = fmt.Sprintf("ConfigMap %s is neither a source nor a copy%s.", key, e.left(key))
		if len(cm.Annotations[plan.CopyAnnotation])+len(cm.Annotations[plan.SourceAnnotation]) > 0 || namesItself(cm) {
			out.Sections = append(out.Sections, copyRules(e.options, cm))
		}
	}
}

// left says that a ConfigMap is no longer a source, if copies of it are left.
func (e *explainer) left(key types.NamespacedName) string {
	n := 0
	for _, d := range e.all[key.Name] {
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
func (e *explainer) copyState(d *decided) string {
	switch {
	case d == nil || d.state() == plan.StateNone && d.have == nil:
		return ", without its label, and no source wants it: it counts as released, and stays"
	case d.state() == plan.StateSynced:
		return ", and in sync"
	case d.state() == plan.StateNone:
		return ", and stays as it is"
	}
	return fmt.Sprintf(", and %s: %s", strings.ReplaceAll(d.state().String(), "_", " "), e.snap.reason(d))
}
