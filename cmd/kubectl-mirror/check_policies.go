package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// The policies of deploy/components. Their objects are named so behind the name of the installation.
const (
	policyConfined       = "confined"
	policyConfinedOthers = "confined-others"
	policyPublishers     = "publishers"
	policyProtected      = "protected-copies"
)

// shippedPolicies are all of them. A name that contains another comes first.
var shippedPolicies = []struct{ name, component, effect string }{
	{policyConfinedOthers, "admission", "the controller writes no Events and Leases but its own"},
	{policyConfined, "admission", "the controller writes no ConfigMaps but its copies"},
	{policyPublishers, "admission", "only holders of the verb mirror publish"},
	{policyProtected, "protect-copies", "only the controller changes copies"},
}

func policyNames() (names []string) {
	for _, p := range shippedPolicies {
		names = append(names, p.name)
	}
	slices.Sort(names)
	return names
}

// policyName returns which of the shipped policies this is, as kustomize or helm may have named it; empty if it is none.
func policyName(p *admissionv1.ValidatingAdmissionPolicy) string {
	if kind := p.Spec.ParamKind; kind == nil || kind.Kind != "ClusterRoleBinding" || !strings.HasPrefix(kind.APIVersion, rbacv1.GroupName+"/") {
		return ""
	}
	for _, s := range shippedPolicies {
		if strings.Contains(p.Name, "-"+s.name) {
			return s.name
		}
	}
	return ""
}

// expects reports whether a policy has to be in force. confined-others is expected together with confined.
func (f *facts) expects(name string) bool {
	return slices.Contains(f.expected, name) || name == policyConfinedOthers && slices.Contains(f.expected, policyConfined)
}

// policyLines tell of each policy that is expected or there.
func (f *facts) policyLines() (lines []checkLine) {
	judged := false // who forges a copy
	for _, s := range shippedPolicies {
		l, relevant := f.policyLine(s.name, s.component, s.effect, f.expects(s.name))
		inForce := relevant && l.Result == checkOK
		switch {
		case s.name == policyPublishers:
			judged = inForce
		case s.name == policyProtected && inForce && !judged:
			l = todo("install deploy/components/admission/publishers beside it",
				"without a policy publishers whoever forges a copy has it protected from everybody, too")
		}
		if relevant {
			lines = append(lines, l.named("policy/"+s.name))
		}
	}
	slices.SortFunc(lines, func(a, b checkLine) int { return strings.Compare(a.Check, b.Check) })
	return lines
}

// policyLine tells whether a policy is in force for the ClusterRoleBinding of the controller. It is relevant if the policy is
// expected, or selects the ClusterRoleBinding.
func (f *facts) policyLine(name, component, effect string, expected bool) (l checkLine, relevant bool) {
	for _, missing := range []string{f.policies.missing, f.policyBindings.missing, f.binding.missing} {
		if missing != "" {
			return notAllowed(missing), expected
		}
	}
	install := "install deploy/components/" + component
	b := f.binding.value
	if b == nil {
		return unknown("there is no ClusterRoleBinding"), expected
	}
	l = todo(install+", or leave "+strings.TrimSuffix(name, "-others")+" out of --policies", "there is no policy %s, by which %s", name, effect)
	for i := range f.policies.value {
		p := &f.policies.value[i]
		if policyName(p) != name {
			continue
		}
		bindings := f.bindingsOf(p)
		selecting := slices.DeleteFunc(slices.Clone(bindings), func(pb *admissionv1.ValidatingAdmissionPolicyBinding) bool { return !selectsBinding(pb, b) })
		switch {
		case len(selecting) > 0:
			found := judge(p, selecting)
			if relevant = true; found.Result == checkOK {
				return fine("%s: %s", p.Name, effect), true
			}
			l = found
		case relevant || f.ofAnother(bindings): // another policy has told, or it is that of another controller
		case len(bindings) == 0:
			l = todo(install, "nothing binds ValidatingAdmissionPolicy %s", p.Name)
		default:
			l = todo(fmt.Sprintf("give the label %s the value that it selects, or %s", installationLabel, install),
				"ValidatingAdmissionPolicyBinding %s does not select ClusterRoleBinding %s", bindings[0].Name, b.Name)
		}
	}
	return l, relevant || expected
}

