package plugin

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mirror-controller/mirror-controller/e2e/overlay"
	"github.com/mirror-controller/mirror-controller/e2e/shipped"
	"github.com/mirror-controller/mirror-controller/e2e/suite"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// checked is an installation that people ask about.
type checked struct{ *suite.Installation }

// installChecked installs a kustomization above the shipped one, and runs its controller. Its policies have a label of
// their own, so that they judge nobody else.
func installChecked(t *testing.T, components ...string) (checked, *shipped.Process) {
	t.Helper()
	w := checked{suite.NewInstallation(t, "checked", "a")}
	relabel := func(target, path string) string {
		path += "/" + strings.ReplaceAll(suite.InstallationLabel, "/", "~1") + ", value: " + w.FullName
		return "- target: {" + target + "}\n  patch: |\n    - {op: replace, path: " + path + "}\n"
	}
	dir := overlay.Dir(t, map[string]string{"top": overlay.Above("deploy/default",
		"namespace: "+w.Namespace+"\nnamePrefix: "+w.Namespace+"-\npatches:\n"+
			relabel("kind: ClusterRoleBinding, name: mirror-controller", "/metadata/labels")+
			relabel("kind: ValidatingAdmissionPolicyBinding", "/spec/paramRef/selector/matchLabels")+
			overlay.SetPrefix(w.Prefix+",dev-")+overlay.AddFlag("mirror-label", w.Label)+
			overlay.AddFlag("instance", w.Instance), components...)})
	w.Sh("kubectl apply -k " + dir + "/top")
	return w, w.Start()
}

// allow has the policy go by these prefixes.
func (w checked) allow(prefixes string) {
	w.Helper()
	setting := " " + plan.Domain + "/namespace-prefix=" + prefixes
	w.Sh("kubectl annotate --overwrite clusterrolebinding " + w.FullName + setting)
}

// as returns a user who asks about the installation.
func (w checked) as(kubeconfig string) *user {
	return &user{w.World, kubeconfig, []string{"--controller=" + w.Namespace},
		[]string{anonymous(w.World, w.FullName), "mirror-controller", anonymous(w.World, w.Namespace), "mirror-system"}}
}

// TestKubectlCheck has an installation in which all is well, and then one thing after the other is not.
// Cases C48 and C60.
func TestKubectlCheck(t *testing.T) {
	t.Parallel()
	w, p := installChecked(t)
	kubeconfig := w.Cluster.AdminKubeconfig()
	admin := w.as(kubeconfig)
	admin.until(0, "check", "probe/confined  ok")
	admin.prints(0, "check", shown(t, "check"))
	(&user{w: w.World, kubeconfig: kubeconfig}).says(2, "check", "choose one with --controller")

	w.Report(0)
	admin.says(1, "check", "controller  to do  Deployment mirror-system/mirror-controller: 0 of 1 replicas are ready, ")
	admin.says(0, "status -A", "!No controller ") // it holds the Lease
	w.Report(1)

	w.Stop(p) // it releases its Lease while it may
	w.Sh("kubectl patch clusterrole " + w.FullName + " --type=json --patch='" +
		`[{"op": "replace", "path": "/rules/0/verbs", "value": ["get", "list", "watch", "create", "delete"]}]'`)
	// The creation of a Lease cannot be restricted to a name, so a Role that tries grants none.
	w.Sh("kubectl patch role -n " + w.Namespace + " " + w.FullName + "-leader-election --type=json --patch='" +
		`[{"op": "copy", "from": "/rules/1/resourceNames", "path": "/rules/0/resourceNames"}, ` +
		`{"op": "remove", "path": "/rules/1"}]'`)
	admin.until(1, "check", "system:serviceaccount:mirror-system:mirror-controller may not update configmaps, "+
		"create leases, get leases, update leases: grant",
		"permissions  to do  ", "; No controller holds Lease mirror-system/mirror-controller ",
		": kubectl -n mirror-system describe deployment ")
	w.Sh("kubectl label clusterrolebinding " + w.FullName + " " + suite.InstallationLabel + "-")
	admin.until(1, "check", "probe/confined  to do  the API server would let the controller create any ConfigMap ",
		"settings  to do  no ClusterRoleBinding ")
	admin.says(1, "check --confined=false", "settings  to do  ") // else anybody publishes
}

