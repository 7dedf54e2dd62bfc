package plugin

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mirror-controller/mirror-controller/e2e/cluster"
	"github.com/mirror-controller/mirror-controller/e2e/policies"
	"github.com/mirror-controller/mirror-controller/e2e/shipped"
	"github.com/mirror-controller/mirror-controller/e2e/suite"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// installChecked installs a kustomization above the shipped one, and runs its controller.
func installChecked(t *testing.T) (*Installed, *shipped.Process) {
	t.Helper()
	w := NewInstalled(t, "checked", "a")
	var patches strings.Builder
	for flag, value := range map[string]string{"mirror-label": w.Label, "instance": w.Instance} {
		patches.WriteString(policies.AddFlag("-", "--"+flag+"="+value) + policies.Setting(flag, value))
	}
	prefixes := w.Prefix + ",dev-"
	m, err := RenderExample(t, "resources: [deploy/default]\nnamespace: "+w.Namespace+"\nnamePrefix: "+w.Namespace+"-\npatches:\n"+
		policies.SetFlag("--namespace-prefix="+prefixes)+policies.Setting("namespace-prefix", prefixes)+patches.String())
	if err != nil {
		t.Fatal(err)
	}
	// A label of its own, so that its policies judge nobody else.
	for _, o := range m {
		if strings.HasPrefix(o.GetKind(), "ValidatingAdmissionPolicy") {
			o.SetNamespace("") // kustomize does not know that they have none; kubectl takes it off
		}
		switch o.GetKind() {
		case "ClusterRoleBinding":
			o.SetLabels(map[string]string{suite.InstallationLabel: w.FullName})
		case "ValidatingAdmissionPolicyBinding":
			if _, found, _ := unstructured.NestedMap(o.Object, "spec", "paramRef"); found {
				err = errors.Join(err, unstructured.SetNestedField(o.Object, w.FullName, "spec", "paramRef", "selector", "matchLabels", suite.InstallationLabel))
			}
		}
	}
	if err := errors.Join(err, m.Apply(w.Context(), w.Cluster.Admin())); err != nil {
		t.Fatal(err)
	}
	w.Until("the controller is confined", func() error {
		return policies.InForce(w.FullName+"-confined", w.Probe(w.Account, metav1.NamespaceDefault))
	})
	return w, w.StartChecked()
}

// untilLines waits for an answer that has these lines: other tests install policies and take them out meanwhile, and the API
// server does not notice at once.
func (w *Installed) untilLines(want ...string) {
	w.Helper()
	w.Until("check has "+want[0], func() error {
		got := w.Checked(w.Cluster.AdminKubeconfig())
		if missing := got.lacks(want...); got.code != 1 || len(missing) > 0 {
			return fmt.Errorf("got exit code %d and\n%s\nwant 1 and\n%s", got.code, got.out, strings.Join(missing, "\n"))
		}
		return nil
	})
}

