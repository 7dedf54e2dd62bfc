package suite

import (
	"context"
	"path/filepath"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/mirror-controller/mirror-controller/e2e/cluster"
	"github.com/mirror-controller/mirror-controller/e2e/shipped"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// The shipped policies that confine the controller are in force for all tests. They take account and settings from
// ClusterRoleBindings, and each world has an account, and a binding, of its own. A refusal fails the test, so that no
// test is green because a policy has prevented the wrong write.
const (
	ConfinedPolicy   = "mirror-controller-confined"
	AccountNamespace = "mirror-worlds"
	// bareNamespace has the accounts that get other permissions than the shipped ones.
	bareNamespace = AccountNamespace + "-bare"
	// InstallationLabel is the label by which the policies find a ClusterRoleBinding.
	InstallationLabel = plan.Domain + "/installation"
)

// Account is the name of the account of a world, and of its ClusterRoleBinding. A part of a name cannot end with the
// dash of a prefix.
func (w *World) Account() string {
	return strings.TrimSuffix(w.Prefix, "-") + "." + w.Label + "." + w.Instance
}

// BoundAccount returns a ClusterRoleBinding as the policies find it: its subject is an account, and the settings stand
// in its annotations.
func BoundAccount(name, role string, subject rbacv1.Subject, settings map[string]string) *rbacv1.ClusterRoleBinding {
	meta := metav1.ObjectMeta{Name: name}
	metav1.SetMetaDataLabel(&meta, InstallationLabel, "mirror-controller") // as shipped
	for flag, value := range settings {
		metav1.SetMetaDataAnnotation(&meta, plan.Domain+"/"+flag, value)
	}
	return &rbacv1.ClusterRoleBinding{
		ObjectMeta: meta,
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
		Subjects:   []rbacv1.Subject{subject},
	}
}

// confine has the policies in force, and the permission to have a Lease for the accounts of worlds.
func (s *Site) confine(ctx context.Context) error {
	rendered, err := shipped.Render(Deployed("default"))
	if err != nil {
		return err
	}
	if err := cluster.CreateNamespaces(ctx, s.Admin, AccountNamespace, bareNamespace); err != nil {
		return err
	}
	objects := rendered.Granted(AccountNamespace, "RoleBinding")
	for _, o := range rendered {
		if strings.HasPrefix(o.GetKind(), "ValidatingAdmissionPolicy") && strings.HasPrefix(o.GetName(), ConfinedPolicy) {
			objects = append(objects, o)
		}
	}
	if err := objects.Apply(ctx, s.Cluster.Admin()); err != nil {
		return err
	}
	cfg := s.Cluster.Admin()
	cfg.Impersonate.UserName = s.Installed.User
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return err
	}
	return untilRefused(ctx, client, metav1.NamespaceDefault, Refusal+ConfinedPolicy)
}

// Deployed returns the path of a folder of deploy/, beside the kustomization that the tests install.
func Deployed(name string) string { return filepath.Join(filepath.Dir(*Manifests), name) }

// RefusedBy reports whether the error is the refusal of a policy whose name begins so.
func RefusedBy(err error, policy string) bool {
	return apierrors.IsForbidden(err) && strings.Contains(err.Error(), Refusal+policy)
}

// Refusal is what the API server says before the name of the policy that has refused a request.
const Refusal = "ValidatingAdmissionPolicy '"

// takeAccount has the controllers of the world run from now on as the account for its settings.
func (w *World) takeAccount() {
	w.Helper()
	site := *w.Site
	site.Installed = w.installedAs(AccountNamespace, w.Account(), "mirror-controller")
	w.Site = &site
}

