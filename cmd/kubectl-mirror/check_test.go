package main

import (
	"errors"
	"fmt"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mirror-controller/mirror-controller/mirror/plan"
	"github.com/mirror-controller/mirror-controller/mirror/plan/plantest"
)

// confined returns what confines the controller of an installation: its ClusterRoleBinding, a policy, and the binding
// of that by a selector. No name has a word of what it is for.
func confined(installation string, conditions ...string) []metav1.Object {
	label := map[string]string{plan.Domain + "/installation": installation}
	objects := []metav1.Object{&rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: installation, Labels: label, Annotations: map[string]string{
			plan.Domain + "/namespace-prefix": "team-", plan.Domain + "/source-namespace": "platform",
		}},
		Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: installation, Name: "default"}},
	}}
	for i, condition := range conditions {
		name := fmt.Sprint(installation, "-", i)
		policy := &admissionv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}}
		policy.Spec.MatchConditions = []admissionv1.MatchCondition{{Name: condition}}
		binding := &admissionv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: name + "-bound"}}
		binding.Spec.PolicyName = name
		binding.Spec.ValidationActions = []admissionv1.ValidationAction{admissionv1.Deny}
		binding.Spec.ParamRef = &admissionv1.ParamRef{Selector: &metav1.LabelSelector{MatchLabels: label}}
		objects = append(objects, policy, binding)
	}
	return objects
}

// TestC90Check has admission that alters what the controller sends, in each way, or has another installation confined
// and not this one (case C89).
func TestC90Check(t *testing.T) {
	refusal := func(binding, text string) error {
		return errors.New("configmaps \"mirror-controller-check\" is forbidden: ValidatingAdmissionPolicy 'any' " +
			"with binding '" + binding + "' denied request: " + text)
	}
	// confine refuses as the policies of an installation do, and alters copies before.
	confine := func(installation string, alter func(*corev1.ConfigMap)) func(metav1.Object) error {
		return func(o metav1.Object) error {
			cm, isConfigMap := o.(*corev1.ConfigMap)
			_, isEvent := o.(*corev1.Event)
			switch {
			case isEvent:
				return refusal(installation+"-1-bound", "not your event")
			case !isConfigMap:
				return nil // a review
			case cm.Annotations[plan.CopyAnnotation] == "":
				return refusal(installation+"-0-bound", "no copy")
			}
			alter(cm)
			if len(cm.Finalizers) > 0 {
				return refusal(installation+"-0-bound", "finalizers that a mutating policy adds")
			}
			return nil
		}
	}
	unchanged := func(*corev1.ConfigMap) {}
	own := confined("mirror-system", "the-controller", "the-controller", "labelled-or-marked")
	theirs := confined("other", "the-controller", "the-controller", "labelled-or-marked", "marked")
	rows := []struct {
		title  string
		policy []metav1.Object
		alter  func(metav1.Object) error
		flags  string
	}{
		{"all is well", own, confine("mirror-system", unchanged), ""},
		{"data", own, confine("mirror-system", plantest.Data("key", "other")), ""},
		{"binaryData", own, confine("mirror-system", plantest.BinaryData("other", 1)), ""},
		{"immutable", own, confine("mirror-system", plantest.Immutable), ""},
		{"our keys", own, confine("mirror-system", plantest.Without("app.kubernetes.io/managed-by")), ""},
		{"finalizers, refused", own, confine("mirror-system", plantest.Finalizer), ""},
		{"finalizers", own[:1], func(o metav1.Object) error {
			o.SetFinalizers([]string{"example.com/keep"})
			return nil
		}, " --confined=false --publishers=false"},
		{"owners", own[:1], func(o metav1.Object) error {
			o.SetOwnerReferences([]metav1.OwnerReference{{Name: "any"}})
			return nil
		}, " --confined=false --publishers=false"},
		{"the policies of another installation", append(own[:1:1], theirs...), nil, " --protect-copies"},
	}
	file := goldenRows("check", "=== ")
	for _, row := range rows {
		t.Run(row.title, func(t *testing.T) {
			a := newAPI(t, append(installation(0), plantest.Namespace("team-a"))...)
			a.objects = append(a.objects, row.policy...)
			a.alter = row.alter
			code, stdout, stderr := a.run(t, "check"+row.flags)
			file.Row(t, fmt.Sprintf("=== %s\n%s%s%v\n", row.title, stdout, stderr, code))
		})
	}
	file.End(t, len(rows))
}
