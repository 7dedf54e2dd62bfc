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

// checked runs kubectl mirror check on the installation.
func (w *installed) checked(kubeconfig string, args ...string) answer {
	w.Helper()
	got := w.mirrorAs(kubeconfig, append([]string{"check", "--controller=" + w.namespace + "/" + w.name}, args...)...)
	host, err := os.Hostname()
	if err != nil {
		w.Fatal(err)
	}
	names := strings.NewReplacer(w.anonymous(w.name), "mirror-controller", w.anonymous(w.namespace), "mirror-system", host+" ", "mirror-controller-6d4cf56db6-zx8lq ", w.instance, "default")
	got.out = ofServer.ReplaceAllString(names.Replace(got.out), "Kubernetes v1.37.1:")
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
func (w *installed) expectLines(got answer, code int, want ...string) {
	w.Helper()
	if missing := got.lacks(want...); got.code != code || len(missing) > 0 {
		w.Errorf("got exit code %d and\n%s\nwant %d and\n%s\nstderr: %s", got.code, got.out, code, strings.Join(missing, "\n"), got.err)
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
	w.expectLines(w.checked(admin), 1, "deployment  to do  0 of 1 replicas of Deployment mirror-system/mirror-controller are ready: kubectl -n mirror-system ")
	w.report(func(s *appsv1.DeploymentStatus) { s.ReadyReplicas = 1 })

	annotation := `{"metadata": {"annotations": {"` + plan.Domain + `/namespace-prefix": %q}}}`
	w.patchBinding(fmt.Sprintf(annotation, w.prefix))
	w.expectLines(w.checked(admin), 1, shown(t, "check | grep 'to do '"), "20 ok, 1 to do, 1 not checked.")
	w.patchBinding(fmt.Sprintf(annotation, w.prefix+",dev-,other-"))
	w.expectLines(w.checked(admin), 1, `settings/namespace-prefix  to do  the flag has "team-,dev-", and the annotation "team-,dev-,other-": the flag is narrower, and the policies are looser than it: `)
	w.patchBinding(fmt.Sprintf(annotation, w.prefix+",dev-"))

	verbs := []byte(`[{"op": "replace", "path": "/rules/0/verbs", "value": ["get", "list", "watch", "create", "update", "deletecollection"]}]`)
	if _, err := w.admin.RbacV1().ClusterRoles().Patch(w.ctx, w.name, types.JSONPatchType, verbs, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	w.expectLines(w.checked(admin), 1, "permissions/missing  to do  ServiceAccount mirror-system/mirror-controller may not delete configmaps: grant it",
		"permissions/needless  to do  ServiceAccount mirror-system/mirror-controller may deletecollection configmaps, and does not need it: take it out")

	w.stop(p)
	w.expectLines(w.checked(admin), 1, "leader  to do  nobody holds Lease mirror-system/mirror-controller: nothing is mirrored: kubectl -n mirror-system logs deployment/mirror-controller")

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

const checkedByReader = `
CHECK  RESULT  DETAIL
deployment  ok  Deployment mirror-system/mirror-controller: 1 of 1 replicas are ready, image mirror-controller:dev
arguments  ok  the arguments of the Deployment are valid
leader  not checked  you may not get leases.coordination.k8s.io in namespace mirror-system
binding  ok  ClusterRoleBinding mirror-controller names ServiceAccount mirror-system/mirror-controller, and has the label for the policies
permissions/missing  not checked  you may not get clusterroles.rbac.authorization.k8s.io
permissions/needless  not checked  you may not get clusterroles.rbac.authorization.k8s.io
version/kubernetes  ok  Kubernetes v1.37.1: tested are 1.35 and 1.37
version/controller  not checked  controller dev and kubectl mirror dev: not both have the version of a release
policy/confined  not checked  you may not list validatingadmissionpolicies.admissionregistration.k8s.io
policy/confined-others  not checked  you may not list validatingadmissionpolicies.admissionregistration.k8s.io
policy/publishers  not checked  you may not list validatingadmissionpolicies.admissionregistration.k8s.io
settings/namespace-prefix  ok  flag and annotation agree on "team-,dev-"
settings/namespace-selector  ok  flag and annotation agree on ""
settings/exclude-namespace  ok  flag and annotation agree on "kube-*"
settings/mirror-label  ok  flag and annotation agree on "mirror"
settings/instance  ok  flag and annotation agree on "default"
settings/copy-label  ok  flag and annotation agree on ""
settings/copy-annotation  ok  flag and annotation agree on ""
settings/leader-elect-resource-name  ok  flag and annotation agree on "mirror-controller"
settings/leader-elect-resource-namespace  ok  flag and annotation agree on "mirror-system"
probe  not checked  you may not impersonate serviceaccounts/mirror-controller in namespace mirror-system
13 ok, 0 to do, 8 not checked.`

func mayGet(group string, resources ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{APIGroups: []string{group}, Resources: resources, Verbs: []string{"get"}}
}

// TestKubectlCheckOfReader asks as users who may read some of it: each line that they may not know names the permission.
func TestKubectlCheckOfReader(t *testing.T) {
	t.Parallel()
	w, _ := installChecked(t)
	const rbac = rbacv1.GroupName
	w.expectLines(w.checked(w.reader("lister", mayList(rbac, "clusterrolebindings"))), 0,
		"deployment  not checked  you may not list deployments.apps in namespace mirror-system\n",
		"arguments  not checked  you may not list deployments.apps in namespace mirror-system\n",
		"settings  not checked  you may not list deployments.apps in namespace mirror-system\n")
	w.expect(w.checked(w.reader("reader", mayList(rbac, "clusterrolebindings"), mayGet("apps", "deployments"))), 0, checkedByReader)
	w.expectLines(w.checked(w.reader("nobody")), 0,
		"controller  not checked  you may not list clusterrolebindings.rbac.authorization.k8s.io, nor get deployments.apps in namespace mirror-system",
		"0 ok, 0 to do, 1 not checked.")
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
	if got := check("--output=json"); got.code != 1 || got.out != runsOfBlanks.ReplaceAllString(withoutController, "  ") {
		t.Errorf("got exit code %d and\n%s\nwant 1 and\n%s", got.code, got.out, withoutController)
	}
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
			"14 ok, 7 to do, 1 not checked.\n",
		}},
		{"", []string{"14 ok, 2 to do, 1 not checked.\n"}},
	} {
		got := check("--policies=" + test.policies)
		if missing := got.lacks(append(asleep, test.want...)...); got.code != 1 || len(missing) > 0 {
			t.Errorf("%q: got exit code %d and\n%s\nwant 1 and\n%s", test.policies, got.code, got.out, strings.Join(missing, "\n"))
		}
	}
}

const withoutController = `{
  "ok": false,
  "checks": [
    {
      "check": "controller",
      "result": "to do",
      "detail": "there is no controller: no ClusterRoleBinding has the label mirror-controller.github.io/installation, and no Deployment the label app.kubernetes.io/name=mirror-controller",
      "advice": "install it as deploy/docs/install.md says"
    }
  ]
}
`
