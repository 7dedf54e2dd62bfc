package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mirror-controller/mirror-controller/e2e/cluster"
	"github.com/mirror-controller/mirror-controller/e2e/shipped"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// installChecked installs a kustomization above the shipped one, and runs its controller.
func installChecked(t *testing.T) (*installed, *shipped.Process) {
	t.Helper()
	w := newInstalled(t, "checked", "a")
	var patches strings.Builder
	for flag, value := range map[string]string{"mirror-label": w.label, "instance": w.instance} {
		patches.WriteString(addFlag("-", "--"+flag+"="+value) + setting(flag, value))
	}
	prefixes := w.prefix + ",dev-"
	m, err := renderExample(t, "resources: [deploy/default]\nnamespace: "+w.namespace+"\nnamePrefix: "+w.namespace+"-\npatches:\n"+
		setFlag("--namespace-prefix="+prefixes)+setting("namespace-prefix", prefixes)+patches.String())
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
			o.SetLabels(map[string]string{installationLabel: w.name})
		case "ValidatingAdmissionPolicyBinding":
			if _, found, _ := unstructured.NestedMap(o.Object, "spec", "paramRef"); found {
				err = errors.Join(err, unstructured.SetNestedField(o.Object, w.name, "spec", "paramRef", "selector", "matchLabels", installationLabel))
			}
		}
	}
	if err := errors.Join(err, m.Apply(w.ctx, w.cluster.Admin())); err != nil {
		t.Fatal(err)
	}
	w.until("the controller is confined", func() error {
		return inForce(w.name+"-confined", w.probe(w.account, metav1.NamespaceDefault))
	})
	return w, w.startChecked()
}

// startChecked runs the controller, and has the Deployment report its Pod ready.
func (w *installed) startChecked() *shipped.Process {
	w.Helper()
	p := w.start()
	w.report(func(s *appsv1.DeploymentStatus) { s.UpdatedReplicas, s.ReadyReplicas, s.Replicas = 1, 1, 1 })
	w.until("somebody leads", func() error {
		if got := w.checked(w.cluster.AdminKubeconfig()); !strings.Contains(got.out, "leader  ok") {
			return fmt.Errorf("got\n%s\n%s", got.out, got.err)
		}
		return nil
	})
	return p
}

// report changes the status of the Deployment, in place of the controllers that this cluster does without.
func (w *installed) report(change func(*appsv1.DeploymentStatus)) {
	w.Helper()
	deployments := w.admin.AppsV1().Deployments(w.namespace)
	d, err := deployments.Get(w.ctx, w.name, metav1.GetOptions{})
	if err == nil {
		d.Status.ObservedGeneration = d.Generation
		change(&d.Status)
		_, err = deployments.UpdateStatus(w.ctx, d, metav1.UpdateOptions{})
	}
	if err != nil {
		w.Fatal(err)
	}
}

// asked runs kubectl mirror on the installation.
func (w *installed) asked(kubeconfig string, args ...string) answer {
	w.Helper()
	got := w.mirrorAs(kubeconfig, append(args, "--controller="+w.namespace+"/"+w.name)...)
	names := strings.NewReplacer(w.anonymous(w.name), "mirror-controller", w.anonymous(w.namespace), "mirror-system")
	got.out, got.err = names.Replace(got.out), names.Replace(got.err)
	return got
}

// checked runs kubectl mirror check on the installation.
func (w *installed) checked(kubeconfig string, args ...string) answer {
	w.Helper()
	got := w.asked(kubeconfig, append([]string{"check"}, args...)...)
	host, err := os.Hostname()
	if err != nil {
		w.Fatal(err)
	}
	got.out = strings.NewReplacer(host+" ", "mirror-controller-6d4cf56db6-zx8lq ", w.instance, "default").Replace(got.out)
	got.out = ofServer.ReplaceAllString(got.out, "Kubernetes v1.37.1:")
	got.out = ofPlugin.ReplaceAllString(got.out, "kubectl mirror dev")
	got.out = ofElsewhere.ReplaceAllString(got.out, "namespace default, which is no target")
	return got
}

