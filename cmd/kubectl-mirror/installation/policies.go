package installation

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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

// addPolicies adds a line for each policy that is expected, or that selects the ClusterRoleBinding of the controller.
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

// inForce returns the name of the policy that selects the ClusterRoleBinding of the controller. The error says why it is not in force.
func (c *checker) inForce(s shipped) (name string, err error) {
	if err = cmp.Or(c.noPolicies, without(c.noBinding)); err != nil {
		return "", err
	}
	install := "install deploy/components/" + s.component
	err = todo(install+", or leave "+strings.TrimSuffix(s.name, "-others")+" out of --policies", "there is no policy %s, by which %s", s.name, s.effect)
	for _, p := range c.policies {
		if !s.isA(&p) {
			continue
		}
		bound := false
		for _, b := range c.policyBindings {
			if b.Spec.PolicyName != p.Name {
				continue
			}
			bound = true
			switch {
			case selects(&b, c.Binding.Name, c.Binding.Labels):
				name = p.Name
				if err = judge(&p, &b); err == nil {
					return name, nil
				}
			case name == "" && !c.selectsAny(&b):
				err = todo(fmt.Sprintf("give the label %s the value that it selects, or %s", Label, install),
					"ValidatingAdmissionPolicyBinding %s does not select ClusterRoleBinding %s", b.Name, c.Binding.Name)
			}
		}
		if name == "" && !bound {
			err = todo(install, "nothing binds ValidatingAdmissionPolicy %s", p.Name)
		}
	}
	return name, err
}

// selectsAny reports whether a policy binding selects any controller.
func (c *checker) selectsAny(b *admissionv1.ValidatingAdmissionPolicyBinding) bool {
	return slices.ContainsFunc(c.labelled(), func(of rbacv1.ClusterRoleBinding) bool {
		return selects(b, of.Name, of.Labels)
	})
}

// judge says why a policy does not refuse all that it is there to refuse.
func judge(p *admissionv1.ValidatingAdmissionPolicy, b *admissionv1.ValidatingAdmissionPolicyBinding) error {
	checking, absent, detail := p.Status.TypeChecking, b.Spec.ParamRef.ParameterNotFoundAction, ""
	switch {
	case p.Spec.FailurePolicy != nil && *p.Spec.FailurePolicy != admissionv1.Fail:
		detail = fmt.Sprintf("failurePolicy of ValidatingAdmissionPolicy %s is %s: it lets a request pass that it cannot judge", p.Name, *p.Spec.FailurePolicy)
	case checking != nil && len(checking.ExpressionWarnings) > 0:
		w := checking.ExpressionWarnings[0]
		text, _, _ := strings.Cut(strings.TrimSpace(w.Warning), "\n")
		detail = fmt.Sprintf("the API server warns of ValidatingAdmissionPolicy %s: %s: %s", p.Name, w.FieldRef, text)
	case !slices.Contains(b.Spec.ValidationActions, admissionv1.Deny):
		detail = fmt.Sprintf("validationActions of ValidatingAdmissionPolicyBinding %s are %v, without Deny: it refuses nothing", b.Name, b.Spec.ValidationActions)
	case b.Spec.MatchResources != nil && narrows(b.Spec.MatchResources):
		detail = fmt.Sprintf("matchResources of ValidatingAdmissionPolicyBinding %s leave some ConfigMaps out", b.Name)
	case absent == nil || *absent != admissionv1.AllowAction:
		detail = fmt.Sprintf("parameterNotFoundAction of ValidatingAdmissionPolicyBinding %s is not Allow: without the ClusterRoleBinding it would refuse everybody", b.Name)
	default:
		return nil
	}
	return todo("compare it with deploy/components", "%s", detail)
}

// narrows reports whether a binding judges less than its policy.
func narrows(m *admissionv1.MatchResources) bool {
	some := func(s *metav1.LabelSelector) bool { return s != nil && len(s.MatchLabels)+len(s.MatchExpressions) > 0 }
	return some(m.NamespaceSelector) || some(m.ObjectSelector) || len(m.ResourceRules)+len(m.ExcludeResourceRules) > 0
}
