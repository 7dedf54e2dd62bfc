package installation

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/mirror-controller/mirror-controller/mirror"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// world is a cluster with an installation.
type world struct {
	options    CheckOptions
	binding    *rbacv1.ClusterRoleBinding
	deployment *appsv1.Deployment
	lease      *coordinationv1.Lease
	lacks      []string // permissions of the account, such as "get configmaps"
	also       []string // what else it may
	policies   []*admissionv1.ValidatingAdmissionPolicy
	bound      []*admissionv1.ValidatingAdmissionPolicyBinding
	others     []runtime.Object
	refused    map[string]bool  // what the user may not do, such as "list configmaps"
	probes     map[string]error // answers to the probes by namespace
}

// healthy returns an installation in which nothing is to do.
func healthy() *world {
	binding := bindingOf("binding", "account", "namespace-prefix", "team-")
	binding.Labels = map[string]string{Label: "ours"}
	d := deploymentOf("controller", "account", "--namespace-prefix=team-", "--leader-elect")
	d.Labels = map[string]string{"app.kubernetes.io/name": "mirror-controller"}
	d.Spec.Template.Spec.Containers[1].Image = "registry:5000/mirror-controller:v1.2.3"
	d.Status.UpdatedReplicas, d.Status.ReadyReplicas = 1, 1
	w := &world{binding: &binding, deployment: &d, lease: leaseOf("pod_1", time.Now()),
		options: CheckOptions{Policies: []string{"confined", "publishers"}, Probes: true, Version: "v1.2.0"}}
	for _, name := range []string{"confined", "confined-others", "publishers"} {
		w.addPolicy("ours-"+name, "ours")
	}
	refused := apierrors.NewForbidden(schema.GroupResource{Resource: "configmaps"}, "x", errors.New("ValidatingAdmissionPolicy 'ours-confined' denied request"))
	w.probes = map[string]error{"mirror-system": refused, "default": refused}
	return w
}

func leaseOf(holder string, renewed time.Time) *coordinationv1.Lease {
	seconds, at := int32(15), metav1.NewMicroTime(renewed)
	return &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "mirror-system", Name: "mirror-controller"},
		Spec: coordinationv1.LeaseSpec{HolderIdentity: &holder, RenewTime: &at, LeaseDurationSeconds: &seconds}}
}

// addPolicy adds a policy and its binding, which selects an installation.
func (w *world) addPolicy(name, installation string) (*admissionv1.ValidatingAdmissionPolicy, *admissionv1.ValidatingAdmissionPolicyBinding) {
	p := &admissionv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}}
	p.Spec.ParamKind = &admissionv1.ParamKind{APIVersion: "rbac.authorization.k8s.io/v1", Kind: "ClusterRoleBinding"}
	b := &admissionv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: name}}
	b.Spec.PolicyName, b.Spec.ValidationActions = name, []admissionv1.ValidationAction{admissionv1.Deny}
	b.Spec.ParamRef = &admissionv1.ParamRef{ParameterNotFoundAction: new(admissionv1.AllowAction),
		Selector: &metav1.LabelSelector{MatchLabels: map[string]string{Label: installation}}}
	w.policies, w.bound = append(w.policies, p), append(w.bound, b)
	return p, b
}

// client returns a client of the world. The API server refuses some requests, and answers the probes.
func (w *world) client() *fake.Clientset {
	objects := slices.Clone(w.others)
	if w.binding != nil {
		objects = append(objects, w.binding)
	}
	if w.deployment != nil {
		objects = append(objects, w.deployment)
	}
	if w.lease != nil {
		objects = append(objects, w.lease)
	}
	for _, p := range w.policies {
		objects = append(objects, p)
	}
	for _, b := range w.bound {
		objects = append(objects, b)
	}
	client := fake.NewClientset(objects...)
	client.PrependReactor("*", "*", func(a clienttesting.Action) (bool, runtime.Object, error) {
		r := a.GetResource()
		if w.refused[a.GetVerb()+" "+r.Resource] {
			return true, nil, apierrors.NewForbidden(r.GroupResource(), "", fmt.Errorf("User %q cannot %s resource %q in API group %q at the cluster scope",
				"you", a.GetVerb(), r.Resource, r.Group))
		}
		if a.Matches("create", "configmaps") {
			return true, &corev1.ConfigMap{}, w.probes[a.GetNamespace()]
		}
		if a.Matches("create", "subjectaccessreviews") {
			return true, w.review(a.(clienttesting.CreateAction).GetObject().(*authorizationv1.SubjectAccessReview)), nil
		}
		return false, nil, nil
	})
	return client
}