// What differs from machine to machine.
var (
	ofServer    = regexp.MustCompile(`Kubernetes v[0-9.]+:`)
	ofPlugin    = regexp.MustCompile(`kubectl mirror [^ :]+`)
	ofElsewhere = regexp.MustCompile(`namespace \S+, which is no target`)
)

// lacks returns the lines that are missing.
func (a answer) lacks(want ...string) (missing []string) {
	for _, line := range want {
		if !strings.Contains("\n"+a.out, "\n"+line) {
			missing = append(missing, line)
		}
	}
	return missing
}

// expectLines fails the test if the answer does not have a line for each of these, which have a name, a result and the
// beginning of a text.
func expectLines(t *testing.T, got answer, code int, want ...string) {
	t.Helper()
	if missing := got.lacks(want...); got.code != code || len(missing) > 0 {
		t.Errorf("got exit code %d and\n%s\nwant %d and\n%s\nstderr: %s", got.code, got.out, code, strings.Join(missing, "\n"), got.err)
	}
}

// untilLines waits for an answer that has these lines: other tests install policies and take them out meanwhile, and the API
// server does not notice at once.
func (w *installed) untilLines(want ...string) {
	w.Helper()
	w.until("check has "+want[0], func() error {
		got := w.checked(w.cluster.AdminKubeconfig())
		if missing := got.lacks(want...); got.code != 1 || len(missing) > 0 {
			return fmt.Errorf("got exit code %d and\n%s\nwant 1 and\n%s", got.code, got.out, strings.Join(missing, "\n"))
		}
		return nil
	})
}

