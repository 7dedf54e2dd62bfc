package main

import (
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

func TestElection(t *testing.T) {
	run := func(args ...string) *appsv1.Deployment {
		d := &appsv1.Deployment{}
		d.Spec.Template.Spec.Containers = []corev1.Container{{Args: args}}
		return d
	}
	bound := func(annotations map[string]string) *rbacv1.ClusterRoleBinding {
		return &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Annotations: annotations}}
	}
	for name, test := range map[string]struct {
		in     installation
		want   string
		dryRun bool
	}{
		"default":     {installation{deployment: run("--namespace-prefix=team-", "--leader-elect")}, "home/mirror-controller", false},
		"none":        {installation{deployment: &appsv1.Deployment{}}, "home/mirror-controller", false},
		"arguments":   {installation{deployment: run("--leader-elect-resource-name=blue", "--leader-elect-resource-namespace=leases")}, "leases/blue", false},
		"annotations": {installation{binding: bound(map[string]string{plan.Domain + "/leader-elect-resource-name": "blue"})}, "home/blue", false},
		"dry run":     {installation{deployment: run("--dry-run")}, "home/mirror-controller", true},
	} {
		test.in.account = types.NamespacedName{Namespace: "home", Name: "account"}
		if got := test.in.election(); got.lease.String() != test.want || got.dryRun != test.dryRun {
			t.Errorf("%s: got %s and %v, want %s and %v", name, got.lease, got.dryRun, test.want, test.dryRun)
		}
	}
}

// TestSignOfLifeOfDryRun: a Deployment that was changed to a dry run has a leader of before as long as the Lease is held.
func TestSignOfLifeOfDryRun(t *testing.T) {
	d := &appsv1.Deployment{}
	d.Spec.Template.Spec.Containers = []corev1.Container{{Args: []string{"--dry-run"}}}
	account := types.NamespacedName{Namespace: "home", Name: "account"}
	for seconds, want := range map[int32]string{3600: "its Lease home/mirror-controller is held by somebody", 1: ""} {
		renewed := metav1.NewMicroTime(time.Now().Add(-time.Minute))
		lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "home", Name: "mirror-controller"}}
		lease.Spec = coordinationv1.LeaseSpec{HolderIdentity: new("somebody"), LeaseDurationSeconds: &seconds, RenewTime: &renewed}
		ready := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "home", Name: "pod"}}
		ready.Spec.ServiceAccountName = "account"
		ready.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
		p := &purge{session: &session{cluster: &cluster{client: fake.NewClientset(lease, ready)}}}
		if got, err := p.signOfLife(t.Context(), &installation{account: account, deployment: d}); got != want || err != nil {
			t.Errorf("a Lease of %d seconds: got %q, %v, want %q", seconds, got, err, want)
		}
	}
}

func TestProtects(t *testing.T) {
	const deny, audit = admissionregistrationv1.Deny, admissionregistrationv1.Audit
	labels := map[string]string{installationLabel: "blue"}
	for name, test := range map[string]struct {
		policy, installation string
		action               admissionregistrationv1.ValidationAction
		want                 bool
	}{
		"of the installation": {"blue-protected-copies", "blue", deny, true},
		"of another":          {"green-protected-copies", "green", deny, false},
		"another policy":      {"blue-confined", "blue", deny, false},
		"audited only":        {"blue-protected-copies", "blue", audit, false},
	} {
		b := &admissionregistrationv1.ValidatingAdmissionPolicyBinding{}
		b.Spec.PolicyName, b.Spec.ValidationActions = test.policy, []admissionregistrationv1.ValidationAction{test.action}
		b.Spec.ParamRef = &admissionregistrationv1.ParamRef{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{installationLabel: test.installation}}}
		if got := protects(b, labels); got != test.want {
			t.Errorf("%s: got %v, want %v", name, got, test.want)
		}
	}
}
