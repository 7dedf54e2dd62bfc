package main

import (
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

const explainHelp = `Explain why a ConfigMap is, or is not, a copy, or why there is none, and what would change that.
namespace/NAME explains why a namespace is or is not a target. -o wide shows every rule. Of a foreign ConfigMap the
command shows which content the copy would replace, and how to hand it over; a source it shows as status does.

Exit codes: 0 explained, 2 unknown.`

func newExplain(c *cli) *cobra.Command {
	return c.command("explain [NAMESPACE/]NAME | namespace/NAME", "Explain why a ConfigMap or namespace takes part or not",
		explainHelp, "  kubectl mirror explain settings -n team-a\n  kubectl mirror explain namespace/team-a", 1, 1,
		func(cmd *cobra.Command, args []string) (printed, error) { return c.explain(cmd, args[0]) })
}

// explain explains what an argument names: a ConfigMap, or a namespace.
func (c *cli) explain(cmd *cobra.Command, arg string) (printed, error) {
	kind, name, typed := strings.Cut(arg, "/")
	var asked types.NamespacedName
	var err error
	isNamespace := typed && slices.Contains([]string{"namespace", "namespaces", "ns"}, kind)
	switch {
	case !isNamespace:
		asked, err = c.parseKey(arg)
	case name == "" || strings.Contains(name, "/"):
		err = fmt.Errorf("%q: must be namespace/NAME", arg)
	}
	if err != nil {
		return nil, err
	}
	s, err := c.begin(cmd)
	var snap *snapshot.Snapshot
	if err == nil {
		snap, err = s.Read(cmd.Context(), asked.Name)
	}
	if err != nil && !isNamespace {
		s, err = c.owned(cmd, s, err)
	}
	if err != nil {
		return nil, err
	}
	if s.say(s.settings.absence()); isNamespace {
		return explainNamespace(snap, name), nil
	}
	cm, err := s.Get(cmd.Context(), asked)
	switch {
	case err != nil:
		return nil, err
	case cm != nil && s.Rules.AsksToBeMirrored(cm):
		r, err := (&asker{cli: c, session: s, cmd: cmd, asked: asked}).ask()
		if r != nil {
			r.explained = true
		}
		return r, err
	case s.isOwner:
		return explainAlone(s.Rules, asked, cm), nil
	}
	x, of, handedOver := explain(snap, asked, cm)
	if handedOver != nil {
		x.Diff, err = s.diff(cmd.Context(), *handedOver)
	}
	if sources := snap.Sources(of); of.Name != "" && len(sources) > 0 && err == nil { // a source claims the namespace
		err = s.warnings(cmd.Context(), of.Namespace, sources)
		x.Warning = sources[0].Warning
	}
	return x, err
}

// explanation is a verdict with the rule that decides it, and what would change it.
type explanation struct {
	Verdict string            `json:"verdict"`
	Remedy  string            `json:"remedy,omitempty"`
	Warning *snapshot.Warning `json:"warning,omitempty"`
	// Rules are all rules by which each source of the name has a copy in the namespace, or any source has.
	Rules []rule `json:"rules,omitempty"`
	// Diff is the content that a copy would replace.
	Diff string `json:"diff,omitempty"`

	name string // as kubectl prints it
}

// rule is a rule about a source; an empty one: about any.
type rule struct {
	Source string `json:"source,omitempty"`
	plan.Judgement
}

func (x *explanation) addRules(of string, all []plan.Judgement) {
	for _, j := range all {
		x.Rules = append(x.Rules, rule{of, j})
	}
}

// explainNamespace explains a namespace.
func explainNamespace(snap *snapshot.Snapshot, name string) *explanation {
	x := &explanation{name: "namespace/" + name, Verdict: fmt.Sprintf("Namespace %s is a target.", name)}
	ns, any := snap.Namespaces[name], plan.AnySource()
	if why, remedy := withheld(snap, any, name); why != "" {
		x.Verdict, x.Remedy = fmt.Sprintf("Namespace %s is no target: %s.", name, why), remedy
	}
	if ns == nil {
		return x
	}
	x.addRules("", snap.Rules.Judge(any, ns))
	if value, ok := ns.Labels[snap.Rules.Label()]; ok && value != plan.OptOutValue {
		x.Verdict += fmt.Sprintf(" Its label %s=%s means nothing: only %[1]s=false opts out.", snap.Rules.Label(), value)
	}
	return x
}

// withheld says why a source, which is nil if there is none, has no copy in a namespace, and what would change that;
// empty if it claims one.
func withheld(snap *snapshot.Snapshot, s *plan.Source, name string) (why, remedy string) {
	ns := snap.Namespaces[name]
	switch {
	case ns == nil:
		return "there is no namespace " + name, "kubectl create namespace " + name
	case plan.LabelsTruncated(ns):
		return "its labels take more than 8 KiB", "remove labels of the namespace"
	case s == nil:
		return fmt.Sprintf("no ConfigMap of this name has the label %s=%s", snap.Rules.Label(), plan.SourceValue), ""
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

// explain explains a ConfigMap by a snapshot; cm is nil if there is none. It returns the source that has to do with it,
// and the change if a foreign ConfigMap is handed over.
func explain(snap *snapshot.Snapshot, key types.NamespacedName, cm *corev1.ConfigMap) (
	x *explanation, of types.NamespacedName, handedOver *plan.Change) {
	x = &explanation{name: nameOf(key)}
	d, view := snap.Decision(key), snap.View(key.Name)
	if d == nil {
		d = &snapshot.Decision{Change: plan.Change{Key: key}}
	}
	of = d.CountsFor()
	if ns := snap.Namespaces[key.Namespace]; ns != nil {
		for _, s := range view.All() {
			x.addRules(s.Key.String(), snap.Rules.Judge(s, ns))
		}
	}
	ours := false
	if x.Verdict = fmt.Sprintf("There is no ConfigMap %s", key); cm != nil {
		var source types.NamespacedName
		x.Verdict = fmt.Sprintf("ConfigMap %s is neither a source nor a copy", key)
		if source, ours = snap.Rules.SourceOf(cm); ours {
			x.Verdict = fmt.Sprintf("ConfigMap %s is a copy of %s", key, source)
		}
	}
	about := view.FindAny(of)
	switch state := d.Status(); state {
	case plan.StateNone:
		if about == nil && len(view.All()) > 0 {
			about = view.All()[0]
		}
		why, remedy := withheld(snap, about, key.Namespace)
		x.Verdict += fmt.Sprintf(", and no copy is wanted there: %s.", why)
		x.Remedy = remedy
		for _, s := range snap.Sources(key) {
			x.Verdict += fmt.Sprintf(" It is no longer a source: %s left.", count(len(s.Targets), "copy is", "copies are"))
		}
		return x, of, nil
	case plan.StateSynced:
		x.Verdict += ", and in sync."
	default:
		is := ", and " + strings.ReplaceAll(state.String(), "_", " ")
		if state == plan.StateForeign {
			is = fmt.Sprintf(", so %s is not copied there", of)
		} else if !ours {
			is = fmt.Sprintf("; the copy of %s is %s", of, state)
		}
		x.Verdict += is + ": " + snap.Reason(d) + "."
		handedOver = x.remedy(snap, d, about, cm)
	}
	if len(d.Losers) > 0 {
		x.Verdict += fmt.Sprintf(" %s has precedence over %s.", of, d.Losers[0].Key)
	}
	return x, of, handedOver
}

// remedy sets what would change the state of a target, and returns the change if a foreign ConfigMap is handed over.
func (x *explanation) remedy(
	snap *snapshot.Snapshot, d *snapshot.Decision, about *plan.Source, cm *corev1.ConfigMap) *plan.Change {
	switch d.Status() {
	case plan.StateExpiring:
		_, x.Remedy = withheld(snap, about, d.Key.Namespace)
	case plan.StateHeld:
		_, remedy := about.Hold()
		x.Remedy = remedy + " of " + about.Key.String()
	case plan.StateForeign:
		if _, adoptable := snap.Rules.Foreign(cm); !adoptable {
			return nil
		}
		after := snap.HandedOver(cm)
		if after.Op == plan.OpRecreate {
			x.Verdict += " Handed over, it is deleted and created again, without others' metadata: " + after.WhyRecreated() + "."
		}
		x.Remedy = handOver(d.Key)
		return &after
	}
	return nil
}

func (x *explanation) names() []string { return []string{x.name} }

func (x *explanation) end() error { return nil }

func (x *explanation) table(w io.Writer, wide bool) error {
	remedy := ""
	if x.Remedy != "" {
		remedy = "To change that: " + x.Remedy
	}
	var rules [][]any
	for _, r := range x.Rules {
		if wide {
			rules = append(rules, []any{r.Source, map[bool]string{true: "yes", false: "NO"}[r.Holds], printable(r.Text)})
		}
	}
	err := printLines(w, x.Verdict, remedy, x.Warning.String())
	if err == nil && x.Diff != "" {
		_, err = io.WriteString(w, "The copy would replace:\n"+x.Diff)
	}
	if err == nil {
		err = printTable(w, wide, []string{"Source", "Holds", "Rule"}, rules)
	}
	return err
}
