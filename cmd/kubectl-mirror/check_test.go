package main

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// healthy returns the facts of an installation in which nothing is to do.
func healthy() *facts {
	account := types.NamespacedName{Namespace: "mirror-system", Name: "account"}
	binding := bindingOf("binding", "account", "namespace-prefix", "team-")
	binding.Labels = map[string]string{installationLabel: "ours"}
	d := deploymentOf("controller", "account", "--namespace-prefix=team-", "--leader-elect")
	d.Spec.Template.Spec.Containers[1].Image = "registry:5000/mirror-controller:v1.2.3"
	d.Status.UpdatedReplicas, d.Status.ReadyReplicas = 1, 1
	f := &facts{now: time.Unix(1700000000, 0), found: true, key: types.NamespacedName{Namespace: "mirror-system", Name: "controller"},
		account: account, expected: []string{policyConfined, policyPublishers}}
	f.binding.value, f.deployment.value, f.server.value = &binding, &d, "v1.37.2"
	f.process = optionsOf(&d, account.Namespace)
	f.lease.value = leaseOf("pod_1", f.now.Add(-15*time.Second))
	everywhere, atHome := f.process.needed(false)
	f.granted.value = grants{everywhere: ruleSets{own: everywhere}, atHome: ruleSets{own: atHome}}
	for _, name := range []string{policyConfined, policyConfinedOthers, policyPublishers} {
		p, b := policyOf("ours-"+name, "ours")
		f.policies.value, f.policyBindings.value = append(f.policies.value, p), append(f.policyBindings.value, b)
	}
	refused := apierrors.NewForbidden(schema.GroupResource{Resource: "configmaps"}, "x", errors.New("ValidatingAdmissionPolicy 'ours-confined' denied request"))
	f.probes.value = []probe{{"mirror-system", refused}, {"default", refused}}
	return f
}

func leaseOf(holder string, renewed time.Time) *coordinationv1.Lease {
	seconds, at := int32(15), metav1.NewMicroTime(renewed)
	return &coordinationv1.Lease{Spec: coordinationv1.LeaseSpec{HolderIdentity: &holder, RenewTime: &at, LeaseDurationSeconds: &seconds}}
}

// policyOf returns a policy and its binding, which selects an installation.
func policyOf(name, installation string) (admissionv1.ValidatingAdmissionPolicy, admissionv1.ValidatingAdmissionPolicyBinding) {
	allow := admissionv1.AllowAction
	p := admissionv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}}
	p.Spec.ParamKind = &admissionv1.ParamKind{APIVersion: "rbac.authorization.k8s.io/v1", Kind: "ClusterRoleBinding"}
	b := admissionv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: name}}
	b.Spec.PolicyName, b.Spec.ValidationActions = name, []admissionv1.ValidationAction{admissionv1.Deny}
	b.Spec.ParamRef = &admissionv1.ParamRef{ParameterNotFoundAction: &allow,
		Selector: &metav1.LabelSelector{MatchLabels: map[string]string{installationLabel: installation}}}
	return p, b
}

// with returns a change of the arguments of the Deployment.
func with(args ...string) func(f *facts) {
	return func(f *facts) {
		c := f.deployment.value.Spec.Template.Spec.Containers
		c[1].Args = append(c[1].Args, args...)
		f.process = optionsOf(f.deployment.value, f.account.Namespace)
	}
}

// known returns a change of the annotations, flags and values in turn.
func known(settings ...string) func(f *facts) {
	return func(f *facts) {
		for i := 0; i < len(settings); i += 2 {
			f.binding.value.Annotations[plan.Domain+"/"+settings[i]] = settings[i+1]
		}
	}
}

