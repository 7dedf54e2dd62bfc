package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
		explainHelp, "  kubectl mirror explain settings -n team-a\n  kubectl mirror explain namespace/team-a",
		cobra.ExactArgs(1), c.explain)
}

// explain explains what the argument names: a ConfigMap, or a namespace.
func (c *cli) explain(cmd *cobra.Command, args []string) (printed, error) {
	kind, name, typed := strings.Cut(args[0], "/")
	if typed && slices.Contains([]string{"namespace", "namespaces", "ns"}, kind) {
		return c.explainNamespace(cmd, name)
	}
	s, keys, err := c.beginSome(cmd, args)
	if err != nil {
		return nil, err
	}
	asked, ctx := keys[0], cmd.Context()
	cm, err := s.Get(ctx, asked)
	if err != nil {
		return nil, err
	}
	if cm != nil && s.Rules.AsksToBeMirrored(cm) {
		return s.explainSource(ctx, asked)
	}
	var snap *snapshot.Snapshot
	if !s.limited {
		snap, err = s.Read(ctx, asked.Name)
		s.limited = apierrors.IsForbidden(err)
	}
	switch {
	case s.limited:
		return s.explainAlone(ctx, asked, cm)
	case err != nil:
		return nil, err
	}
	x := explain(snap, asked, cm)
	if x.handedOver != nil {
		x.Diff, err = s.diff(ctx, *x.handedOver)
	}
	if x.state == plan.StatePending && err == nil {
		err = s.explainPending(ctx, snap, x)
	}
	return x, err
}

// explainSource shows a source as status does.
func (s *session) explainSource(ctx context.Context, asked types.NamespacedName) (printed, error) {
	source, err := s.ask(ctx, asked)
	if err != nil {
		return nil, err
	}
	r := newReport([]*snapshot.Source{source})
	r.details, r.answer = true, exitYes
	return r, nil
}

// explainAlone explains to a user who may see no more than a namespace what that one shows.
func (s *session) explainAlone(ctx context.Context, asked types.NamespacedName, cm *corev1.ConfigMap) (printed, error) {
	if cm == nil { // it may be a source that is gone
		if found, err := s.read(ctx, asked); err == nil && len(found) > 0 {
			return s.explainSource(ctx, asked)
		}
	}
	ns, err := s.Client.CoreV1().Namespaces().Get(ctx, asked.Namespace, metav1.GetOptions{})
	if err != nil {
		ns = nil
	}
	return explainAlone(s.Rules, asked, cm, ns), nil
}

// explainPending adds that the API server rejects writes for the source. Other warnings have commands for other
// namespaces.
func (s *session) explainPending(ctx context.Context, snap *snapshot.Snapshot, x *explanation) error {
	sources := snap.Sources(x.of)
	if len(sources) == 0 {
		return nil
	}
	err := s.learn(ctx, x.of.Namespace, sources)
	if w := sources[0].Warning; w != nil && w.Reason == plan.ReasonWriteFailed {
		x.Warning = w
	}
	return err
}

// explainNamespace explains a namespace, which takes no permission to read ConfigMaps.
func (c *cli) explainNamespace(cmd *cobra.Command, name string) (printed, error) {
	if name == "" || strings.Contains(name, "/") {
		return nil, fmt.Errorf("%q: must be namespace/NAME", "namespace/"+name)
	}
	s, err := c.begin(cmd)
	if err != nil {
		return nil, err
	}
	namespaces, err := s.Namespaces(cmd.Context())
	return explainNamespace(&snapshot.Snapshot{Rules: s.Rules, Namespaces: namespaces}, name), err
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

	of         types.NamespacedName // the source that claims the namespace, or whose copy is there
	state      plan.State
	handedOver *plan.Change // of a foreign ConfigMap, if its owner hands it over
}

// rule is a rule about a source; an empty one: about any.
type rule struct {
	Source string `json:"source,omitempty"`
	plan.Judgement
}

// explainNamespace explains a namespace.
func explainNamespace(snap *snapshot.Snapshot, name string) *explanation {
	x := &explanation{Verdict: fmt.Sprintf("Namespace %s is a target.", name)}
	ns, any := snap.Namespaces[name], plan.AnySource()
	if why, remedy := withheld(snap, any, name); why != "" {
		x.Verdict, x.Remedy = fmt.Sprintf("Namespace %s is no target: %s.", name, why), remedy
	}
	if ns == nil {
		return x
	}
	for _, j := range snap.Rules.Judge(any, ns) {
		x.Rules = append(x.Rules, rule{"", j})
	}
	if value, ok := ns.Labels[snap.Rules.Label()]; ok && value != plan.OptOutValue {
		x.Verdict += fmt.Sprintf(" Its label %s=%s means nothing: only %[1]s=false opts out.", snap.Rules.Label(), value)
	}
	return x
}

// labelNamespace is the beginning of a command, and the permission that the command takes.
const labelNamespace = "if you may patch the namespace: kubectl label namespace %s %s"