// review answers whether the account has a permission. It lacks some, and all that the controller does not need.
func (w *world) review(r *authorizationv1.SubjectAccessReview) *authorizationv1.SubjectAccessReview {
	p := r.Spec.ResourceAttributes
	needed := (&Process{Options: mirror.NewOptions(), LeaderElect: true, LeaseNamespace: "mirror-system", LeaseName: "mirror-controller"}).needed()
	r.Status.Allowed = r.Spec.User == "system:serviceaccount:mirror-system:account" && slices.Contains(r.Spec.Groups, "system:serviceaccounts") &&
		(slices.ContainsFunc(needed, func(n authorizationv1.ResourceAttributes) bool { return reflect.DeepEqual(*p, n) }) ||
			slices.Contains(w.also, p.Verb+" "+p.Resource)) &&
		!slices.Contains(w.lacks, p.Verb+" "+p.Resource)
	return r
}

func (w *world) check(t *testing.T) *Report {
	t.Helper()
	w.options.Client = w.client()
	w.options.As = func(user string) (kubernetes.Interface, error) {
		if want := "system:serviceaccount:mirror-system:account"; user != want {
			t.Errorf("asked as %s, want %s", user, want)
		}
		return w.options.Client, nil
	}
	r, err := Check(t.Context(), w.options)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// refuse returns a change after which the user may not do this.
func refuse(actions ...string) func(*world) {
	return func(w *world) {
		w.refused = map[string]bool{}
		for _, action := range actions {
			w.refused[action] = true
		}
	}
}

// with returns a change of the arguments of the Deployment.
func with(args ...string) func(*world) {
	return func(w *world) {
		c := &w.deployment.Spec.Template.Spec.Containers[1]
		c.Args = append(c.Args, args...)
	}
}

// annotate returns a change of the annotations, flags and values in turn.
func annotate(settings ...string) func(*world) {
	return func(w *world) {
		for i := 0; i < len(settings); i += 2 {
			w.binding.Annotations[plan.Domain+"/"+settings[i]] = settings[i+1]
		}
	}
}

// TestCheck changes one thing at a time: some lines tell, and the others are ok as before.
func TestCheck(t *testing.T) {
	const (
		noRoles      = `not checked,you may not list resource "clusterrolebindings" in API group "rbac.authorization.k8s.io"`
		noDeployment = `not checked,you may not list resource "deployments" in API group "apps"`
		noPolicies   = `not checked,you may not list resource "validatingadmissionpolicies"`
		notDeployed  = "not checked,no Deployment runs as ServiceAccount mirror-system/account"
		notBound     = "to do,no policy is bound to ClusterRoleBinding binding by which "
	)
	impersonation := apierrors.NewForbidden(schema.GroupResource{Resource: "configmaps"}, "", errors.New(
		`User "you" cannot impersonate-on:serviceaccount:create resource "configmaps" in API group "" in the namespace "mirror-system"`))
	const noBinding = "no ClusterRoleBinding with the label " + Label + " names ServiceAccount mirror-system/account"
	unbound := []string{"binding,to do," + noBinding, "settings,not checked," + noBinding, "policy/confined,not checked," + noBinding,
		"policy/confined-others,not checked," + noBinding, "policy/publishers,not checked," + noBinding}
	for name, test := range map[string]struct {
		change func(w *world)
		code   int
		want   []string // for each line that differs: its name, its result and a part of its text, with commas between
	}{
		"healthy":        {func(*world) {}, 0, nil},
		"not rolled out": {func(w *world) { w.deployment.Generation = 1 }, 1, []string{"deployment,to do,is not rolled out"}},
		"not updated":    {func(w *world) { w.deployment.Status.UpdatedReplicas = 0 }, 1, []string{"deployment,to do,0 of 1 replicas are up to date"}},
		"not ready":      {func(w *world) { w.deployment.Status.ReadyReplicas = 0 }, 1, []string{"deployment,to do,0 of 1 replicas of Deployment mirror-system/controller are ready"}},
		"scaled to 0":    {func(w *world) { w.deployment.Spec.Replicas = new(int32) }, 1, []string{"deployment,to do,has no replicas"}},
		"wrong argument": {with("--prune=half"), 1, []string{"arguments,to do,--prune", "leader,not checked,--prune",
			"permissions,not checked,--prune", "settings,not checked,--prune", "probe/elsewhere,gone"}},
		"two without": {func(w *world) {
			w.deployment.Spec.Replicas = new(int32(2))
			w.deployment.Status.UpdatedReplicas, w.deployment.Status.ReadyReplicas, w.lease = 2, 2, nil
			with("--leader-elect=false")(w)
		}, 1, []string{"arguments,to do,all of the 2 replicas write"}},
		"Deployment unknown": {refuse("list deployments"), 2, []string{"deployment," + noDeployment, "arguments," + noDeployment, "leader," + noDeployment,
			"permissions," + noDeployment, "settings," + noDeployment, "version," + noDeployment, "probe/elsewhere,gone"}},
		"no Deployment": {func(w *world) { w.deployment = nil }, 1, []string{"deployment,to do,install it as", "arguments," + notDeployed, "leader," + notDeployed,
			"permissions," + notDeployed, "settings," + notDeployed, "version," + notDeployed, "probe/elsewhere,gone"}},
		"named without label": {func(w *world) { w.options.Controller, w.deployment.Labels = "mirror-system/controller", nil }, 0, nil},
		"named account":       {func(w *world) { w.options.Controller = "mirror-system/account" }, 0, nil},

		"no lease":         {func(w *world) { w.lease = nil }, 1, []string{"leader,to do,nobody holds Lease mirror-system/mirror-controller: nothing is mirrored"}},
		"lease given back": {func(w *world) { w.lease = leaseOf("", time.Now()) }, 1, []string{"leader,to do,nobody holds"}},
		"lease expired": {func(w *world) { w.lease = leaseOf("pod_1", time.Now().Add(-17*time.Second)) }, 1,
			[]string{"leader,to do,pod held Lease mirror-system/mirror-controller, and nobody has renewed it since "}},
		"another lease": {with("--leader-elect-resource-name=other"), 1, []string{"leader,to do,nobody holds", "permissions,to do,may not get leases/other in namespace mirror-system, update leases/other in",
			`settings/leader-elect-resource-name,to do,the flag has "other"`, "settings,gone"}},

		"less":            {func(w *world) { w.lacks = []string{"delete configmaps", "create leases"} }, 1, []string{"permissions,to do,may not delete configmaps, create leases in namespace mirror-system: grant it"}},
		"more":            {func(w *world) { w.also = []string{"list secrets"} }, 1, []string{"permissions,to do,may list secrets, and does not need that: bind only"}},
		"reviews refused": {refuse("create subjectaccessreviews"), 2, []string{`permissions,not checked,you may not create resource "subjectaccessreviews"`}},

		"other version": {func(w *world) { w.options.Version = "v1.3.0" }, 1, []string{"version,to do,controller v1.2.3 and kubectl mirror v1.3.0 may decide differently"}},
		"no release":    {func(w *world) { w.options.Version = "devel" }, 0, []string{"version,ok,not both have the version of a release"}},
		"digest":        {func(w *world) { w.deployment.Spec.Template.Spec.Containers[1].Image = "a:v1@sha256:1" }, 0, []string{"version,ok,controller (unknown)"}},

		"flag differs": {with("--namespace-prefix=dev-"), 1, []string{"settings,gone", `settings/namespace-prefix,to do,the flag has "dev-,team-", and the annotation "team-": ` +
			"the API server may refuse writes, or allow others: kubectl annotate --overwrite clusterrolebinding binding mirror-controller.github.io/namespace-prefix=dev-,team-"}},
		"two flags differ": {annotate("copy-label", "x", "instance", "two"), 1, []string{"settings,gone", "settings/copy-label,to do,kubectl annotate clusterrolebinding binding mirror-controller.github.io/copy-label-",
			"settings/instance,to do,two"}},
		"prune differs": {with("--prune"), 1, []string{"settings,gone", `settings/prune,to do,the flag has "true", and the annotation "false": ` +
			"the API server may refuse writes, or allow others: kubectl annotate --overwrite clusterrolebinding binding mirror-controller.github.io/prune=true"}},
		"malformed prune": {annotate("prune", "1"), 1, []string{`settings/prune,to do,the flag has "false", and the annotation "1"`, "settings,gone"}},
		"same selector": {func(w *world) {
			with("--namespace-selector=!frozen,team notin (red,blue),tier=a", "--exclude-namespace=b,a")(w)
			annotate("namespace-selector", "tier In a\nteam NotIn blue,red\nfrozen DoesNotExist", "exclude-namespace", "a,b")(w)
		}, 0, nil},
		"no settings":          {func(w *world) { w.binding.Annotations = nil }, 1, []string{`settings/namespace-prefix,to do,the flag has "team-", and the annotation ""`, "settings,gone"}},
		"malformed annotation": {annotate("namespace-selector", "team red"), 1, []string{`settings/namespace-selector,to do,the flag has "", and the annotation "team red"`, "settings,gone"}},

		"no label":   {func(w *world) { w.binding.Labels = nil }, 1, unbound},
		"no binding": {func(w *world) { w.binding = nil }, 1, unbound},
		"binding unknown": {refuse("list clusterrolebindings"), 2, []string{"binding," + noRoles, "settings," + noRoles, "policy/confined," + noRoles,
			"policy/confined-others," + noRoles, "policy/publishers," + noRoles}},
		"policies unknown": {refuse("list validatingadmissionpolicies"), 2, []string{"policy/confined," + noPolicies, "policy/confined-others," + noPolicies, "policy/publishers," + noPolicies}},
		"no policy": {func(w *world) { w.policies = w.policies[1:] }, 1, []string{"policy/confined," + notBound + "the controller writes no ConfigMaps but its copies: install deploy/components/admission, give the label " +
			Label + " the value that the policy's binding selects, or leave confined out of --policies"}},
		"not bound":  {func(w *world) { w.bound = w.bound[:2] }, 1, []string{"policy/publishers," + notBound}},
		"audit only": {func(w *world) { w.bound[0].Spec.ValidationActions = []admissionv1.ValidationAction{"Audit"} }, 1, []string{"policy/confined,to do,lack Deny"}},
		"narrowed": {func(w *world) {
			w.bound[0].Spec.MatchResources = &admissionv1.MatchResources{NamespaceSelector: &metav1.LabelSelector{}}
		}, 2,
			[]string{"policy/confined,not checked,matchResources narrow"}},
		"denies":  {func(w *world) { w.bound[2].Spec.ParamRef.ParameterNotFoundAction = nil }, 1, []string{"policy/publishers,to do,refuses everybody"}},
		"ignores": {func(w *world) { w.policies[0].Spec.FailurePolicy = new(admissionv1.Ignore) }, 1, []string{"policy/confined,to do,failurePolicy"}},
		"warned": {func(w *world) {
			w.policies[1].Status.TypeChecking = &admissionv1.TypeChecking{ExpressionWarnings: []admissionv1.ExpressionWarning{{FieldRef: "spec.x", Warning: "v1: ERROR\n more"}}}
		}, 1, []string{"policy/confined-others,to do,the API server warns of ValidatingAdmissionPolicy ours-confined-others: spec.x: v1: ERROR"}},
		"of another": {func(w *world) { w.addPolicy("a-confined", "another") }, 0, nil},
		"audit only, and of another": {func(w *world) {
			w.bound[0].Spec.ValidationActions = nil
			w.addPolicy("z-confined", "another")
		}, 1, []string{"policy/confined,to do,lack Deny"}},
		"of somebody else": {func(w *world) {
			w.policies, w.bound = w.policies[1:], w.bound[1:]
			p, _ := w.addPolicy("a-confined", "another")
			p.Spec.ParamKind.Kind = "ConfigMap"
		}, 1, []string{"policy/confined," + notBound}},
		"of another only": {func(w *world) {
			other := bindingOf("other", "other")
			other.Labels = map[string]string{Label: "another"}
			w.others, w.options.Controller = append(w.others, &other), "mirror-system/controller"
			w.bound[2].Spec.ParamRef.Selector.MatchLabels[Label] = "another"
		}, 1, []string{"policy/publishers," + notBound}},
		"two bindings": {func(w *world) {
			more := w.bound[0].DeepCopy()
			more.Name, more.Spec.ValidationActions = "z", nil
			w.bound = append(w.bound, more)
		}, 0, nil},
		"one more, not in force": {func(w *world) {
			_, b := w.addPolicy("ours-protected-copies", "ours")
			b.Spec.ValidationActions = nil
		}, 1, []string{"policy/protected-copies,to do,lack Deny"}},
		"forged copies protected": {func(w *world) {
			w.policies, w.bound = w.policies[:2], w.bound[:2]
			w.addPolicy("ours-protected-copies", "ours")
			w.options.Policies = []string{"confined", "protected-copies"}
		}, 1, []string{"policy/publishers,gone", "policy/protected-copies,to do,this one protects forged copies"}},
		"protected": {func(w *world) { w.addPolicy("ours-protected-copies", "ours") }, 0, nil},
		"none expected": {func(w *world) { w.options.Policies, w.policies = nil, nil }, 0, []string{"policy/confined,gone", "policy/confined-others,gone", "policy/publishers,gone",
			"probe/elsewhere,gone", "probe/unmarked,gone"}},

		"probe allowed":    {func(w *world) { w.probes["default"] = nil }, 1, []string{"probe/elsewhere,to do,would let the controller create a copy in namespace default, which is no target: no policy confines it"}},
		"probe unclear":    {func(w *world) { w.probes["mirror-system"] = errors.New("away") }, 2, []string{"probe/unmarked,not checked,the answer was: away"}},
		"no impersonation": {func(w *world) { w.probes["mirror-system"] = impersonation }, 2, []string{"probe/unmarked,not checked,you may not impersonate-on:serviceaccount:create", "probe/elsewhere,gone"}},
		"account may not": {func(w *world) {
			w.probes["mirror-system"] = apierrors.NewForbidden(schema.GroupResource{Resource: "configmaps"}, "", errors.New("User cannot create"))
		}, 2, []string{"probe/unmarked,not checked,the answer was"}},
		"no probes": {func(w *world) { w.options.Probes = false }, 0, []string{"probe/unmarked,gone", "probe/elsewhere,gone"}},
		"default is a target": {func(w *world) {
			with("--namespace-prefix=default")(w)
			annotate("namespace-prefix", "team-,default")(w)
			w.probes["kube-system"] = w.probes["default"]
		}, 0, []string{"probe/elsewhere,ok,namespace kube-system"}},
	} {
		t.Run(name, func(t *testing.T) {
			before := healthy().check(t)
			w := healthy()
			test.change(w)
			r := w.check(t)
			if r.ExitCode() != test.code || r.OK != (test.code == 0) || r.Controller == "" {
				t.Errorf("exit code %d, ok is %v, controller %q", r.ExitCode(), r.OK, r.Controller)
			}
			lines, want := byName(r), byName(before)
			for _, change := range test.want {
				parts := strings.SplitN(change, ",", 3)
				line, there := lines[parts[0]]
				if text := line.Detail + ": " + line.Advice; len(parts) == 2 && there || len(parts) == 3 && (line.Result != parts[1] || !strings.Contains(text, parts[2])) {
					t.Errorf("%s: %s: %s\nwant %s", parts[0], line.Result, text, change)
				}
				delete(lines, parts[0])
				delete(want, parts[0])
			}
			for check, l := range lines {
				if delete(want, check); l.Result != ResultOK {
					t.Errorf("%s: %s: %s", check, l.Result, l.Detail)
				}
			}
			for check := range want {
				t.Errorf("%s: is missing", check)
			}
		})
	}
}

func byName(r *Report) map[string]Line {
	out := map[string]Line{}
	for _, l := range r.Checks {
		out[l.Check] = l
	}
	return out
}

// TestCheckFindsNothing has no installation that the user can see: one line says so.
func TestCheckFindsNothing(t *testing.T) {
	for name, test := range map[string]struct {
		change func(w *world)
		code   int
		want   string
	}{
		"none":   {func(w *world) { w.binding, w.deployment = nil, nil }, 1, "there is no controller: no ClusterRoleBinding has the label"},
		"hidden": {refuse("list clusterrolebindings", "list deployments"), 2, `you may not list resource "clusterrolebindings"`},
		"hidden named": {func(w *world) {
			refuse("list clusterrolebindings", "get deployments", "list deployments")(w)
			w.options.Controller = "mirror-system/controller"
		}, 2, `you may not list resource "clusterrolebindings"`},
	} {
		w := healthy()
		test.change(w)
		r := w.check(t)
		if len(r.Checks) != 1 || r.Checks[0].Check != "controller" || !strings.HasPrefix(r.Checks[0].Detail, test.want) || r.ExitCode() != test.code {
			t.Errorf("%s: got exit code %d and %+v", name, r.ExitCode(), r.Checks)
		}
	}
	w := healthy()
	if _, err := Check(t.Context(), CheckOptions{Client: w.client(), Controller: "mirror-system/other"}); err == nil ||
		!strings.Contains(err.Error(), "no such controller, must be one of: mirror-system/controller") {
		t.Errorf("got error %v", err)
	}
}