// TestCheck changes one thing at a time: one line tells, and the others are as before.
func TestCheck(t *testing.T) {
	defer func(before string) { stamp = before }(stamp)
	stamp = "v1.2.0"
	const wider, narrower, both = "the flag is wider", "the flag is narrower", "refuses some writes, and the policies allow others"
	secrets := rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"get"}}
	for name, test := range map[string]struct {
		change func(f *facts)
		want   []string // for each line that differs: its name, its result and a part of its text, with commas between
	}{
		"healthy":        {func(*facts) {}, nil},
		"not rolled out": {func(f *facts) { f.deployment.value.Generation = 1 }, []string{"deployment,to do,is not rolled out"}},
		"not ready":      {func(f *facts) { f.deployment.value.Status.ReadyReplicas = 0 }, []string{"deployment,to do,0 of 1 replicas of Deployment mirror-system/controller are ready"}},
		"scaled to 0":    {func(f *facts) { f.deployment.value.Spec.Replicas = new(int32) }, []string{"deployment,to do,has no replicas"}},
		"wrong argument": {with("--prune-limit=half"), []string{"arguments,to do,--prune-limit", "settings,not checked,invalid"}},
		"dry run":        {with("--dry-run"), []string{"arguments,ok,writes nothing", "leader,ok,there is none"}},
		"two without": {func(f *facts) {
			two := int32(2)
			f.deployment.value.Spec.Replicas = &two
			f.deployment.value.Status.UpdatedReplicas, f.deployment.value.Status.ReadyReplicas = 2, 2
			with("--leader-elect=false")(f)
		}, []string{"arguments,to do,all of the 2 replicas write", "permissions/needless,to do,leases"}},
		"Deployment unknown": {func(f *facts) {
			f.deployment = fact[*appsv1.Deployment]{missing: "get it"}
			f.process = optionsOf(nil, f.account.Namespace)
		}, []string{"deployment,not checked,get it", "arguments,not checked,get it", "leader,not checked,get it", "permissions/missing,not checked,get it",
			"permissions/needless,not checked,get it", "version/controller,not checked,get it", "settings,not checked,get it"}},
		"no lease":         {func(f *facts) { f.lease.value = nil }, []string{"leader,to do,there is no Lease mirror-system/mirror-controller"}},
		"lease given back": {func(f *facts) { f.lease.value = leaseOf("", f.now) }, []string{"leader,to do,nobody holds"}},
		"lease expired":    {func(f *facts) { f.lease.value = leaseOf("pod_1", f.now.Add(-17*time.Second)) }, []string{"leader,to do,pod held Lease mirror-system/mirror-controller and has not renewed it for 17s"}},
		"another lease":    {with("--leader-elect-resource-name=other"), []string{"permissions/missing,to do,get leases.coordination.k8s.io/other", "permissions/needless,to do,leases.coordination.k8s.io/mirror-controller", "settings/leader-elect-resource-name,to do," + wider}},
		"less":             {func(f *facts) { f.granted.value.everywhere.own = f.granted.value.everywhere.own[1:] }, []string{"permissions/missing,to do,may not get configmaps, list configmaps, watch configmaps and 3 more"}},
		"by everybody":     {func(f *facts) { e := &f.granted.value.everywhere; e.own, e.common = nil, append(e.own, secrets) }, nil},
		"more":             {func(f *facts) { e := &f.granted.value.everywhere; e.own = append(e.own, secrets) }, []string{"permissions/needless,to do,may get secrets, and does not need it"}},
		"old Kubernetes":   {func(f *facts) { f.server.value = "v1.29.3-eks-1" }, []string{"version/kubernetes,to do,has no ValidatingAdmissionPolicies"}},
		"1.34":             {func(f *facts) { f.server.value = "v1.34.1" }, nil},
		"1.38":             {func(f *facts) { f.server.value = "v1.38.0" }, nil},
		"other version":    {func(f *facts) { stamp = "v1.3.0" }, []string{"version/controller,to do,controller v1.2.3 and kubectl mirror v1.3.0 may decide differently"}},
		"digest":           {func(f *facts) { f.deployment.value.Spec.Template.Spec.Containers[1].Image = "a:v1@sha256:1" }, []string{"version/controller,not checked,controller (unknown)"}},

		"prefix wider":      {with("--namespace-prefix=dev-"), []string{"settings/namespace-prefix,to do," + wider}},
		"prefix narrower":   {known("namespace-prefix", "te"), []string{"settings/namespace-prefix,to do," + narrower}},
		"prefixes differ":   {known("namespace-prefix", "dev-"), []string{"settings/namespace-prefix,to do," + both}},
		"prefix in another": {with("--namespace-prefix=team-a"), nil},
		"all wanted": {func(f *facts) {
			f.deployment.value.Spec.Template.Spec.Containers[1].Args = []string{"--all-namespaces", "--leader-elect"}
			with()(f)
		}, []string{"settings/all-namespaces,to do," + wider, "settings/namespace-prefix,gone"}},
		"all known":    {known("namespace-prefix", "", "all-namespaces", "true"), []string{"settings/namespace-prefix,to do," + narrower}},
		"exclude more": {with("--exclude-namespace=kube-*,team-x"), []string{"settings/exclude-namespace,to do," + narrower}},
		"exclude less": {known("exclude-namespace", "kube-*,team-x*"), []string{"settings/exclude-namespace,to do," + wider}},
		"exclude the same": {func(f *facts) {
			with("--exclude-namespace=kube-*,team-x1")(f)
			known("exclude-namespace", "team-x1,kube-*")(f)
		}, nil},
		"label":             {with("--mirror-label=share"), []string{"settings/mirror-label,to do," + wider}},
		"instance":          {known("instance", "two"), []string{"settings/instance,to do," + wider}},
		"copy-label":        {func(f *facts) { with("--copy-label=a*")(f); known("copy-label", "ab")(f) }, []string{"settings/copy-label,to do," + wider}},
		"copy-annotation":   {known("copy-annotation", "x"), []string{"settings/copy-annotation,to do," + narrower}},
		"selector wider":    {known("namespace-selector", "team In red"), []string{"settings/namespace-selector,to do," + wider}},
		"selector narrower": {with("--namespace-selector=team in (red),!frozen"), []string{"settings/namespace-selector,to do," + narrower}},
		"selector implied": {func(f *facts) {
			with("--namespace-selector=team in (red)")(f)
			known("namespace-selector", "team Exists\nteam NotIn blue")(f)
		}, []string{"settings/namespace-selector,to do," + narrower}},
		"selectors differ": {func(f *facts) {
			with("--namespace-selector=team in (red,blue)")(f)
			known("namespace-selector", "team In blue,green")(f)
		}, []string{"settings/namespace-selector,to do," + both}},
		"same selector": {func(f *facts) {
			with("--namespace-selector=!frozen,team notin (red,blue),tier=a")(f)
			known("namespace-selector", "tier In a\nteam NotIn blue,red\nfrozen DoesNotExist")(f)
		}, nil},
		"malformed annotation": {known("namespace-selector", "team red"), []string{"settings,to do,must be a key"}},

		"no label": {func(f *facts) { f.binding.value.Labels = nil }, []string{"binding,to do,kubectl label clusterrolebinding binding " + installationLabel + "=ours",
			"policy/confined,to do,does not select", "policy/confined-others,to do,does not select", "policy/publishers,to do,does not select"}},
		"no policy": {func(f *facts) { f.policies.value = f.policies.value[1:] }, []string{"policy/confined,to do,there is no policy confined, by which the controller writes no ConfigMaps but its copies: install deploy/components/admission"}},
		"not bound": {func(f *facts) { f.policyBindings.value = f.policyBindings.value[:2] }, []string{"policy/publishers,to do,nothing binds ValidatingAdmissionPolicy ours-publishers"}},
		"audit only": {func(f *facts) {
			f.policyBindings.value[0].Spec.ValidationActions = []admissionv1.ValidationAction{"Audit"}
		}, []string{"policy/confined,to do,without Deny"}},
		"some only": {func(f *facts) {
			f.policyBindings.value[0].Spec.MatchResources = &admissionv1.MatchResources{ExcludeResourceRules: make([]admissionv1.NamedRuleWithOperations, 1)}
		}, []string{"policy/confined,to do,leave some ConfigMaps out"}},
		"denies":  {func(f *facts) { f.policyBindings.value[2].Spec.ParamRef.ParameterNotFoundAction = nil }, []string{"policy/publishers,to do,would refuse everybody"}},
		"ignores": {func(f *facts) { i := admissionv1.Ignore; f.policies.value[0].Spec.FailurePolicy = &i }, []string{"policy/confined,to do,failurePolicy"}},
		"warned": {func(f *facts) {
			f.policies.value[1].Status.TypeChecking = &admissionv1.TypeChecking{ExpressionWarnings: []admissionv1.ExpressionWarning{{FieldRef: "spec.x", Warning: "v1: ERROR\n more"}}}
		}, []string{"policy/confined-others,to do,the API server warns of ValidatingAdmissionPolicy ours-confined-others: spec.x: v1: ERROR"}},
		"of another": {func(f *facts) {
			p, b := policyOf("a-confined", "another")
			f.policies.value, f.policyBindings.value = append(f.policies.value, p), append(f.policyBindings.value, b)
		}, nil},
		"of another only": {func(f *facts) {
			other := bindingOf("other", "other")
			other.Labels = map[string]string{installationLabel: "another"}
			f.others = append(f.others, other)
			f.policyBindings.value[2].Spec.ParamRef.Selector.MatchLabels[installationLabel] = "another"
		}, []string{"policy/publishers,to do,there is no policy publishers"}},
		"one more": {func(f *facts) {
			p, b := policyOf("ours-protected-copies", "ours")
			b.Spec.ValidationActions = nil
			f.policies.value, f.policyBindings.value = append(f.policies.value, p), append(f.policyBindings.value, b)
		}, []string{"policy/protected-copies,to do,without Deny"}},
		"forged copies protected": {func(f *facts) {
			p, b := policyOf("ours-protected-copies", "ours")
			f.policies.value[2], f.policyBindings.value[2] = p, b
			f.expected = []string{policyConfined, policyProtected}
		}, []string{"policy/publishers,gone", "policy/protected-copies,to do,whoever forges a copy has it protected"}},
		"protected": {func(f *facts) {
			p, b := policyOf("ours-protected-copies", "ours")
			f.policies.value, f.policyBindings.value = append(f.policies.value, p), append(f.policyBindings.value, b)
		}, nil},
		"none expected": {func(f *facts) { f.expected, f.policies.value = nil, nil }, []string{"policy/confined,gone", "policy/confined-others,gone", "policy/publishers,gone", "probe/elsewhere,gone", "probe/unmarked,gone"}},

		"probe allowed": {func(f *facts) { f.probes.value[1].err = nil }, []string{"probe/elsewhere,to do,no policy confines it"}},
		"probe unclear": {func(f *facts) { f.probes.value[0].err = errors.New("away") }, []string{"probe/unmarked,not checked,the answer was: away"}},
	} {
		t.Run(name, func(t *testing.T) {
			stamp = "v1.2.0"
			before := byName(healthy().lines())
			f := healthy()
			test.change(f)
			after := byName(f.lines())
			for _, want := range test.want {
				parts := strings.SplitN(want, ",", 3)
				line, there := after[parts[0]]
				if text := line.Detail + ": " + line.Advice; len(parts) == 2 && there || len(parts) == 3 && (line.Result != parts[1] || !strings.Contains(text, parts[2])) {
					t.Errorf("%s: %s: %s\nwant %s", parts[0], line.Result, text, want)
				}
				delete(after, parts[0])
				delete(before, parts[0])
			}
			for check, l := range after {
				if l.Result != checkOK {
					t.Errorf("%s: %s: %s", check, l.Result, l.Detail)
				}
			}
			for check := range before {
				if _, there := after[check]; !there && !strings.HasPrefix(check, "settings/") {
					t.Errorf("%s: is missing", check)
				}
			}
		})
	}
}

func byName(lines []checkLine) map[string]checkLine {
	out := map[string]checkLine{}
	for _, l := range lines {
		out[l.Check] = l
	}
	return out
}

// TestCheckVersions holds the versions of Kubernetes to those that deploy/docs/install.md supports.
func TestCheckVersions(t *testing.T) {
	content, err := os.ReadFile("../../deploy/docs/install.md")
	if err != nil {
		t.Fatal(err)
	}
	var oldest, newest string
	for _, row := range regexp.MustCompile(`(?m)^\| 1\.(\d+) \| supported`).FindAllStringSubmatch(string(content), -1) {
		if newest == "" {
			newest = row[1]
		}
		oldest = row[1]
	}
	if oldest != fmt.Sprint(oldestTested) || newest != fmt.Sprint(newestTested) || !strings.Contains(string(content), fmt.Sprintf("| before 1.%d |", oldestPolicies)) {
		t.Errorf("deploy/docs/install.md supports 1.%s to 1.%s, or says something else of policies", oldest, newest)
	}
}
