package main

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"

	"github.com/mirror-controller/mirror-controller/cmd/kubectl-mirror/snapshot"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

const explainHelp = `Explain why a ConfigMap is, or is not, a copy, or why there is none, and what would change that.
A source is shown as status shows it, but for an event that has a command for another namespace.

Exit codes: 0 explained, 2 unknown.`

func newExplain(c *cli) *cobra.Command {
	return c.command(&cobra.Command{Use: "explain [NAMESPACE/]NAME", Short: "Explain why a ConfigMap is a copy or not",
		Long: explainHelp, Example: "  kubectl mirror explain settings -n team-a", Args: cobra.ExactArgs(1)}, false,
		func(ctx context.Context, s *session, keys []types.NamespacedName) (printed, error) {
			return s.explain(ctx, keys[0])
		})
}

func (s *session) explain(ctx context.Context, key types.NamespacedName) (printed, error) {
	cm, err := s.Get(ctx, key)
	if err != nil {
		return nil, err
	}
	if !isCopy(cm) { // it may be a source, also one that is gone
		found, err := s.read(ctx, key)
		for _, source := range found {
			if strings.Contains(source.Warning, "kubectl ") { // a command for another namespace
				source.Warning = ""
			}
		}
		if len(found) > 0 || err != nil && (!apierrors.IsForbidden(err) || cm != nil && s.Rules.AsksToBeMirrored(cm)) {
			return &report{Sources: found, details: true}, err
		}
	}
	x := &subject{Rules: s.Rules, key: key, cm: cm}
	if x.snap, err = s.Read(ctx, key.Name); err == nil {
		x.ns = x.snap.Namespaces[key.Namespace]
	} else if apierrors.IsForbidden(err) {
		x.ns, err = s.Client.CoreV1().Namespaces().Get(ctx, key.Namespace, metav1.GetOptions{})
	}
	return x.explain(), utilerrors.FilterOut(err, apierrors.IsForbidden, apierrors.IsNotFound)
}

// explanation is a verdict, and what would change it.
type explanation struct {
	Verdict string `json:"verdict"`
	Remedy  string `json:"remedy,omitempty"`
}

func (x *explanation) end() error { return exitYes }

func (x *explanation) table(w io.Writer) {
	printLines(w, x.Verdict)
	if x.Remedy != "" {
		printLines(w, "To change that: "+x.Remedy)
	}
}

// subject is a ConfigMap, or the place of one, and what is known about it.
type subject struct {
	*plan.Rules
	key  types.NamespacedName
	cm   *corev1.ConfigMap  // nil: there is none
	ns   *corev1.Namespace  // nil: there is none
	snap *snapshot.Snapshot // nil: the user may see no more than the namespace
}

// explain says first what the ConfigMap is, and then what a source has to do with it.
func (x *subject) explain() *explanation {
	is, remedy := x.is()
	if remedy != "" {
		return &explanation{is, remedy}
	}
	explain := x.explainTarget
	if x.snap == nil {
		explain = x.explainAlone
	}
	why, remedy := explain()
	return &explanation{is + " " + why, remedy}
}

// is says what the ConfigMap is by its marks. If it may be meant to be a source, as one that was made from a copy, the
// remedy publishes it.
func (x *subject) is() (is, remedy string) {
	if x.cm == nil {
		return fmt.Sprintf("There is no ConfigMap %s.", x.key), ""
	}
	m, label := plan.MarksOf(x.cm), x.cm.Labels[x.Label()]
	switch {
	case isCopy(x.cm):
		return fmt.Sprintf("ConfigMap %s is a copy of %s, by its annotations, of instance %s.", x.key, m.Source,
			m.Instance), ""
	case m.Source.Name != "" && x.cm.Annotations[plan.CopyAnnotation] == "":
		return fmt.Sprintf("ConfigMap %s was a copy of %s, and is released: no controller changes it.", x.key, m.Source), ""
	case label != "" && label != plan.SourceValue && !m.Itself && x.cm.Annotations[plan.AdoptAnnotation] == "" &&
		(x.snap == nil || x.snap.Decision(x.key).State == plan.StateNone):
		return fmt.Sprintf("ConfigMap %s is neither a source nor a copy: its label %s=%s does not publish it.", x.key,
				x.Label(), label), fmt.Sprintf("kubectl label configmap/%s -n %s %s=%s --overwrite", x.key.Name, x.key.Namespace,
				x.Label(), plan.SourceValue)
	}
	return fmt.Sprintf("ConfigMap %s is neither a source nor a copy.", x.key), ""
}