// withheld says why a source, which is nil if there is none, has no copy in a namespace, and what would change that;
// empty if it claims one.
func withheld(snap *snapshot.Snapshot, s *plan.Source, name string) (why, remedy string) {
	ns := snap.Namespaces[name]
	switch {
	case ns == nil:
		would := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
		why, remedy = snap.Rules.ExplainExclusion(plan.AnySource(), would)
		if why != "" {
			return "there is no namespace " + name + ", and a new one would be no target: " + why, remedy
		}
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
		remedy = fmt.Sprintf(labelNamespace+"-", name, snap.Rules.Label())
	}
	return why, remedy
}

// explain explains a ConfigMap by a snapshot; cm is nil if there is none.
func explain(snap *snapshot.Snapshot, key types.NamespacedName, cm *corev1.ConfigMap) *explanation {
	d, view := snap.Decision(key), snap.View(key.Name)
	x := &explanation{of: d.Owner, state: d.State}
	if ns := snap.Namespaces[key.Namespace]; ns != nil {
		for _, s := range view.All() {
			for _, j := range snap.Rules.Judge(s, ns) {
				x.Rules = append(x.Rules, rule{s.Key.String(), j})
			}
		}
	}
	is, ours := whatIs(snap, key, cm)
	switch state := d.State; {
	case state == plan.StateNone:
		x.unwanted(snap, key, cm, is)
		return x
	case state == plan.StateSynced:
		x.Verdict = is + ", and in sync."
	case state == plan.StateForeign:
		x.Verdict = fmt.Sprintf("%s, so %s is not copied there: %s.", is, x.of, snap.Reason(d))
	case ours:
		x.Verdict = fmt.Sprintf("%s, and %s: %s.", is, strings.ReplaceAll(state.String(), "_", " "), snap.Reason(d))
	default:
		x.Verdict = fmt.Sprintf("%s; the copy of %s is %s: %s.", is, x.of, state, snap.Reason(d))
	}
	x.remedy(snap, d, cm)
	if len(d.Superseded) > 0 {
		x.Verdict += fmt.Sprintf(" %s has precedence over %s.", x.of, d.Superseded[0].Key)
	}
	return x
}

// whatIs says what a ConfigMap is, and whether it is a copy of this controller.
func whatIs(snap *snapshot.Snapshot, key types.NamespacedName, cm *corev1.ConfigMap) (is string, ours bool) {
	if cm == nil {
		return fmt.Sprintf("There is no ConfigMap %s", key), false
	}
	if source, ours := snap.Rules.SourceOf(cm); ours {
		return fmt.Sprintf("ConfigMap %s is a copy of %s", key, source), true
	}
	return fmt.Sprintf("ConfigMap %s is neither a source nor a copy", key), false
}

// unwanted says why no copy is wanted at a key.
func (x *explanation) unwanted(snap *snapshot.Snapshot, key types.NamespacedName, cm *corev1.ConfigMap, is string) {
	view := snap.View(key.Name)
	about := view.Find(x.of)
	if about == nil && len(view.All()) > 0 {
		about = view.All()[0]
	}
	why, remedy := withheld(snap, about, key.Namespace)
	x.Verdict, x.Remedy = fmt.Sprintf("%s, and no copy is wanted there: %s.", is, why), remedy
	for _, s := range snap.Sources(key) {
		x.Verdict += fmt.Sprintf(" It is no longer a source; copies left: %d.", len(s.Targets))
	}
	x.Verdict += toPublish(snap.Rules, cm) // ends with a command
}

// remedy says what would change the state of a target.
func (x *explanation) remedy(snap *snapshot.Snapshot, d *snapshot.Decision, cm *corev1.ConfigMap) {
	about := snap.View(d.Key.Name).Find(x.of)
	switch d.State {
	case plan.StateExpiring:
		if _, x.Remedy = withheld(snap, about, d.Key.Namespace); about == nil {
			x.Remedy = "create or label " + x.of.String() + " again, before the deletion grace ends"
		}
	case plan.StateHeld:
		_, remedy := about.Hold()
		x.Remedy = remedy + " of " + x.of.String()
	case plan.StateForeign:
		if _, adoptable := snap.Rules.Foreign(cm); !adoptable {
			return
		}
		after := snap.HandedOver(cm)
		if after.Op == plan.OpRecreate {
			x.Verdict += " Handed over, it is deleted and created again, without others' metadata: it is immutable."
		}
		x.Remedy, x.handedOver = handOver(d.Key), &after
	}
}

func (x *explanation) end() error { return exitYes }

func (x *explanation) table(w io.Writer, wide bool) {
	remedy := ""
	if x.Remedy != "" {
		remedy = "To change that: " + x.Remedy
	}
	var rules [][]any
	for _, r := range x.Rules {
		if wide {
			rules = append(rules, []any{r.Source, map[bool]string{true: "yes", false: "NO"}[r.Holds], r.Text})
		}
	}
	printLines(w, x.Verdict, remedy, x.Warning.String())
	if x.Diff != "" {
		fmt.Fprint(w, "The copy would replace:\n"+x.Diff)
	}
	printTable(w, wide, []string{"Source", "Holds", "Rule"}, rules)
}