// patchBinding changes the ClusterRoleBinding of the controller.
func (w *installed) patchBinding(patch string) {
	w.Helper()
	_, err := w.admin.RbacV1().ClusterRoleBindings().Patch(w.ctx, w.name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	if err != nil {
		w.Fatal(err)
	}
}

// TestKubectlCheck has an installation in which all is well, and then one thing after the other is not.
func TestKubectlCheck(t *testing.T) {
	t.Parallel()
	w, p := installChecked(t)
	admin := w.cluster.AdminKubeconfig()
	w.expect(w.checked(admin), 0, shown(t, "check"))
	w.expectError(w.mirrorAs(admin, "check"), "choose one with --controller")
	w.expectError(w.checked(admin, "--instance=two"), "--instance: check compares what is installed")

	w.report(func(s *appsv1.DeploymentStatus) { s.ReadyReplicas = 0 })
	expectLines(t, w.checked(admin), 1, "deployment  to do  0 of 1 replicas of Deployment mirror-system/mirror-controller are ready: kubectl -n mirror-system ")
	w.report(func(s *appsv1.DeploymentStatus) { s.ReadyReplicas = 1 })

	annotation := `{"metadata": {"annotations": {"` + plan.Domain + `/namespace-prefix": %q}}}`
	w.patchBinding(fmt.Sprintf(annotation, w.prefix))
	expectLines(t, w.checked(admin), 1, shown(t, "check | grep 'to do '"), "13 ok, 1 to do, 0 not checked.")
	w.patchBinding(fmt.Sprintf(annotation, w.prefix+",dev-"))

	verbs := []byte(`[{"op": "replace", "path": "/rules/0/verbs", "value": ["get", "list", "watch", "create", "update", "deletecollection"]}]`)
	if _, err := w.admin.RbacV1().ClusterRoles().Patch(w.ctx, w.name, types.JSONPatchType, verbs, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	expectLines(t, w.checked(admin), 1, "permissions/missing  to do  ServiceAccount mirror-system/mirror-controller may not delete configmaps: grant it",
		"permissions/needless  to do  ServiceAccount mirror-system/mirror-controller may deletecollection configmaps, and does not need it: take it out")

	w.stop(p)
	expectLines(t, w.checked(admin), 1, "leader  to do  nobody holds Lease mirror-system/mirror-controller: nothing is mirrored: kubectl -n mirror-system logs deployment/mirror-controller")

	bindings := w.admin.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings()
	if err := bindings.Delete(w.ctx, w.name+"-publishers", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	w.untilLines("policy/publishers  to do  nothing binds ValidatingAdmissionPolicy mirror-controller-publishers: install deploy/components/admission")
	if got := w.checked(admin, "--policies=confined"); strings.Contains(got.out, "policy/publishers") {
		t.Errorf("a policy is missed that is not expected:\n%s", got.out)
	}
	w.patchBinding(`{"metadata": {"labels": {"` + installationLabel + `": null}}}`)
	w.untilLines("probe/unmarked  to do  the API server would let the controller create any ConfigMap in namespace mirror-system",
		"binding  to do  ClusterRoleBinding mirror-controller has no label mirror-controller.github.io/installation: no policy finds it: kubectl label clusterrolebinding mirror-controller mirror-controller.github.io/installation=mirror-controller",
		"policy/confined  to do  ValidatingAdmissionPolicyBinding mirror-controller-confined does not select ClusterRoleBinding mirror-controller: ")
}

// TestKubectlCheckOfReader asks as users who may read some of it: each line that they may not know names the permission. From
// Kubernetes 1.36 on, the narrow verbs of impersonation are enough for all lines.
func TestKubectlCheckOfReader(t *testing.T) {
	t.Parallel()
	w, _ := installChecked(t)
	narrow := append(w.viewerRules(), may("authentication.k8s.io", "serviceaccounts", "impersonate:serviceaccount"),
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
			[]string{`deployment  not checked  you may not get resource "deployments"`, "settings  not checked  ", "2 ok, 0 to do, 11 not checked."}},
		{"reader", []rbacv1.PolicyRule{bindings, may("apps", "deployments", "get")}, 2,
			[]string{"leader  not checked  you may not get leases in namespace mirror-system", `permissions/missing  not checked  you may not list resource "rolebindings"`,
				`policy/confined  not checked  you may not list resource "validatingadmissionpolicies"`, "6 ok, 0 to do, 7 not checked."}},
		{"viewer", w.viewerRules(), 2, []string{"probe/unmarked  not checked  you may not impersonate", "12 ok, 0 to do, 1 not checked."}},
		{"narrow", narrow, 0, []string{"probe/unmarked  ok  ", "probe/elsewhere  ok  ", "14 ok, 0 to do, 0 not checked."}},
	}
	if v, err := w.admin.Discovery().ServerVersion(); err != nil || v.Minor == "35" {
		tests = tests[:len(tests)-1]
	}
	for _, test := range tests {
		expectLines(t, w.checked(w.person(test.name, test.rules...)), test.code, test.want...)
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
	expectLines(t, check(), 1, "controller  to do  there is no controller: no ClusterRoleBinding has the label ")
	if _, err := shipped.Install(t.Context(), c, *manifests, *binary); err != nil {
		t.Fatal(err)
	}
	asleep := []string{
		"deployment  to do  Deployment mirror-system/mirror-controller is not rolled out: 0 of 1 replicas are up to date: kubectl -n mirror-system rollout status",
		"leader  to do  there is no Lease mirror-system/mirror-controller: no replica has ever led: ",
	}
	for _, test := range []struct {
		policies string
		want     []string
	}{
		{"confined,publishers", []string{
			"policy/confined  to do  there is no policy confined, by which the controller writes no ConfigMaps but its copies: install deploy/components/admission, or leave confined out of --policies\n",
			"policy/publishers  to do  there is no policy publishers, by which only holders of the verb mirror publish: install deploy/components/admission, or leave publishers out of --policies\n",
			"probe/unmarked  to do  the API server would let the controller create any ConfigMap in namespace mirror-system: no policy confines it: ",
			"7 ok, 7 to do, 0 not checked.\n",
		}},
		{"", []string{"7 ok, 2 to do, 0 not checked.\n"}},
	} {
		expectLines(t, check("--policies="+test.policies), 1, append(asleep, test.want...)...)
	}
}