// isCopy reports whether the ConfigMap is a copy, of whatever instance.
func isCopy(cm *corev1.ConfigMap) bool {
	return cm != nil && plan.MarksOf(cm).Itself && plan.MarksOf(cm).Source.Name != ""
}

// explainTarget says in which state the target is, and why, and what would change that.
func (x *subject) explainTarget() (why, remedy string) {
	c, view := x.snap.Decision(x.key), x.snap.View(x.key.Name)
	why = strings.TrimSuffix(fmt.Sprintf("The target of %s is %s: %s", c.Owner, c.State, x.snap.Reason(c)), ": ") + "."
	switch c.State {
	case plan.StateNone:
		why, remedy = x.withheld(view.All())
		why = "No copy is wanted there: " + why + "."
	case plan.StatePending:
		why += " kubectl mirror status " + c.Owner.String() + " says whether the API server rejects it."
	case plan.StateExpiring, plan.StateOutOfScope:
		_, remedy = x.Explain(c.Why)
	case plan.StateHeld:
		_, remedy = view.Find(c.Owner).Hold()
		remedy += " of " + c.Owner.String()
	case plan.StateForeign:
		remedy = x.handOver(c.Have)
	}
	return why, remedy
}

// withheld says why none of the sources has a copy in the namespace, and what would change that.
func (x *subject) withheld(sources []*plan.Source) (why, remedy string) {
	switch {
	case x.ns == nil:
		would := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: x.key.Namespace}}
		if why, remedy = x.ExplainExclusion(plan.AnySource(), would); why != "" {
			return "there is no namespace " + x.key.Namespace + ", and a new one would be no target: " + why, remedy
		}
		return "there is no namespace " + x.key.Namespace, "kubectl create namespace " + x.key.Namespace
	case len(sources) == 0:
		return fmt.Sprintf("no ConfigMap of this name has the label %s=%s", x.Label(), plan.SourceValue), ""
	}
	if status, note := snapshot.StatusOf(sources[0]); status != snapshot.InSync {
		return note, ""
	}
	return x.ExplainExclusion(sources[0], x.ns)
}

// explainAlone says what the namespace alone shows. No remedy is a command for another namespace.
func (x *subject) explainAlone() (why, remedy string) {
	const unseen = "You may not see whether a source waits for the name."
	optOut := fmt.Sprintf("label %s=%s", x.Label(), plan.OptOutValue)
	optedOut := x.ns != nil && x.ns.Labels[x.Label()] == plan.OptOutValue
	switch {
	case x.cm == nil && optedOut:
		return "No copy is wanted there: the namespace has the " + optOut + ".", ""
	case x.cm == nil:
		return unseen, ""
	case !isCopy(x.cm):
		return unseen, "if one is to have the name, " + x.handOver(x.cm)
	case x.MatchesChecksum(x.cm):
		why = "Its content matches its checksum."
	default:
		why = "It was edited, and is restored unless its source is gone or holds it."
	}
	if optedOut {
		return why + " It is deleted at the end of the deletion grace, unless its source holds it: the namespace has the " +
			optOut + ".", "remove that label, if you may patch the namespace"
	}
	return why, fmt.Sprintf("ask the owner of %s to leave your namespace out, or opt out of all copies: if you may patch "+
		"the namespace, kubectl label namespace %s %s=%s", plan.MarksOf(x.cm).Source, x.key.Namespace, x.Label(),
		plan.OptOutValue)
}

// handOver is how a foreign ConfigMap makes way for a copy.
func (x *subject) handOver(cm *corev1.ConfigMap) string {
	if _, adoptable := x.Foreign(cm); !adoptable {
		return "delete or rename it"
	}
	return fmt.Sprintf("delete or rename it, or hand it over, which REPLACES ITS DATA: "+
		"kubectl annotate -n %s configmap %s %s=%s", x.key.Namespace, x.key.Name, plan.AdoptAnnotation, plan.AdoptValue)
}
