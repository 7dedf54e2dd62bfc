package plugin

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mirror-controller/mirror-controller/e2e/policies"
	"github.com/mirror-controller/mirror-controller/e2e/suite"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// expectRefused fails the test if a purge is not refused by a line that contains the text.
func expectRefused(w *suite.World, got answer, text string) {
	w.Helper()
	last := got.err[strings.LastIndex(got.err, "\n")+1:]
	if got.code != 1 || got.out != "" || !strings.HasPrefix(last, "Refused: ") || !strings.Contains(last, text) {
		w.Errorf("got exit code %d, stdout %q and stderr\n%s\nwant 1, nothing, and a refusal with %q", got.code, got.out, got.err, text)
	}
}

// TestKubectlPurgeBesideController refuses while a Lease is held, unless nothing would be restored, and where the user may not
// know whether a controller without a Lease runs. There is no controller: a person holds the Lease.
func TestKubectlPurgeBesideController(t *testing.T) {
	t.Parallel()
	w := suite.New(t, "a", "b")
	a, b := w.NS("a"), w.NS("b")
	for _, name := range []string{"settings", "forced", "left"} {
		w.CreateSource(w.Home, name)
		w.Create(a, name, w.MarksOfCopy(w.Home, a, name)...)
		w.Create(b, name, w.MarksOfCopy(w.Home, b, name)...)
	}
	w.Edit(w.Home, "left", suite.WithAnnotation(plan.PrefixAnnotation, b))
	expectError(w, byController(w, newPerson(w, "purger", purger[:len(purger)-1]...), "purge", "--yes"),
		`cannot check that nothing keeps the copies from being deleted: you may not list resource "deployments" in API group "apps" at the cluster scope: --force `)
	holder, seconds, now := "somebody", int32(3600), metav1.NowMicro()
	lease, err := w.Admin.CoordinationV1().Leases(w.Home).Create(w.Context(), &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: suite.LeaseName},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: &holder, LeaseDurationSeconds: &seconds, RenewTime: &now},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	const advice = " Take the label off the sources (kubectl -n NAMESPACE label configmap NAME mirror-), or stop the controller"
	const byLease = "Controller mirror-system/mirror-controller would restore 5 of 6 copies: somebody holds Lease platform/mirror-controller."
	expectRefused(w, kubectlMirror(w, "purge", "--yes"), byLease+advice)
	got := kubectlMirror(w, "purge", "settings", "-n", w.Home, "--dry-run", "-o", "name")
	expect(w, got, 0, "configmap/settings -n team-a\nconfigmap/settings -n team-b")
	if !strings.Contains(got.err, "Objection: Controller mirror-system/mirror-controller would restore 2 of 2 copies") {
		t.Errorf("stderr is %q, want an objection", got.err)
	}
	blind := newPerson(w, "blind", may("", "configmaps", "list", "delete"), mayList("", "namespaces"),
		mayList("rbac.authorization.k8s.io", "clusterrolebindings"))
	expectError(w, byController(w, blind, "purge", "--yes"), "cannot check that nothing keeps the copies from being deleted: you may not get "+
		`resource "leases" in API group "coordination.k8s.io" in the namespace "platform": --force goes on without that`)
	if got := byController(w, blind, "purge", w.Home+"/forced", "--yes", "--force"); got.code != 0 || !strings.HasSuffix(got.err, "Deleted 2 of 2 copies.") {
		t.Errorf("got exit code %d and %q, want 0 and all deleted", got.code, got.err)
	}

	w.Edit(w.Home, "settings", suite.WithoutLabel(w.Label))
	if got := byController(w, blind, "purge", w.Home+"/settings", "--yes"); got.code != 0 || !strings.HasSuffix(got.err, "Deleted 2 of 2 copies.") {
		t.Errorf("got exit code %d and %q, want 0 and all deleted", got.code, got.err)
	}
	past := metav1.NewMicroTime(now.Add(-2 * time.Hour))
	lease.Spec.RenewTime = &past
	if _, err := w.Admin.CoordinationV1().Leases(w.Home).Update(w.Context(), lease, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if got := kubectlMirror(w, "purge", "--yes"); got.code != 0 || !strings.HasSuffix(got.err, "Deleted 2 of 2 copies.") {
		t.Errorf("got exit code %d and %q, want 0 and all deleted", got.code, got.err)
	}
	for _, name := range []string{"settings", "forced", "left"} {
		w.Absent(name, a, b)
	}
}

