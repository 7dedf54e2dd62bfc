package installation

import (
	"context"
	"fmt"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/kubernetes"
)

// ProtectedPolicies end so, whatever release or overlay they are of.
const ProtectedPolicies = "-protected-copies"

// ProtectedBy returns the bindings of the policy that protects the copies of the controller from everybody else. Without permission to list
// them it returns none: a refused deletion names its binding, too.
func (in *Installation) ProtectedBy(ctx context.Context, client kubernetes.Interface) (names []string, err error) {
	if in.Binding == nil {
		return nil, nil // the policy protects nothing without its settings
	}
	list, err := client.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings().List(ctx, metav1.ListOptions{LabelSelector: DeploymentSelector})
	switch {
	case apierrors.IsForbidden(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("list ValidatingAdmissionPolicyBindings: %w", err)
	}
	for i := range list.Items {
		b := &list.Items[i]
		if strings.HasSuffix(b.Spec.PolicyName, ProtectedPolicies) && slices.Contains(b.Spec.ValidationActions, admissionv1.Deny) &&
			selects(b, in.Binding.Name, in.Binding.Labels) {
			names = append(names, b.Name)
		}
	}
	return names, nil
}

// selects reports whether a policy binding takes the ClusterRoleBinding of this name and with these labels for its parameter.
func selects(b *admissionv1.ValidatingAdmissionPolicyBinding, name string, of map[string]string) bool {
	ref := b.Spec.ParamRef
	switch {
	case ref == nil:
		return false
	case ref.Selector == nil:
		return ref.Name == name
	}
	selector, err := metav1.LabelSelectorAsSelector(ref.Selector)
	return err == nil && selector.Matches(labels.Set(of))
}
