package e2e

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// expectRefused fails the test if a purge is not refused by a line that contains the text.
func (w *world) expectRefused(got answer, text string) {
	w.Helper()
	last := got.err[strings.LastIndex(got.err, "\n")+1:]
	if got.code != 1 || got.out != "" || !strings.HasPrefix(last, "Refused: ") || !strings.Contains(last, text) {
		w.Errorf("got exit code %d, stdout %q and stderr\n%s\nwant 1, nothing, and a refusal with %q", got.code, got.out, got.err, text)
	}
}

// TestKubectlPurgeBesideController refuses while a Lease is held or a Pod is ready, unless nothing would be restored. There is
// no controller: a person holds the Lease, and another is the kubelet.
func TestKubectlPurgeBesideController(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "a", "b")
	a, b := w.ns("a"), w.ns("b")
	for _, name := range []string{"settings", "forced", "left"} {
		w.createSource(w.home, name)
		w.create(a, name, w.marksOfCopy(w.home, a, name)...)
		w.create(b, name, w.marksOfCopy(w.home, b, name)...)
	}
	w.edit(w.home, "left", withAnnotation(plan.PrefixAnnotation, b))
	holder, seconds, now := "somebody", int32(3600), metav1.NowMicro()
	lease, err := w.admin.CoordinationV1().Leases(w.home).Create(w.ctx, &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: leaseName},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: &holder, LeaseDurationSeconds: &seconds, RenewTime: &now},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	const advice = " Take the label off the sources (kubectl -n NAMESPACE label configmap NAME mirror-), or stop the controller"
	const byLease = "Controller mirror-system/mirror-controller would restore 5 of 6 copies: its Lease platform/mirror-controller is held by somebody."
	w.expectRefused(w.mirror("purge", "--yes"), byLease+advice)
	got := w.mirror("purge", "settings", "-n", w.home, "--dry-run", "-o", "name")
	w.expect(got, 0, "configmap/settings -n team-a\nconfigmap/settings -n team-b")
	if !strings.Contains(got.err, "Objection: Controller mirror-system/mirror-controller would restore 2 of 2 copies") {
		t.Errorf("stderr is %q, want an objection", got.err)
	}
	blind := w.person("blind", may("", "configmaps", "list", "delete"), mayList("", "namespaces"),
		mayList("rbac.authorization.k8s.io", "clusterrolebindings"))
	w.expectError(w.byController(blind, "purge", "--yes"), "cannot check that nothing keeps the copies from being deleted: you may not get leases in namespace "+
		"platform: --force goes on without that")
	if got := w.byController(blind, "purge", w.home+"/forced", "--yes", "--force"); got.code != 0 || !strings.HasSuffix(got.err, "Deleted 2 of 2 copies.") {
		t.Errorf("got exit code %d and %q, want 0 and all deleted", got.code, got.err)
	}

	past := metav1.NewMicroTime(now.Add(-2 * time.Hour))
	lease.Spec.RenewTime = &past
	if _, err := w.admin.CoordinationV1().Leases(w.home).Update(w.ctx, lease, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	w.createReadyPod()
	w.expectRefused(w.mirror("purge", "--yes"), "would restore 3 of 4 copies: its Pod "+accountNamespace+"/platform is ready")

	w.edit(w.home, "settings", withoutLabel(w.label))
	w.edit(w.home, "left", withoutLabel(w.label))
	if got := w.byController(blind, "purge", "--yes"); got.code != 0 || !strings.HasSuffix(got.err, "Deleted 4 of 4 copies.") {
		t.Errorf("got exit code %d and %q, want 0 and all deleted", got.code, got.err)
	}
	for _, name := range []string{"settings", "forced", "left"} {
		w.absent(name, a, b)
	}
}

// createReadyPod creates a Pod of the world's controller that is ready, as far as anybody can see.
func (w *world) createReadyPod() {
	w.Helper()
	pods := w.admin.CoreV1().Pods(accountNamespace)
	pod, err := pods.Create(w.ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: w.home},
		Spec: corev1.PodSpec{
			ServiceAccountName: w.account(),
			Containers:         []corev1.Container{{Name: "mirror-controller", Image: "mirror-controller"}},
		},
	}, metav1.CreateOptions{})
	if err == nil {
		w.Cleanup(func() { w.cleanUp(pods.Delete(w.background(), pod.Name, metav1.DeleteOptions{})) })
		pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
		_, err = pods.UpdateStatus(w.ctx, pod, metav1.UpdateOptions{})
	}
	if err != nil {
		w.Fatal(err)
	}
}

// TestKubectlPurgeOfProtected refuses where the policy is bound that protects copies, and names the command that lifts it.
func TestKubectlPurgeOfProtected(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "a")
	a := w.ns("a")
	w.create(a, "settings", w.marksOfCopy(w.home, a, "settings")...)
	binding := w.protect()
	w.until("the copy is protected", func() error {
		err := w.admin.CoreV1().ConfigMaps(a).Delete(w.ctx, "settings", metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}})
		if !refusedBy(err, binding) {
			return fmt.Errorf("the answer is %v", err)
		}
		return nil
	})
	lift := w.anonymous("kubectl delete validatingadmissionpolicybinding " + binding)
	w.expectRefused(w.mirror("purge", "--yes"), "A policy lets nobody but the controller delete copies. To lift it: "+lift)
	got := w.mirror("purge", "--yes", "--force")
	if got.code != 1 || !strings.Contains(got.err, "Deleted 0 of 1 copy; failed: 1, the first because of: ") ||
		!strings.HasSuffix(got.err, ". To lift the policy: "+lift+".") {
		t.Errorf("got exit code %d and %q, want 1, and how to lift the policy", got.code, got.err)
	}
	if err := w.admin.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings().Delete(w.ctx, binding, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	w.until("the copy is purged", func() error {
		if got := w.mirror("purge", "--yes"); got.code != 0 {
			return errors.New(got.err)
		}
		return nil
	})
	w.absent("settings", a)
}

// protect has the shipped policy protect the copies of this world only, and returns the name of it and its binding.
func (w *world) protect() string {
	w.Helper()
	rendered, err := renderWith(w.T, "", "protect-copies")
	if err != nil {
		w.Fatal(err)
	}
	name := w.account() + "-protected-copies"
	all := rendered[:0]
	for _, o := range rendered {
		switch o.GetKind() {
		case "ValidatingAdmissionPolicyBinding":
			err = errors.Join(unstructured.SetNestedField(o.Object, name, "spec", "policyName"),
				unstructured.SetNestedField(o.Object, w.home, "spec", "paramRef", "selector", "matchLabels", installationLabel))
			fallthrough
		case "ValidatingAdmissionPolicy":
			o.SetName(name)
			all = append(all, o)
		}
	}
	if err == nil {
		err = all.Apply(w.ctx, w.cluster.Admin())
	}
	if err == nil {
		label := fmt.Sprintf(`{"metadata": {"labels": {%q: %q}}}`, installationLabel, w.home)
		_, err = w.admin.RbacV1().ClusterRoleBindings().Patch(w.ctx, w.account(), types.MergePatchType, []byte(label), metav1.PatchOptions{})
	}
	if err != nil {
		w.Fatal(err)
	}
	admission := w.admin.AdmissionregistrationV1()
	w.Cleanup(func() {
		w.cleanUp(admission.ValidatingAdmissionPolicyBindings().Delete(w.background(), name, metav1.DeleteOptions{}))
		w.cleanUp(admission.ValidatingAdmissionPolicies().Delete(w.background(), name, metav1.DeleteOptions{}))
	})
	return name
}