// TestKubectlPurgeOfProtected refuses where the policy is bound that protects copies, though only in one of two namespaces, and
// names the command that lifts it.
func TestKubectlPurgeOfProtected(t *testing.T) {
	t.Parallel()
	w := suite.New(t, "a")
	a := w.NS("a")
	w.Create(a, "settings", w.MarksOfCopy(w.Home, a, "settings")...)
	first := w.Elsewhere("a") // the policy is about targets only
	w.Create(first, "settings", w.MarksOfCopy(w.Home, first, "settings")...)
	binding := protect(w)
	w.Until("the copy is protected", func() error {
		err := w.Admin.CoreV1().ConfigMaps(a).Delete(w.Context(), "settings", metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}})
		if !suite.RefusedBy(err, binding) {
			return fmt.Errorf("the answer is %v", err)
		}
		return nil
	})
	lift := anonymous(w, ". To lift the policy: kubectl delete validatingadmissionpolicybinding "+binding)
	expectRefused(w, kubectlMirror(w, "purge", "--yes"), lift)
	got := kubectlMirror(w, "purge", "--yes", "--force")
	if got.code != 1 || !strings.Contains(got.err, "Objection: ") ||
		!strings.Contains(got.err, "Deleted 1 of 2 copies; failed: 1, the first because of: ") || !strings.HasSuffix(got.err, lift+".") {
		t.Errorf("got exit code %d and %q, want 1, and the refusal", got.code, got.err)
	}
	if err := w.Admin.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings().Delete(w.Context(), binding, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	w.Until("the copy is purged", func() error {
		if got := kubectlMirror(w, "purge", "--yes"); got.code != 0 {
			return errors.New(got.err)
		}
		return nil
	})
	w.Absent("settings", a)
}

// protect has the shipped policy protect the copies of this world only, and returns the name of it and its binding.
func protect(w *suite.World) string {
	w.Helper()
	rendered, err := policies.RenderWith(w.T, "", "protect-copies")
	if err != nil {
		w.Fatal(err)
	}
	name := w.Account() + "-protected-copies"
	all := rendered[:0]
	for _, o := range rendered {
		switch o.GetKind() {
		case "ValidatingAdmissionPolicyBinding":
			err = errors.Join(unstructured.SetNestedField(o.Object, name, "spec", "policyName"),
				unstructured.SetNestedField(o.Object, w.Home, "spec", "paramRef", "selector", "matchLabels", suite.InstallationLabel))
			fallthrough
		case "ValidatingAdmissionPolicy":
			o.SetName(name)
			all = append(all, o)
		}
	}
	if err == nil {
		err = all.Apply(w.Context(), w.Cluster.Admin())
	}
	if err == nil {
		label := fmt.Sprintf(`{"metadata": {"labels": {%q: %q}}}`, suite.InstallationLabel, w.Home)
		_, err = w.Admin.RbacV1().ClusterRoleBindings().Patch(w.Context(), w.Account(), types.MergePatchType, []byte(label), metav1.PatchOptions{})
	}
	if err != nil {
		w.Fatal(err)
	}
	admission := w.Admin.AdmissionregistrationV1()
	w.Cleanup(func() {
		w.CleanUp(admission.ValidatingAdmissionPolicyBindings().Delete(w.Background(), name, metav1.DeleteOptions{}))
		w.CleanUp(admission.ValidatingAdmissionPolicies().Delete(w.Background(), name, metav1.DeleteOptions{}))
	})
	return name
}
