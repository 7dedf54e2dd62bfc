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

var dryRun = metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}

// unmarked returns a ConfigMap that a confined controller cannot create.
func unmarked(namespace string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "mirror-controller-check"}}
}

// probeCopy asks whether the controller may create copies in a target. One namespace may refuse for reasons of its own,
// such as a quota.
func (k *checker) probeCopy(ctx context.Context) line {
	home := append(slices.Clone(k.settings.SourceNamespaces), k.settings.deployment.Namespace)[0]
	namespaces, err := (&snapshot.Reader{Client: k.as}).Namespaces(ctx)
	if err != nil {
		return refusal(err)
	}
	is, most := line{Result: resultNotProbed, Detail: "no namespace is a target yet"}, 3
	for _, target := range slices.Sorted(maps.Keys(namespaces)) {
		isTarget := k.Rules.Exclusion(plan.AnySource(), namespaces[target]) == plan.NotExcluded
		if target == home || !isTarget || most == 0 {
			continue
		}
		cm := k.Rules.Desired(k.Rules.ParseSource(unmarked(home)), target, nil)
		if _, err = k.as.CoreV1().ConfigMaps(target).Create(ctx, cm, dryRun); err == nil {
			return ok("the controller may create copies in namespace " + target)
		}
		is, most = refusal(err), most-1
	}
	return is
}

// probeConfined asks for what the two policies that confine the controller have to refuse.
func (k *checker) probeConfined(ctx context.Context) line {
	own := k.settings.deployment.Namespace
	event := &corev1.Event{
		ObjectMeta:          metav1.ObjectMeta{Name: "mirror-controller-check"},
		InvolvedObject:      corev1.ObjectReference{Kind: "ConfigMap", APIVersion: "v1", Namespace: own, Name: "any"},
		ReportingController: "another",
	}
	const aConfigMap, anEvent = "any ConfigMap in its namespace", "an Event of another reporter"
	_, byConfigMap := k.as.CoreV1().ConfigMaps(own).Create(ctx, unmarked(own), dryRun)
	_, byEvent := k.as.CoreV1().Events(own).Create(ctx, event, dryRun)
	return cmp.Or(k.unlessRefused(aConfigMap, byConfigMap), k.unlessRefused(anEvent, byEvent),
		ok("policies refuse the controller to create "+aConfigMap+", and "+anEvent))
}

// refusedAsConfined reports whether err is the refusal of the policy in deploy/components/admission/confined, whatever
// a kustomization adds to its name.
func refusedAsConfined(err error) bool {
	byPolicy, _ := regexp.MatchString(`ValidatingAdmissionPolicy '[^']*confined[^']*'`, err.Error())
	return byPolicy && apierrors.IsForbidden(err)
}

// refusal says that the API server refuses what the controller has to do, with the likely remedy.
func refusal(err error) line {
	switch text := err.Error(); {
	case strings.Contains(text, "cannot impersonate"):
		return unknown(fmt.Errorf("you may not impersonate the account of the controller: %w", err))
	case refusedAsConfined(err):
		return todo(text + followArguments)
	case strings.Contains(text, " cannot "):
		return todo(text + granted)
	default:
		return todo(text)
	}
}

// unlessRefused judges the answer to a request that a policy has to refuse. It returns no line if it does.
func (k *checker) unlessRefused(text string, answer error) line {
	switch {
	case answer == nil:
		return todo("the API server would let the controller create " + text + ": no policy confines it: install " +
			"deploy/components/admission again; its label and " + k.account() + " must be in the ClusterRoleBinding")
	case refusedAsConfined(answer):
		return line{}
	}
	return unknown(fmt.Errorf("asked for %s as the account of the controller, the answer was: %w", text, answer))
}

// bound returns a check that a policy is there, and bound.
func (k *checker) bound(part, does, component string) func(context.Context) line {
	return func(ctx context.Context) line {
		client := k.Client.AdmissionregistrationV1()
		list, err := client.ValidatingAdmissionPolicyBindings().List(ctx, metav1.ListOptions{})
		for _, b := range list.Items {
			if strings.Contains(b.Spec.PolicyName, part) && slices.Contains(b.Spec.ValidationActions, admissionv1.Deny) {
				_, err = client.ValidatingAdmissionPolicies().Get(ctx, b.Spec.PolicyName, metav1.GetOptions{})
				if err == nil {
					return ok(does)
				}
			}
		}
		if err != nil && !apierrors.IsNotFound(err) {
			return unknown(err)
		}
		return todo("no policy is bound by which " + does + ": install deploy/components/" + component)
	}
}

// probeProtected asks, by dry-run and as the user, to delete a copy in a target: only the policy refuses that to an
// admin. If RBAC refuses it, or there is no copy, the binding of the policy has to do.
func (k *checker) probeProtected(ctx context.Context) line {
	some := metav1.ListOptions{LabelSelector: k.Rules.Label() + "=" + plan.CopyValue, Limit: 10}
	copies, _ := k.as.CoreV1().ConfigMaps("").List(ctx, some)
	for _, cm := range copies.Items {
		at, o := k.Client.CoreV1().ConfigMaps(cm.Namespace), metav1.DeleteOptions{DryRun: dryRun.DryRun}
		ns, _ := k.as.CoreV1().Namespaces().Get(ctx, cm.Namespace, metav1.GetOptions{}) // on an error it has no name
		isProtected := k.Rules.Exclusion(plan.AnySource(), ns) == plan.NotExcluded && cm.DeletionTimestamp == nil
		if _, ours := k.Rules.SourceOf(&cm); ours && isProtected && at.Delete(ctx, cm.Name, o) == nil {
			return todo("the API server would let you delete copy " + cm.Namespace + "/" + cm.Name +
				": install deploy/components/protect-copies again")
		}
	}
	return k.bound("protected", "only the controller changes copies", "protect-copies")(ctx)
}
