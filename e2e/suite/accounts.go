package suite

import (
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mirror-controller/mirror-controller/e2e/shipped"
)

// Account is a ServiceAccount of a test, for a controller with other permissions than the shipped one, or one that is
// to be told from another in the audit log.
type Account struct {
	role       string // its own ClusterRole
	User       string // its name, as RBAC and the audit log have it
	Kubeconfig string
}

// NewAccount creates a ServiceAccount with rules that hold for the whole cluster.
func (w *World) NewAccount(name string, rules []rbacv1.PolicyRule) *Account {
	w.Helper()
	name = w.Account() + "." + name
	_, err := w.Admin.RbacV1().ClusterRoles().Create(w.Context(),
		&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: rules}, metav1.CreateOptions{})
	w.noError(err)
	as := w.installedAs(bareNamespace, name, name)
	return &Account{role: name, User: as.User, Kubeconfig: as.Kubeconfig}
}

// installedAs returns the installation as a new ServiceAccount with a role for the whole cluster. The policies confine
// it by the settings of the world, and the test fails if they have to refuse it anything.
func (w *World) installedAs(namespace, name, role string) *shipped.Installation {
	w.Helper()
	_, err := w.Admin.CoreV1().ServiceAccounts(namespace).Create(w.Context(),
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	w.noError(err)
	subject := rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: name}
	w.BindAccount(BoundAccount(name, role, subject, w.settings()))
	as, err := w.Installed.As(w.Context(), namespace, name)
	w.noError(err)
	w.Cleanup(func() { w.expectConfined(as.User) })
	return as
}

// SetRules replaces the rules that hold for the whole cluster.
func (w *World) SetRules(a *Account, rules []rbacv1.PolicyRule) {
	w.Helper()
	_, err := w.Admin.RbacV1().ClusterRoles().Update(w.Context(),
		&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: a.role}, Rules: rules}, metav1.UpdateOptions{})
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
