package main

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mirror-controller/mirror-controller/cmd/kubectl-mirror/snapshot"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// dryRun has the API server ask its admission policies and store nothing.
var dryRun = metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}

// unmarked returns a ConfigMap without the annotations of a copy: a confined
// controller cannot create it.
func unmarked(namespace string) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "mirror-controller-check"},
		Data:       map[string]string{"key": "value"},
	}
}

// mostProbes is the number of targets in which probeCopy asks at most. One
// namespace may refuse for reasons of its own, such as a quota.
const mostProbes = 3

// probeCopy asks whether the controller may create copies in a target, and
// whether they stay as they are sent.
func (k *checker) probeCopy(ctx context.Context) finding {
	namespaces, err := (&snapshot.Reader{Client: k.asController}).Namespaces(ctx)
	if err != nil {
		return k.refusal(ctx, err)
	}
	// The copy has a source that need not exist, in the first namespace that
	// may have sources.
	home := append(slices.Clone(k.settings.SourceNamespaces), k.settings.deployment.Namespace)[0]
	source := k.Rules.ParseSource(unmarked(home))
	last := finding{Result: resultNotProbed, Detail: "no namespace is a target yet"}
	probes := 0
	for _, target := range slices.Sorted(maps.Keys(namespaces)) {
		isTarget := k.Rules.Exclusion(plan.AnySource(), namespaces[target]) == plan.NotExcluded
		if target == home || !isTarget || probes == mostProbes {
			continue
		}
		made, err := k.asController.CoreV1().ConfigMaps(target).
			Create(ctx, k.Rules.Desired(source, target, nil), dryRun)
		if err == nil {
			return k.compare(source, made)
		}
		last = k.refusal(ctx, err)
		probes++
	}
	return last
}

// compare judges the answer to the create of a copy, which admission may have
// altered.
func (k *checker) compare(source *plan.Source, made *corev1.ConfigMap) finding {
	altered := k.Rules.Differs(source, made)
	switch {
	case altered != "":
	case len(made.Finalizers) > 0:
		altered = "finalizers"
	case len(made.OwnerReferences) > 0:
		altered = "owner references"
	default:
		return ok("the controller may create copies in namespace " + made.Namespace)
	}
	return todo("admission alters copies in namespace " + made.Namespace + ": " + altered +
		k.leaveOut())
}

// leaveOut is the remedy for copies that admission alters.
func (k *checker) leaveOut() string {
	return fmt.Sprintf(": have the mutating policy or webhook leave out ConfigMaps with the label "+
		"%s=%s: kubectl get mutatingadmissionpolicies,mutatingwebhookconfigurations",
		k.Rules.Label(), plan.CopyValue)
}

// probeConfined asks for what the two policies that confine the controller have
// to refuse: what is no copy, and an event in the name of another program. RBAC
// grants both, so another refusal than that of a policy shows nothing.
func (k *checker) probeConfined(ctx context.Context) finding {
	const (
		aConfigMap = "any ConfigMap in its namespace"
		anEvent    = "an Event of another reporter"
	)
	own := k.settings.deployment.Namespace
	event := &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Name: "mirror-controller-check"},
		InvolvedObject: corev1.ObjectReference{
			Kind: "ConfigMap", APIVersion: "v1", Namespace: own, Name: "any",
		},
		ReportingController: "another",
	}
	bindings, err := k.policyBindings(ctx)
	if err != nil {
		return unknown(err)
	}
	core := k.asController.CoreV1()
	_, byConfigMap := core.ConfigMaps(own).Create(ctx, unmarked(own), dryRun)
	_, byEvent := core.Events(own).Create(ctx, event, dryRun)
	return cmp.Or(
		k.unlessRefused(aConfigMap, byConfigMap, bindings),
		k.unlessRefused(anEvent, byEvent, bindings),
		ok("policies refuse the controller to create "+aConfigMap+", and "+anEvent))
}

// unlessRefused judges the answer to a request that a policy has to refuse. It
// returns an empty finding if the policy does.
func (k *checker) unlessRefused(text string, answer error, bindings []policyBinding) finding {
	switch {
	case answer == nil:
		return todo("the API server would let the controller create " + text +
			": no policy confines it: install deploy/components/admission again; its label and " +
			k.account() + " must be in the ClusterRoleBinding")
	case isRefusedBy(bindings, answer):
		return finding{}
	}
	return unknown(fmt.Errorf("asked for %s as the account of the controller, the answer was: %w",
		text, answer))
}

type policyBinding = admissionv1.ValidatingAdmissionPolicyBinding

// policyBindings returns the bindings of the policies of the installation,
// whatever a kustomization adds to their names: they deny, and their parameters
// are the ClusterRoleBinding of the account, which they know by a label.
func (k *checker) policyBindings(ctx context.Context) ([]policyBinding, error) {
	own, err := k.ownBinding(ctx)
	if err != nil || own == nil {
		return nil, err
	}
	all, err := k.Client.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings().
		List(ctx, metav1.ListOptions{})
	return slices.DeleteFunc(all.Items, func(b policyBinding) bool {
		params := b.Spec.ParamRef
		isOwn := params != nil && params.Selector != nil &&
			params.Selector.MatchLabels[ofInstallation] == own.Labels[ofInstallation]
		return !isOwn || !slices.Contains(b.Spec.ValidationActions, admissionv1.Deny)
	}), err
}

// isRefusedBy reports whether err is the refusal of a policy by one of the
// bindings. The API server names the binding in its text alone.
func isRefusedBy(bindings []policyBinding, err error) bool {
	return apierrors.IsForbidden(err) && slices.ContainsFunc(bindings, func(b policyBinding) bool {
		return strings.Contains(err.Error(), " with binding '"+b.Name+"' ")
	})
}

// refusal judges the error of a request that the controller has to be allowed.
// The API server has no types for its causes, so the text has to do.
func (k *checker) refusal(ctx context.Context, err error) finding {
	text := err.Error()
	bindings, _ := k.policyBindings(ctx) // whoever may not see them reads the text alone
	switch {
	case strings.Contains(text, "cannot impersonate"):
		return unknown(fmt.Errorf("you may not impersonate the account of the controller: %w", err))
	case strings.Contains(text, "\" cannot "): // RBAC: User "…" cannot create resource "…"
		text += grantThem
	case isRefusedBy(bindings, err) && k.checkSettings(ctx).Result == resultOK:
		// The policy allows what was sent, so it has seen something else.
		text += k.leaveOut()
	case isRefusedBy(bindings, err):
		text += followArguments
	}
	return todo(text)
}

// checkPolicy returns a check that a policy of the installation is bound. The
// policy is the one with a certain match condition. does is what holds with the
// policy, and component installs it.
func (k *checker) checkPolicy(
	condition, does, component string,
) func(context.Context) finding {
	return func(ctx context.Context) finding {
		bindings, err := k.policyBindings(ctx)
		for _, b := range bindings {
			var policy *admissionv1.ValidatingAdmissionPolicy
			policy, err = k.Client.AdmissionregistrationV1().ValidatingAdmissionPolicies().
				Get(ctx, b.Spec.PolicyName, metav1.GetOptions{})
			isIt := func(c admissionv1.MatchCondition) bool { return c.Name == condition }
			if slices.ContainsFunc(policy.Spec.MatchConditions, isIt) {
				return ok(does)
			}
		}
		if err != nil && !apierrors.IsNotFound(err) {
			return unknown(err)
		}
		return todo("no policy is bound by which " + does +
			": install deploy/components/" + component)
	}
}