// ofAnother reports whether bindings select another installation.
func (f *facts) ofAnother(bindings []*admissionv1.ValidatingAdmissionPolicyBinding) bool {
	return slices.ContainsFunc(bindings, func(pb *admissionv1.ValidatingAdmissionPolicyBinding) bool {
		return slices.ContainsFunc(f.others, func(b rbacv1.ClusterRoleBinding) bool { return selectsBinding(pb, &b) })
	})
}

func (f *facts) bindingsOf(p *admissionv1.ValidatingAdmissionPolicy) (out []*admissionv1.ValidatingAdmissionPolicyBinding) {
	for i := range f.policyBindings.value {
		if pb := &f.policyBindings.value[i]; pb.Spec.PolicyName == p.Name {
			out = append(out, pb)
		}
	}
	return out
}

// selectsBinding reports whether the policy takes the ClusterRoleBinding for its parameter.
func selectsBinding(pb *admissionv1.ValidatingAdmissionPolicyBinding, b *rbacv1.ClusterRoleBinding) bool {
	ref := pb.Spec.ParamRef
	switch {
	case ref == nil:
		return false
	case ref.Selector == nil:
		return ref.Name == b.Name
	}
	selector, err := metav1.LabelSelectorAsSelector(ref.Selector)
	return err == nil && selector.Matches(labels.Set(b.Labels))
}

// judge tells whether a policy that selects the controller's ClusterRoleBinding refuses what it is there to refuse. One
// binding that does is enough.
func judge(p *admissionv1.ValidatingAdmissionPolicy, bindings []*admissionv1.ValidatingAdmissionPolicyBinding) (l checkLine) {
	const compare = "compare it with deploy/components"
	if p.Spec.FailurePolicy != nil && *p.Spec.FailurePolicy != admissionv1.Fail {
		return todo(compare, "failurePolicy of ValidatingAdmissionPolicy %s is %s: what cannot be judged is let pass", p.Name, *p.Spec.FailurePolicy)
	}
	if checking := p.Status.TypeChecking; checking != nil && len(checking.ExpressionWarnings) > 0 {
		w := checking.ExpressionWarnings[0]
		text, _, _ := strings.Cut(strings.TrimSpace(w.Warning), "\n")
		return todo(compare, "the API server warns of ValidatingAdmissionPolicy %s: %s: %s", p.Name, w.FieldRef, text)
	}
	for _, pb := range bindings {
		if l = judgeBinding(pb); l.Result == checkOK {
			break
		}
	}
	return l
}

func judgeBinding(pb *admissionv1.ValidatingAdmissionPolicyBinding) checkLine {
	const compare = "compare it with deploy/components"
	action := pb.Spec.ParamRef.ParameterNotFoundAction
	switch {
	case !slices.Contains(pb.Spec.ValidationActions, admissionv1.Deny):
		return todo(compare, "validationActions of ValidatingAdmissionPolicyBinding %s are %v, without Deny: it refuses nothing", pb.Name, pb.Spec.ValidationActions)
	case pb.Spec.MatchResources != nil && narrows(pb.Spec.MatchResources):
		return todo(compare, "matchResources of ValidatingAdmissionPolicyBinding %s leave some ConfigMaps out", pb.Name)
	case action == nil || *action != admissionv1.AllowAction:
		return todo(compare, "parameterNotFoundAction of ValidatingAdmissionPolicyBinding %s is not Allow: without the ClusterRoleBinding it would refuse everybody", pb.Name)
	}
	return checkLine{Result: checkOK}
}

// narrows reports whether a binding judges less than its policy.
func narrows(m *admissionv1.MatchResources) bool {
	some := func(s *metav1.LabelSelector) bool { return s != nil && len(s.MatchLabels)+len(s.MatchExpressions) > 0 }
	return some(m.NamespaceSelector) || some(m.ObjectSelector) || len(m.ResourceRules)+len(m.ExcludeResourceRules) > 0
}

// selectedValue returns the value of the label by which the policies select, or what the manifests have.
func (f *facts) selectedValue() string {
	values := map[string]bool{}
	for _, pb := range f.policyBindings.value {
		if ref := pb.Spec.ParamRef; ref != nil && ref.Selector != nil && ref.Selector.MatchLabels[installationLabel] != "" {
			values[ref.Selector.MatchLabels[installationLabel]] = true
		}
	}
	if len(values) == 1 {
		for value := range maps.Keys(values) {
			return value
		}
	}
	return f.account.Name // as the chart has it, and by default the manifests
}
