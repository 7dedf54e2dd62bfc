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

Exit codes: 0 explained, 2 unknown.`

func newExplain(c *cli) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "explain [NAMESPACE/]NAME",
		Short:   "Explain why a ConfigMap is a copy or not",
		Long:    explainHelp,
		Example: "  kubectl mirror explain settings -n team-a",
		Args:    cobra.ExactArgs(1),
	}
	return c.command(cmd, false, explain)
}

// explain prints an explanation of a ConfigMap, or of its absence.
func explain(ctx context.Context, s *session, keys []types.NamespacedName) error {
	if err := s.begin(ctx); err != nil {
		return err
	}
	key := keys[0]
	cm, err := s.Get(ctx, key)
	if err != nil {
		return err
	}
	if cm != nil && s.Rules.AsksToBeMirrored(cm) {
		s.print(&explanation{"ConfigMap " + key.String() + " is a source: kubectl mirror status " +
			key.String() + s.Flags + " shows how it stands.", ""})
		return nil
	}
	x := &subject{Rules: s.Rules, key: key, cm: cm, flags: s.Flags}
	x.snap, err = s.Read(ctx, key.Name)
	if apierrors.IsForbidden(err) {
		// Even a user who may see neither learns much from the ConfigMap alone.
		x.ns, err = s.Client.CoreV1().Namespaces().Get(ctx, key.Namespace, metav1.GetOptions{})
		err = utilerrors.FilterOut(err, apierrors.IsForbidden, apierrors.IsNotFound)
	}
	if err != nil {
		return err
	}
	s.print(x.explain())
	return nil
}

// explanation is the answer of explain: what the ConfigMap is and why, and what
// would change that.
type explanation struct {
	Verdict string `json:"verdict"`
	Remedy  string `json:"remedy,omitempty"`
}

// table prints the explanation as sentences: it has no columns.
func (a *explanation) table(w io.Writer) {
	printLines(w, a.Verdict)
	if a.Remedy != "" {
		printLines(w, "To change that: "+a.Remedy)
	}
}

// subject is a ConfigMap, or the place of one, and what the user may see of its
// surroundings.
type subject struct {
	*plan.Rules
	key   types.NamespacedName
	cm    *corev1.ConfigMap // nil: there is none
	flags string            // those of the user, for a command that is advised

	// snap has all of the name of the key. It is nil if the user may see no
	// more than the namespace.
	snap *snapshot.Snapshot
	// ns is the namespace of the key, if snap is nil. It is empty if the user may
	// not see it, or there is none.
	ns *corev1.Namespace
}

// explain returns first what the ConfigMap is, and then what a source has to do
// with it, if that matters.
func (x *subject) explain() *explanation {
	isTarget := x.snap != nil && x.snap.Decision(x.key).State != plan.StateNone
	why, publish, isMislabelled := strings.Cut(mislabelled(x.Rules, x.cm), ": ")
	switch {
	case isMislabelled && !isTarget:
		what := strings.TrimSuffix(x.describe(), ".")
		return &explanation{what + ": " + why + ".", publish}
	case isCopy(x.cm) && x.cm.DeletionTimestamp != nil:
		return &explanation{x.describe() + " It is being deleted, and stays until it has no " +
			"finalizers: " + strings.Join(x.cm.Finalizers, ", ") + ".", "have their owners remove them"}
	}
	why, remedy := x.explainTarget()
	return &explanation{x.describe() + " " + why, remedy}
}

// describe returns what the ConfigMap is by its marks, as a sentence.
func (x *subject) describe() string {
	if x.cm == nil {
		return fmt.Sprintf("There is no ConfigMap %s.", x.key)
	}
	marks := plan.MarksOf(x.cm)
	switch {
	case isCopy(x.cm):
		return fmt.Sprintf("ConfigMap %s is a copy of %s, by its annotations, of instance %s.",
			x.key, marks.Source, marks.Instance)
	case isReleased(x.cm):
		return fmt.Sprintf("ConfigMap %s was a copy of %s, and is released: "+
			"no controller changes it.", x.key, marks.Source)
	}
	return fmt.Sprintf("ConfigMap %s is neither a source nor a copy.", x.key)
}

// mislabelled returns that a ConfigMap has the mirror label with a value that
// does not publish it, such as True, and the command that publishes it; empty
// if that is not so, or if the label may have another purpose.
func mislabelled(r *plan.Rules, cm *corev1.ConfigMap) string {
	if cm == nil || plan.MarksOf(cm).Itself || isReleased(cm) ||
		cm.Annotations[plan.AdoptAnnotation] != "" {
		return ""
	}
	value := cm.Labels[r.Label()]
	if value == "" || value == plan.SourceValue {
		return ""
	}
	return fmt.Sprintf("its label %[1]s=%[2]s does not publish it: "+
		"kubectl label configmap/%[3]s -n %[4]s %[1]s=%[5]s --overwrite",
		r.Label(), value, cm.Name, cm.Namespace, plan.SourceValue)
}

// isCopy reports whether the ConfigMap is a copy, of whatever instance.
func isCopy(cm *corev1.ConfigMap) bool {
	return cm != nil && plan.MarksOf(cm).Itself && plan.MarksOf(cm).Source.Name != ""
}

// isReleased reports whether the ConfigMap was a copy, and has lost the
// annotation that makes it one.
func isReleased(cm *corev1.ConfigMap) bool {
	return plan.MarksOf(cm).Source.Name != "" && cm.Annotations[plan.CopyAnnotation] == ""
}

// explainTarget returns in which state the target is, and why, and what would
// change that. A state without a remedy here is one that the user wants, or the
// reason itself says what to do.
func (x *subject) explainTarget() (why, remedy string) {
	if x.snap == nil {
		return x.explainUnseen()
	}
	c := x.snap.Decision(x.key)
	view := x.snap.View(x.key.Name)
	why = fmt.Sprintf("The target of %s is %s: %s", c.Owner, c.State, x.snap.Reason(c))
	why = strings.TrimSuffix(why, ": ") + "."
	switch c.State {
	case plan.StateNone:
		why, remedy = x.explainNoCopy(view.All)
		why = "No copy is wanted there: " + why + "."
	case plan.StatePending:
		why += " kubectl mirror status " + c.Owner.String() + x.flags +
			" says whether the API server rejects it."
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

// explainNoCopy returns why none of the sources has a copy in the namespace,
// and what would change that. Of several sources it is about the first: that
// one would win.
func (x *subject) explainNoCopy(sources []*plan.Source) (why, remedy string) {
	ns := x.snap.Namespaces[x.key.Namespace]
	switch {
	case ns == nil:
		return "there is no namespace " + x.key.Namespace, ""
	case len(sources) == 0:
		return fmt.Sprintf("no ConfigMap of this name has the label %s=%s",
			x.Label(), plan.SourceValue), ""
	}
	return x.ExplainExclusion(sources[0], ns)
}

// explainUnseen returns what the namespace shows to a user who may see no
// other. No remedy is a command for another namespace.
func (x *subject) explainUnseen() (why, remedy string) {
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
		why += " It is deleted at the end of the deletion grace, unless its source holds it: " +
			"the namespace has the " + optOut + "."
		return why, "remove that label, if you may patch the namespace"
	}
	return why, fmt.Sprintf("ask the owner of %s to leave your namespace out, or opt out of all "+
		"copies: if you may patch the namespace, kubectl label namespace %s %s=%s",
		plan.MarksOf(x.cm).Source, x.key.Namespace, x.Label(), plan.OptOutValue)
}

// handOver returns how a foreign ConfigMap makes way for a copy.
func (x *subject) handOver(cm *corev1.ConfigMap) string {
	if _, adoptable := x.Foreign(cm); !adoptable {
		return "delete it, or move its data to another name"
	}
	return fmt.Sprintf("delete it, move its data to another name, or hand it over, "+
		"which REPLACES ITS DATA: kubectl annotate -n %s configmap %s %s=%s",
		x.key.Namespace, x.key.Name, plan.AdoptAnnotation, plan.AdoptValue)
}