// patchBinding changes the ClusterRoleBinding of the controller.
func (w *Installed) patchBinding(patch string) {
	w.Helper()
	_, err := w.Admin.RbacV1().ClusterRoleBindings().Patch(w.Context(), w.FullName, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	if err != nil {
		w.Fatal(err)
	}
}

// TestKubectlCheck has an installation in which all is well, and then one thing after the other is not.
func TestKubectlCheck(t *testing.T) {
	t.Parallel()
	w, p := installChecked(t)
	admin := w.Cluster.AdminKubeconfig()
	expect(w.World, w.Checked(admin), 0, shown(t, "check"))
	expectError(w.World, mirrorAs(w.World, admin, "check"), "choose one with --controller")
	expectError(w.World, w.Checked(admin, "--instance=two"), "--instance: check compares what is installed")

	w.Report(func(s *appsv1.DeploymentStatus) { s.ReadyReplicas = 0 })
	ExpectLines(t, w.Checked(admin), 1, "deployment  to do  0 of 1 replicas of Deployment mirror-system/mirror-controller are ready: kubectl -n mirror-system ")
	w.Report(func(s *appsv1.DeploymentStatus) { s.ReadyReplicas = 1 })

	annotation := `{"metadata": {"annotations": {"` + plan.Domain + `/namespace-prefix": %q}}}`
	w.patchBinding(fmt.Sprintf(annotation, w.Prefix))
	ExpectLines(t, w.Checked(admin), 1, shown(t, "check | grep 'to do '"), "11 ok, 1 to do, 0 not checked.")
	w.patchBinding(fmt.Sprintf(annotation, w.Prefix+",dev-"))

	verbs := []byte(`[{"op": "replace", "path": "/rules/0/verbs", "value": ["get", "list", "watch", "create", "update"]}]`)
	if _, err := w.Admin.RbacV1().ClusterRoles().Patch(w.Context(), w.FullName, types.JSONPatchType, verbs, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	ExpectLines(t, w.Checked(admin), 1, "permissions  to do  ServiceAccount mirror-system/mirror-controller may not delete configmaps: grant it")

	w.Stop(p)
	ExpectLines(t, w.Checked(admin), 1, "leader  to do  nobody holds Lease mirror-system/mirror-controller: nothing is mirrored: kubectl -n mirror-system logs deployment/mirror-controller")

	bindings := w.Admin.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings()
	if err := bindings.Delete(w.Context(), w.FullName+"-publishers", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	w.untilLines("policy/publishers  to do  no policy is bound to ClusterRoleBinding mirror-controller by which only holders of the verb mirror publish: install ")
	if got := w.Checked(admin, "--policies=confined"); strings.Contains(got.out, "policy/publishers") {
		t.Errorf("a policy is missed that is not expected:\n%s", got.out)
	}
	w.patchBinding(`{"metadata": {"labels": {"` + suite.InstallationLabel + `": null}}}`)
	w.untilLines("probe/unmarked  to do  the API server would let the controller create any ConfigMap in namespace mirror-system",
		"binding  to do  no ClusterRoleBinding with the label mirror-controller.github.io/installation names ServiceAccount mirror-system/mirror-controller: ",
		"policy/confined  not checked  no ClusterRoleBinding with the label ")
}

// TestKubectlCheckOfReader asks as users who may read some of it: each line that they may not know names the permission. From
// Kubernetes 1.36 on, the narrow verbs of impersonation are enough for all lines.
func TestKubectlCheckOfReader(t *testing.T) {
	t.Parallel()
	w, _ := installChecked(t)
	narrow := append(ViewerRules(w.World), may("authentication.k8s.io", "serviceaccounts", "impersonate:serviceaccount"),
		may("", "configmaps", "impersonate-on:serviceaccount:create"))
	bindings := mayList(rbacv1.GroupName, "clusterrolebindings")
	tests := []struct {
		name  string
		rules []rbacv1.PolicyRule
		code  int
		want  []string
	}{
		{"nobody", []rbacv1.PolicyRule{may("", "pods", "get")}, 2,
			[]string{`controller  not checked  you may not list resource "clusterrolebindings"`, "0 ok, 0 to do, 1 not checked."}},
		{"lister", []rbacv1.PolicyRule{bindings}, 2,
			[]string{`deployment  not checked  you may not get resource "deployments"`, "settings  not checked  ", "1 ok, 0 to do, 10 not checked."}},
		{"reader", []rbacv1.PolicyRule{bindings, may("apps", "deployments", "get")}, 2,
			[]string{`leader  not checked  you may not get resource "leases"`,
				`permissions  not checked  you may not create resource "subjectaccessreviews"`,
				`policy/confined  not checked  you may not list resource "validatingadmissionpolicies"`, "5 ok, 0 to do, 6 not checked."}},
		{"viewer", ViewerRules(w.World), 2, []string{"probe/unmarked  not checked  you may not impersonate", "10 ok, 0 to do, 1 not checked."}},
		{"narrow", narrow, 0, []string{"probe/unmarked  ok  ", "probe/elsewhere  ok  ", "12 ok, 0 to do, 0 not checked."}},
	}
	if v, err := w.Admin.Discovery().ServerVersion(); err != nil || v.Minor == "35" {
		tests = tests[:len(tests)-1]
	}
	for _, test := range tests {
		ExpectLines(t, w.Checked(newPerson(w.World, test.name, test.rules...)), test.code, test.want...)
	}
}

// TestKubectlCheckOfManifests checks an empty cluster, and then the manifests without policies before anything runs.
func TestKubectlCheckOfManifests(t *testing.T) {
	t.Parallel()
	c, err := cluster.Start(t.Context(), cluster.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
	})
	check := func(args ...string) answer {
		cmd := c.Command(context.WithoutCancel(t.Context()), plugin(), append(args, "check", "--kubeconfig="+c.AdminKubeconfig())...)
		out, _ := cmd.Output() // the exit code tells
		return answer{code: cmd.ProcessState.ExitCode(), out: runsOfBlanks.ReplaceAllString(string(out), "  ")}
	}
	ExpectLines(t, check(), 1, "controller  to do  there is no controller: no ClusterRoleBinding has the label ")
	if _, err := shipped.Install(t.Context(), c, *suite.Manifests, *suite.Binary); err != nil {
		t.Fatal(err)
	}
	asleep := []string{
		"deployment  to do  Deployment mirror-system/mirror-controller is not rolled out: 0 of 1 replicas are up to date: kubectl -n mirror-system rollout status",
		"leader  to do  nobody holds Lease mirror-system/mirror-controller: nothing is mirrored: ",
	}
	for _, test := range []struct {
		policies string
		want     []string
	}{
		{"confined,publishers", []string{
			"policy/confined  to do  no policy is bound to ClusterRoleBinding mirror-controller by which the controller writes no ConfigMaps but its copies: install deploy/components/admission, give the label mirror-controller.github.io/installation the value that the policy's binding selects, or leave confined out of --policies\n",
			"policy/publishers  to do  no policy is bound to ClusterRoleBinding mirror-controller by which only holders of the verb mirror publish: install deploy/components/admission, give the label mirror-controller.github.io/installation the value that the policy's binding selects, or leave publishers out of --policies\n",
			"probe/unmarked  to do  the API server would let the controller create any ConfigMap in namespace mirror-system: no policy confines it: ",
			"5 ok, 7 to do, 0 not checked.\n",
		}},
		{"", []string{"5 ok, 2 to do, 0 not checked.\n"}},
	} {
		ExpectLines(t, check("--policies="+test.policies), 1, append(asleep, test.want...)...)
	}
}
