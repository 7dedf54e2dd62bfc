package e2e

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/mirror-controller/mirror-controller/e2e/cluster"
	"github.com/mirror-controller/mirror-controller/e2e/shipped"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// The shipped policies that confine the controller are in force for all tests. They take account and settings from
// ClusterRoleBindings, and each world has an account, and a binding, of its own. A refusal fails the test, so that no test is
// green because a policy has prevented the wrong write.
const (
	confinedPolicy   = "mirror-controller-confined"
	accountNamespace = "mirror-worlds"
	// bareNamespace has the accounts that get other permissions than the shipped ones.
	bareNamespace = accountNamespace + "-bare"

	// installationLabel is the label by which the policies find a ClusterRoleBinding, and installation its value as shipped.
	installationLabel = plan.Domain + "/installation"
	installation      = "mirror-controller"
)

// account is the name of the account of a world, and of its ClusterRoleBinding. A part of a name cannot end with the dash of
// a prefix.
func (w *world) account() string {
	return strings.TrimSuffix(w.prefix, "-") + "." + w.label + "." + w.instance
}

// settings are what the policies know of a world. Tests choose copied labels and annotations as they like.
func (w *world) settings() map[string]string {
	return map[string]string{
		"namespace-prefix": w.prefix, "mirror-label": w.label, "instance": w.instance, "copy-label": "*", "copy-annotation": "*",
		"leader-elect-resource-namespace": w.home,
	}
}

// boundAccount returns a ClusterRoleBinding as the policies find it: its subject is an account, and the settings stand in
// its annotations.
func boundAccount(name, role string, subject rbacv1.Subject, settings map[string]string) *rbacv1.ClusterRoleBinding {
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Labels: map[string]string{installationLabel: installation}, Annotations: map[string]string{},
		},
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
		Subjects: []rbacv1.Subject{subject},
	}
	for flag, value := range settings {
		binding.Annotations[plan.Domain+"/"+flag] = value
	}
	return binding
}

// confine has the policies in force, and the permission to have a Lease for the accounts of worlds.
func (s *site) confine(ctx context.Context) error {
	rendered, err := shipped.Render(deployed("default"))
	if err != nil {
		return err
	}
	objects := shipped.Manifests{object("v1", "Namespace", accountNamespace), object("v1", "Namespace", bareNamespace)}
	for _, o := range rendered {
		switch o.GetKind() {
		case "RoleBinding":
			o = o.DeepCopy()
			o.SetName(o.GetName() + "-of-worlds")
			o.Object["subjects"] = []any{map[string]any{
				"apiGroup": rbacv1.GroupName, "kind": rbacv1.GroupKind, "name": "system:serviceaccounts:" + accountNamespace,
			}}
			objects = append(objects, o)
		case "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding":
			if strings.HasPrefix(o.GetName(), confinedPolicy) {
				objects = append(objects, o)
			}
		}
	}
	if err := objects.Apply(ctx, s.cluster.Admin()); err != nil {
		return err
	}
	return s.waitConfined(ctx, s.installed.User)
}

// deployed returns the path of a folder of deploy/, beside the kustomization that the tests install.
func deployed(name string) string { return filepath.Join(filepath.Dir(*manifests), name) }

func object(apiVersion, kind, name string) *unstructured.Unstructured {
	o := &unstructured.Unstructured{}
	o.SetAPIVersion(apiVersion)
	o.SetKind(kind)
	o.SetName(name)
	return o
}

// waitConfined waits until the user is refused a ConfigMap that is no copy. Nothing tells when the API server has taken
// up a policy, and there is no world yet whose events would do for a clock.
func (s *site) waitConfined(ctx context.Context, user string) error {
	cfg := s.cluster.Admin()
	cfg.Impersonate = rest.ImpersonationConfig{UserName: user}
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return err
	}
	err = wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, patience, true, func(ctx context.Context) (bool, error) {
		_, err := client.CoreV1().ConfigMaps(metav1.NamespaceDefault).Create(ctx, configMap(metav1.NamespaceDefault, probeName),
			metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return refusedBy(err, confinedPolicy), nil
	})
	if err != nil {
		return fmt.Errorf("wait until %s is confined: %w", user, err)
	}
	return nil
}

// refusedBy reports whether the error is the refusal of a policy whose name begins so.
func refusedBy(err error, policy string) bool {
	return apierrors.IsForbidden(err) && strings.Contains(err.Error(), refusal+policy)
}

