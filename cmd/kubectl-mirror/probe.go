package main

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"regexp"
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
	}
}

// mostProbes is the number of targets in which probeCopy asks at most. One
// namespace may refuse for reasons of its own, such as a quota.
const mostProbes = 3

// probeCopy asks whether the controller may create copies in a target.
func (k *checker) probeCopy(ctx context.Context) finding {
	namespaces, err := (&snapshot.Reader{Client: k.asController}).Namespaces(ctx)
	if err != nil {
		return refusal(err)
	}
	// The copy has a source that need not exist, in the first namespace that
	// may have sources.
	home := append(slices.Clone(k.settings.SourceNamespaces), k.settings.deployment.Namespace)[0]
	last := finding{Result: resultNotProbed, Detail: "no namespace is a target yet"}
	probes := 0
	for _, target := range slices.Sorted(maps.Keys(namespaces)) {
		isTarget := k.Rules.Exclusion(plan.AnySource(), namespaces[target]) == plan.NotExcluded
		if target == home || !isTarget || probes == mostProbes {
			continue
		}
		cm := k.Rules.Desired(k.Rules.ParseSource(unmarked(home)), target, nil)
		_, err := k.asController.CoreV1().ConfigMaps(target).Create(ctx, cm, dryRun)
		if err == nil {
			return ok("the controller may create copies in namespace " + target)
		}
		last = refusal(err)
		probes++
	}
	return last
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
	core := k.asController.CoreV1()
	_, byConfigMap := core.ConfigMaps(own).Create(ctx, unmarked(own), dryRun)
	_, byEvent := core.Events(own).Create(ctx, event, dryRun)
	return cmp.Or(
		k.unlessRefused(aConfigMap, byConfigMap),
		k.unlessRefused(anEvent, byEvent),
		ok("policies refuse the controller to create "+aConfigMap+", and "+anEvent))
}

// unlessRefused judges the answer to a request that a policy has to refuse. It
// returns an empty finding if the policy does.
func (k *checker) unlessRefused(text string, answer error) finding {
	switch {
	case answer == nil:
		return todo("the API server would let the controller create " + text +
			": no policy confines it: install deploy/components/admission again; its label and " +
			k.account() + " must be in the ClusterRoleBinding")
	case refusedAsConfined(answer):
		return finding{}
	}
	return unknown(fmt.Errorf("asked for %s as the account of the controller, the answer was: %w",
		text, answer))
}

// refusedAsConfined reports whether err is the refusal of the policy in
// deploy/components/admission/confined, whatever a kustomization adds to its
// name.
func refusedAsConfined(err error) bool {
	byPolicy, _ := regexp.MatchString(`ValidatingAdmissionPolicy '[^']*confined[^']*'`, err.Error())
	return byPolicy && apierrors.IsForbidden(err)
}

// refusal judges the error of a request that the controller has to be allowed.
// The API server has no types for its causes, so the text has to do.
func refusal(err error) finding {
	text := err.Error()
	switch {
	case strings.Contains(text, "cannot impersonate"):
		return unknown(fmt.Errorf("you may not impersonate the account of the controller: %w", err))
	case refusedAsConfined(err):
		text += followArguments
	case strings.Contains(text, " cannot "): // RBAC: User "…" cannot create resource "…"
		text += grantThem
	}
	return todo(text)
}

// probeProtected asks, by dry-run and as the user, to delete a copy in a
// target: only the policy refuses that to an admin. If RBAC refuses it, or
// there is no copy, the binding of the policy has to do.
func (k *checker) probeProtected(ctx context.Context) finding {
	some := metav1.ListOptions{LabelSelector: k.Rules.Label() + "=" + plan.CopyValue, Limit: 10}
	core := k.asController.CoreV1()
	copies, _ := core.ConfigMaps("").List(ctx, some) // on an error there are none
	for _, cm := range copies.Items {
		// On an error the namespace has no name, and is no target.
		ns, _ := core.Namespaces().Get(ctx, cm.Namespace, metav1.GetOptions{})
		isTarget := k.Rules.Exclusion(plan.AnySource(), ns) == plan.NotExcluded
		_, ours := k.Rules.SourceOf(&cm)
		if !isTarget || !ours || cm.DeletionTimestamp != nil {
			continue
		}
		err := k.Client.CoreV1().ConfigMaps(cm.Namespace).
			Delete(ctx, cm.Name, metav1.DeleteOptions{DryRun: dryRun.DryRun})
		if err == nil {
			return todo("the API server would let you delete copy " + cm.Namespace + "/" + cm.Name +
				": install deploy/components/protect-copies again")
		}
	}
	return k.checkPolicy("protected", "only the controller changes copies", "protect-copies")(ctx)
}

// checkPolicy returns a check that a policy is there, and bound so that it
// denies. The policy is known by a part of its name, since a kustomization may
// add to the name. does is what holds with the policy, and component installs
// it.
func (k *checker) checkPolicy(part, does, component string) func(context.Context) finding {
	return func(ctx context.Context) finding {
		client := k.Client.AdmissionregistrationV1()
		bindings, err := client.ValidatingAdmissionPolicyBindings().List(ctx, metav1.ListOptions{})
		for _, b := range bindings.Items {
			denies := slices.Contains(b.Spec.ValidationActions, admissionv1.Deny)
			if !denies || !strings.Contains(b.Spec.PolicyName, part) {
				continue
			}
			_, err = client.ValidatingAdmissionPolicies().
				Get(ctx, b.Spec.PolicyName, metav1.GetOptions{})
			if err == nil {
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