// TestKubectlCheckOfAnnotations has a flag that was changed, and its annotation was not: writes are refused. Case C60.
func TestKubectlCheckOfAnnotations(t *testing.T) {
	t.Parallel()
	w, _ := installChecked(t)
	admin := w.as(w.Cluster.AdminKubeconfig())
	w.allow("dev-")
	const follow = ": have the annotations of the ClusterRoleBinding follow the arguments: see deploy/docs/policies.md"
	admin.until(1, "check", `probe/copy  to do  configmaps "mirror-controller-check" is forbidden: ValidatingAdmission`,
		`mirror-controller may only write to namespaces starting with "dev-" that are not excluded and have not opted out: `+
			"team-a is not one of them ", follow,
		"settings  to do  the annotations of ClusterRoleBinding mirror-controller differ from the flags: "+
			`namespace-prefix is "dev-", and the flag "team-,dev-"`+follow, "4 ok, 2 to do, 0 not checked")
	source := w.CreateSource(w.Home, "settings")
	w.WaitEvent(w.Home, "settings", plan.ReasonWriteFailed)
	admin.says(1, "status platform/settings", "WriteFailed: ", "may only write to namespaces", "Fix the cause; ")
	w.allow(w.Prefix + ",dev-")
	admin.until(0, "check", "probe/copy  ok")
	admin.says(0, "wait platform/settings", "platform/settings: InSync, 1 synced")
	w.WaitInSync(source, w.NS("a"))
}

const alterAll = `kubectl create -f - <<'END'
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {name: alter-NAMESPACE}
spec:
  matchConstraints:
    resourceRules:
    - {apiGroups: [""], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [configmaps]}
  matchConditions:
  - {name: the-target, expression: "request.namespace == 'NAMESPACE'"}
  failurePolicy: Fail
  reinvocationPolicy: IfNeeded
  mutations:
  - patchType: JSONPatch
    jsonPatch: {expression: "[JSONPatch{op: 'add', path: 'PATH', value: VALUE}]"}
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicyBinding
metadata: {name: alter-NAMESPACE}
spec: {policyName: alter-NAMESPACE}
END`

// TestC90CheckOfMutatingPolicies has a policy of the cluster alter what the controller writes. The event and check name
// admission, the field, and a remedy that helps. The other fields have a unit test.
func TestC90CheckOfMutatingPolicies(t *testing.T) {
	t.Parallel()
	w, _ := installChecked(t)
	if v, err := w.Admin.Discovery().ServerVersion(); err == nil && v.Minor == "35" {
		t.Skip("Kubernetes 1.35 has no MutatingAdmissionPolicy by default")
	}
	admin := w.as(w.Cluster.AdminKubeconfig())
	lift := strings.ReplaceAll("kubectl delete mutatingadmissionpolicy,mutatingadmissionpolicybinding alter-NAMESPACE",
		"NAMESPACE", w.NS("a"))
	for _, tc := range []struct{ name, path, value, event, check string }{
		{"data", "/data/more", "'x'", "an admission webhook or policy alters the copy: data",
			"probe/copy  to do  admission alters copies in namespace team-a: data: " +
				"have the mutating policy or webhook leave out "},
		{"finalizers", "/metadata/finalizers", "['example.com/keep']", "which a mutating admission policy or webhook adds",
			"webhook adds: have the mutating policy or webhook leave out ConfigMaps with the label mirror=copy"},
	} {
		names := strings.NewReplacer("NAMESPACE", w.NS("a"), "PATH", tc.path, "VALUE", tc.value)
		w.Sh(names.Replace(alterAll))
		admin.until(1, "check", tc.check, "settings  ok")
		w.CreateSource(w.Home, tc.name)
		w.WaitEvent(w.Home, tc.name, plan.ReasonWriteFailed, tc.event)
		w.Sh(lift)
		admin.until(0, "check", "probe/copy  ok")
	}
}

