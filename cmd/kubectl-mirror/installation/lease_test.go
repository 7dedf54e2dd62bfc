package installation

import (
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
)

var account = types.NamespacedName{Namespace: "mirror-system", Name: "account"}

func TestLeaseOf(t *testing.T) {
	for name, test := range map[string]struct {
		in   Installation
		want string
	}{
		"default":     {Installation{Deployment: new(deploymentOf("d", "account", "--namespace-prefix=team-", "--leader-elect"))}, "mirror-system/mirror-controller"},
		"arguments":   {Installation{Deployment: new(deploymentOf("d", "account", "--leader-elect-resource-name=blue", "--leader-elect-resource-namespace=leases"))}, "leases/blue"},
		"annotations": {Installation{Binding: new(bindingOf("b", "account", "leader-elect-resource-name", "blue"))}, "mirror-system/blue"},
		"arguments before annotations": {Installation{Deployment: new(deploymentOf("d", "account")),
			Binding: new(bindingOf("b", "account", "leader-elect-resource-name", "blue"))}, "mirror-system/mirror-controller"},
	} {
		test.in.Account = account
		if key, _, _, err := test.in.lease(t.Context(), fake.NewClientset()); key.String() != test.want || err != nil {
			t.Errorf("%s: got %s and %v, want %s", name, key, err, test.want)
		}
	}
}

// TestSignOfLife: a Deployment that was changed to a dry run has a leader of before as long as the Lease is held.
func TestSignOfLife(t *testing.T) {
	ready := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "mirror-system", Name: "pod"}}
	ready.Spec.ServiceAccountName = "account"
	ready.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	const held, nobody, expired = "its Lease mirror-system/mirror-controller is held by somebody", "No controller runs: nobody holds Lease mirror-system/mirror-controller.",
		"No controller runs: somebody held Lease mirror-system/mirror-controller, and nobody has renewed it since "
	for name, test := range map[string]struct {
		arguments     string
		objects       []runtime.Object
		sign, absence string // absence is the beginning
	}{
		"held":             {"--leader-elect", []runtime.Object{leaseOf("somebody", time.Now())}, held, ""},
		"held, dry run":    {"--leader-elect --dry-run", []runtime.Object{leaseOf("somebody", time.Now()), ready}, held, ""},
		"expired":          {"--leader-elect", []runtime.Object{leaseOf("somebody", time.Now().Add(-time.Minute))}, "", expired},
		"expired, dry run": {"--leader-elect --dry-run", []runtime.Object{leaseOf("somebody", time.Now().Add(-time.Minute)), ready}, "", ""},
		"ready Pod":        {"--leader-elect", []runtime.Object{leaseOf("", time.Now()), ready}, "its Pod mirror-system/pod is ready", nobody},
		"nothing":          {"--leader-elect", nil, "", nobody},
		"without Leases":   {"--leader-elect=false", nil, "", ""},
	} {
		in := &Installation{Account: account, Deployment: new(deploymentOf("d", "account", append(strings.Fields(test.arguments), "--namespace-prefix=team-")...))}
		client := fake.NewClientset(test.objects...)
		if got, err := in.SignOfLife(t.Context(), client); got != test.sign || err != nil {
			t.Errorf("%s: got %q, %v, want %q", name, got, err, test.sign)
		}
		if got := in.Absence(t.Context(), client); !strings.HasPrefix(got, test.absence) || got != "" && test.absence == "" {
			t.Errorf("%s: got %q, want %q", name, got, test.absence)
		}
	}
}

func TestProtectedBy(t *testing.T) {
	for name, test := range map[string]struct {
		policy, installation string
		action               admissionv1.ValidationAction
		want                 bool
	}{
		"of the installation": {"blue-protected-copies", "blue", admissionv1.Deny, true},
		"of another":          {"green-protected-copies", "green", admissionv1.Deny, false},
		"another policy":      {"blue-confined", "blue", admissionv1.Deny, false},
		"audited only":        {"blue-protected-copies", "blue", admissionv1.Audit, false},
	} {
		_, b := (&world{}).addPolicy(test.policy, test.installation)
		b.Labels, b.Spec.ValidationActions = map[string]string{"app.kubernetes.io/name": "mirror-controller"}, []admissionv1.ValidationAction{test.action}
		in := &Installation{Account: account, Binding: new(bindingOf("b", "account"))}
		in.Binding.Labels = map[string]string{Label: "blue"}
		if got, err := in.ProtectedBy(t.Context(), fake.NewClientset(b)); (len(got) == 1) != test.want || err != nil {
			t.Errorf("%s: got %v, %v, want %v", name, got, err, test.want)
		}
	}
}