// BindAccount creates the binding of an account until the test ends, and waits until the account has its permissions:
// the policies have read it by then, too. A policy judges each write once for each binding, so none stays behind.
func (w *World) BindAccount(binding *rbacv1.ClusterRoleBinding) {
	w.Helper()
	bindings := w.Admin.RbacV1().ClusterRoleBindings()
	_, err := bindings.Create(w.Context(), binding, metav1.CreateOptions{})
	w.noError(err)
	w.Cleanup(func() { w.CleanUp(bindings.Delete(w.Background(), binding.Name, metav1.DeleteOptions{})) })
	subject := binding.Subjects[0]
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User:               cluster.ServiceAccountUser(subject.Namespace, subject.Name),
		ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: "create", Resource: "events"},
	}}
	w.Await("the permissions of "+binding.Name, func() bool {
		answer, err := w.Admin.AuthorizationV1().SubjectAccessReviews().Create(w.Context(), review, metav1.CreateOptions{})
		return err == nil && answer.Status.Allowed
	})
}

// NotThere is what the policy says of a namespace that is no target.
const NotThere = "is not one of them"

// expectConfined fails the test if the policies had to refuse anything to the user. A controller may not have seen yet
// that the owner of a namespace with the prefix has opted out.
func (w *World) expectConfined(user string) {
	w.Helper()
	events, _, err := w.Cluster.Audit().Since(w.Mark)
	w.CleanUp(err)
	for _, e := range events {
		if e.User.Username == user && strings.Contains(e.Response.Message, Refusal+ConfinedPolicy) &&
			!(strings.Contains(e.Response.Message, NotThere) && strings.HasPrefix(e.Object.Namespace, w.Prefix)) {
			w.Errorf("the policy had to refuse %v: %s", e, e.Response.Message)
			return // one shows what is wrong, and it may be one of thousands
		}
	}
}

// Account is a ServiceAccount of a test, for a controller with other permissions than the shipped one, or one that is
// to be told from another in the audit log.
type Account struct {
	role       *rbacv1.ClusterRole
	User       string // its name, as RBAC and the audit log have it
	Kubeconfig string
}

// NewAccount creates a ServiceAccount with rules that hold for the whole cluster.
func (w *World) NewAccount(name string, rules []rbacv1.PolicyRule) *Account {
	w.Helper()
	name = w.Account() + "." + name
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: rules}
	_, err := w.Admin.RbacV1().ClusterRoles().Create(w.Context(), role, metav1.CreateOptions{})
	w.noError(err)
	as := w.installedAs(bareNamespace, name, name)
	return &Account{role: role, User: as.User, Kubeconfig: as.Kubeconfig}
}

// installedAs returns the installation as a new ServiceAccount with a role for the whole cluster. The policies confine
// it by the settings of the world, and the test fails if they have to refuse it anything.
func (w *World) installedAs(namespace, name, role string) *shipped.Installation {
	w.Helper()
	_, err := w.Admin.CoreV1().ServiceAccounts(namespace).Create(w.Context(),
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	w.noError(err)
	subject := rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: name}
	w.BindAccount(BoundAccount(name, role, subject, map[string]string{
		"namespace-prefix": w.Prefix, "mirror-label": w.Label, "instance": w.Instance,
		"leader-elect-resource-namespace": w.Home,
	}))
	as, err := w.Installed.As(w.Context(), namespace, name)
	w.noError(err)
	w.Cleanup(func() { w.expectConfined(as.User) })
	return as
}

// SetRules replaces the rules that hold for the whole cluster.
func (w *World) SetRules(a *Account, rules []rbacv1.PolicyRule) {
	w.Helper()
	a.role.Rules = rules
	_, err := w.Admin.RbacV1().ClusterRoles().Update(w.Context(), a.role, metav1.UpdateOptions{})
	w.noError(err)
}

// ShippedRules returns all rules that the manifests give the controller, those in its own namespace too.
func (w *World) ShippedRules() (rules []rbacv1.PolicyRule) {
	w.Helper()
	roles, err := w.Installed.Manifests.Roles()
	w.noError(err)
	for _, r := range roles {
		rules = append(rules, r.Rules...)
	}
	return rules
}