// refusal is what the API server says before the name of the policy that has refused a request.
const refusal = "ValidatingAdmissionPolicy '"

// takeAccount has the controllers of the world run from now on as the account for its settings.
func (w *world) takeAccount() {
	w.Helper()
	_, err := w.admin.CoreV1().ServiceAccounts(accountNamespace).Create(w.ctx,
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: w.account()}}, metav1.CreateOptions{})
	if err != nil {
		w.Fatal(err)
	}
	w.bindAccount(boundAccount(w.account(), "mirror-controller",
		rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: accountNamespace, Name: w.account()}, w.settings()))
	own := *w.site
	if own.installed, err = w.installed.As(w.ctx, accountNamespace, w.account()); err != nil {
		w.Fatal(err)
	}
	w.site = &own
	w.Cleanup(func() { w.expectConfined(own.installed.User) })
}

// setLeaseNamespace changes the namespace in which the policies let the account of the world have its Lease.
func (w *world) setLeaseNamespace(namespace string) {
	w.Helper()
	patch := fmt.Sprintf(`{"metadata": {"annotations": {"%s/leader-elect-resource-namespace": %q}}}`, plan.Domain, namespace)
	_, err := w.admin.RbacV1().ClusterRoleBindings().Patch(w.ctx, w.account(), types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	if err != nil {
		w.Fatal(err)
	}
}

// bindAccount creates the binding of an account until the test ends, and waits until the account has its permissions: the
// policies have read it by then, too. A policy judges each write once for each binding, so none stays behind.
func (w *world) bindAccount(binding *rbacv1.ClusterRoleBinding) {
	w.Helper()
	bindings := w.admin.RbacV1().ClusterRoleBindings()
	if _, err := bindings.Create(w.ctx, binding, metav1.CreateOptions{}); err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() { w.cleanUp(bindings.Delete(w.background(), binding.Name, metav1.DeleteOptions{})) })
	subject := binding.Subjects[0]
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User:               cluster.ServiceAccountUser(subject.Namespace, subject.Name),
		ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: "watch", Resource: "configmaps"},
	}}
	err := wait.PollUntilContextTimeout(w.ctx, 5*time.Millisecond, patience, true, func(ctx context.Context) (bool, error) {
		answer, err := w.admin.AuthorizationV1().SubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{})
		return err == nil && answer.Status.Allowed, err
	})
	if err != nil {
		w.Fatalf("wait for the permissions of %s: %v", binding.Name, err)
	}
}

// expectConfined fails the test if the policies had to refuse anything to the user. A self-check asks to be refused, and a
// controller may not have seen yet that the owner of a namespace with the prefix has opted out.
func (w *world) expectConfined(user string) {
	w.Helper()
	events, _, err := w.cluster.Audit().Since(w.mark)
	if err != nil {
		w.Error(err)
	}
	for _, e := range events {
		if e.User.Username == user && strings.Contains(e.Response.Message, refusal+confinedPolicy) &&
			!strings.Contains(e.RequestURI, "dryRun=All") &&
			!(strings.Contains(e.Response.Message, notThere) && strings.HasPrefix(e.Object.Namespace, w.prefix)) {
			w.Errorf("the policy had to refuse %v: %s", e, e.Response.Message)
			return // one shows what is wrong, and it may be one of thousands
		}
	}
}

// TestAccountsAreConfined has both kinds of accounts of a world ask for a copy in a target, and for one elsewhere. RBAC
// allows both.
func TestAccountsAreConfined(t *testing.T) {
	t.Parallel()
	w := &policed{newWorld(t, "a"), map[string]kubernetes.Interface{}}
	rules, _ := w.shippedRules()
	// As somebody else who impersonates it, by the audit log, or expectConfined would find the refusals.
	for _, user := range []string{w.installed.User, w.newAccount("bare", rules).user} {
		ask := func(namespace string) error {
			const name = "settings"
			cm := configMap(namespace, name, w.marksOfCopy(w.home, namespace, name)...)
			_, err := w.as(user).CoreV1().ConfigMaps(namespace).Create(w.ctx, cm, dryCreate)
			return err
		}
		w.until(user+" has its permissions", func() error { return ask(w.ns("a")) })
		expectAnswer(t, confinedPolicy, notThere, ask(w.home))
	}
}
