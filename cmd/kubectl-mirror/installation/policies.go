package installation

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// shipped is a policy of deploy/components. Its objects are named so behind the name of the installation.
type shipped struct{ name, component, effect string }

var shippedPolicies = []shipped{
	{"confined", "admission", "the controller writes no ConfigMaps but its copies"},
	{"confined-others", "admission", "the controller writes no Events and Leases but its own"},
	{"publishers", "admission", "only holders of the verb mirror publish"},
	{"protected-copies", "protect-copies", "only the controller changes copies"},
}

// Policies returns the names of the policies that can be expected, sorted.
func Policies() (names []string) {
	for _, s := range shippedPolicies {
		names = append(names, s.name)
	}
	slices.Sort(names)
	return names
}

// isA reports whether a policy is the shipped one, as kustomize or helm may have named it.
func (s shipped) isA(p *admissionv1.ValidatingAdmissionPolicy) bool {
	kind := p.Spec.ParamKind
	return kind != nil && kind.Kind == "ClusterRoleBinding" && strings.Contains(p.Name, "-"+s.name) &&
		(s.name != "confined" || !strings.Contains(p.Name, "-confined-others"))
}

// expects reports whether a policy has to be in force. confined brings confined-others with it.
func (c *checker) expects(name string) bool {
	return slices.Contains(c.Policies, name) || name == "confined-others" && slices.Contains(c.Policies, "confined")
}

// addPolicies adds a line for each policy that is expected, or that is bound to the ClusterRoleBinding of the controller.
func (c *checker) addPolicies(r *Report) {
	judged := false // who forges a copy
	for _, s := range shippedPolicies {
		name, err := c.inForce(s)
		if name == "" && !c.expects(s.name) {
			continue
		}
		switch {
		case s.name == "publishers":
			judged = err == nil
		case s.name == "protected-copies" && err == nil && !judged:
			err = todo("install deploy/components/admission/publishers beside it",
				"without the policy publishers, this one protects forged copies, too")
		}
		r.add("policy/"+s.name, name+": "+s.effect, err)
	}
}

// inForce returns the name of the policy that is bound to the ClusterRoleBinding of the controller. The error says why it is not
// in force.
func (c *checker) inForce(s shipped) (name string, err error) {
	if err = cmp.Or(c.noPolicies, without(c.noBinding)); err != nil {
		return "", err
	}
	advice := fmt.Sprintf("install deploy/components/%s, give the label %s the value that the policy's binding selects, "+
		"or leave %s out of --policies", s.component, Label, strings.TrimSuffix(s.name, "-others"))
	err = todo(advice, "no policy is bound to ClusterRoleBinding %s by which %s", c.Binding.Name, s.effect)
	for _, b := range c.policyBindings {
		i := slices.IndexFunc(c.policies, func(p admissionv1.ValidatingAdmissionPolicy) bool { return p.Name == b.Spec.PolicyName })
		if i < 0 || !s.isA(&c.policies[i]) || !selects(&b, c.Binding) {
			continue
		}
		name = b.Spec.PolicyName
		if err = judge(&c.policies[i], &b); err == nil {
			return name, nil
		}
	}
	return name, err
}

// judge says why a policy does not refuse all that it is there to refuse.
func judge(p *admissionv1.ValidatingAdmissionPolicy, b *admissionv1.ValidatingAdmissionPolicyBinding) error {
	const advice = "compare it with deploy/components"
	switch checking, absent := p.Status.TypeChecking, b.Spec.ParamRef.ParameterNotFoundAction; {
	case !slices.Contains(b.Spec.ValidationActions, admissionv1.Deny):
		return todo(advice, "ValidatingAdmissionPolicyBinding %s refuses nothing: its validationActions lack Deny", b.Name)
	case p.Spec.FailurePolicy != nil && *p.Spec.FailurePolicy != admissionv1.Fail:
		return todo(advice, "ValidatingAdmissionPolicy %s lets a request pass that it cannot judge: its failurePolicy is not Fail", p.Name)
	case checking != nil && len(checking.ExpressionWarnings) > 0:
		w := checking.ExpressionWarnings[0]
		text, _, _ := strings.Cut(strings.TrimSpace(w.Warning), "\n")
		return todo(advice, "the API server warns of ValidatingAdmissionPolicy %s: %s: %s", p.Name, w.FieldRef, text)
	case absent == nil || *absent != admissionv1.AllowAction:
		return todo(advice, "without the ClusterRoleBinding, ValidatingAdmissionPolicyBinding %s refuses everybody: "+
			"its parameterNotFoundAction is not Allow", b.Name)
	case b.Spec.MatchResources != nil:
		return fmt.Errorf("matchResources narrow ValidatingAdmissionPolicyBinding %s, and may leave some objects out", b.Name)
	}
	return nil
}

// selects reports whether a policy binding takes the ClusterRoleBinding for its parameter.
func selects(b *admissionv1.ValidatingAdmissionPolicyBinding, of *rbacv1.ClusterRoleBinding) bool {
	ref := b.Spec.ParamRef
	switch {
	case ref == nil:
		return false
	case ref.Selector == nil:
		return ref.Name == of.Name
	}
	selector, err := metav1.LabelSelectorAsSelector(ref.Selector)
	return err == nil && selector.Matches(labels.Set(of.Labels))
}