// TestKubectlCheckOfReader asks as users who may do some of it. From Kubernetes 1.36 on, the narrow verbs of
// impersonation are enough for all lines.
func TestKubectlCheckOfReader(t *testing.T) {
	t.Parallel()
	w, _ := installChecked(t)
	reader := newPerson(w.World, "reader", may("apps", "deployments", "list"))
	w.as(reader.kubeconfig).says(2, "check", "controller  not checked  leases", "probe/copy  not checked  you may not ",
		"publishers  not checked  clusterrolebindings", "0 ok, 0 to do, 6 not checked")
	viewer := newViewer(w.World)
	w.as(viewer.kubeconfig).says(2, "check", "probe/copy  not checked  you may not ", "3 ok, 0 to do, 3 not checked")
	if v, err := w.Admin.Discovery().ServerVersion(); err == nil && v.Minor == "35" {
		return
	}
	const on = "impersonate-on:serviceaccount:"
	narrow := newPerson(w.World, "narrow", may("", "namespaces", on+"list"), may("", "events", on+"create"),
		may("authentication.k8s.io", "serviceaccounts", "impersonate:serviceaccount"), may("", "configmaps", on+"create"),
		may("authorization.k8s.io", "selfsubjectaccessreviews", on+"create"))
	w.Sh("kubectl create clusterrolebinding " + w.FullName + ".narrow --user=" + w.Account() + ".narrow " +
		"--clusterrole=mirror-controller-viewer")
	w.as(narrow.kubeconfig).until(0, "check", "probe/confined  ok  ", "6 ok, 0 to do, 0 not checked")
}

// TestKubectlCheckOfCronJob runs what the CronJob of component check runs, as its account, until the policies are off.
func TestKubectlCheckOfCronJob(t *testing.T) {
	t.Parallel()
	w, _ := installChecked(t, "check", "protect-copies")
	job, err := w.Admin.BatchV1().CronJobs(w.Namespace).Get(w.Context(), w.FullName+"-check", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	ExpectPodChecks(w.Installation, job.Spec.JobTemplate.Spec.Template.Spec)
	admin, protect := w.as(w.Cluster.AdminKubeconfig()), "check --protect-copies"
	admin.until(0, protect, "protect-copies  ok  only the controller changes copies")
	w.Sh("kubectl label clusterrolebinding " + w.FullName + " " + suite.InstallationLabel + "-")
	admin.until(1, protect, "protect-copies  to do  no policy is bound by which ")
}

// TestKubectlCheckOfBase checks an installation before anything runs, with a binding whose policy is gone.
func TestKubectlCheckOfBase(t *testing.T) {
	t.Parallel()
	w := suite.NewAlone(t)
	w.Sh("kubectl apply -f - <<END\n" +
		"{apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingAdmissionPolicyBinding, " +
		"metadata: {name: gone}, spec: {policyName: the-publishers, validationActions: [Deny]}}\nEND")
	asleep := []string{"controller  to do  Deployment mirror-system/mirror-controller: 0 of 1 replicas are ready, ",
		"probe/copy  not probed  no namespace is a target yet"}
	admin := &user{w: w, kubeconfig: w.Cluster.AdminKubeconfig()}
	admin.says(1, "check", append(asleep, "publishers  to do  no policy is bound ")...)
	admin.says(1, "check --confined=false --publishers=false",
		append(asleep, "1 ok, 1 to do, 0 not checked, 1 not probed.")...)
}
