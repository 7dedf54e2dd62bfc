package suite

import (
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mirror-controller/mirror-controller/e2e/cluster"
)

// Account is a ServiceAccount of a test, for a controller with other permissions than the shipped one, or one that is
// to be told from another in the audit log.
type Account struct {
	role       string // its own ClusterRole
	User       string // its name, as RBAC and the audit log have it
	Kubeconfig string
}

// NewAccount creates a ServiceAccount with rules that hold for the whole cluster. The policies confine it by the
// settings of the world.
func (w *World) NewAccount(name string, rules []rbacv1.PolicyRule) *Account {
	w.Helper()
	name = w.Account() + "." + name
	a := &Account{role: name, User: cluster.ServiceAccountUser(bareNamespace, name)}
	w.Cleanup(func() { w.expectConfined(a.User) })
	_, err := w.Admin.CoreV1().ServiceAccounts(bareNamespace).Create(w.Context(),
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	if err == nil {
		_, err = w.Admin.RbacV1().ClusterRoles().Create(w.Context(),
			&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: rules}, metav1.CreateOptions{})
	}
	if err == nil {
		bindings := w.Admin.RbacV1().ClusterRoleBindings()
		subject := rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: bareNamespace, Name: name}
		_, err = bindings.Create(w.Context(), BoundAccount(name, name, subject, w.settings()), metav1.CreateOptions{})
		w.Cleanup(func() { w.CleanUp(bindings.Delete(w.Background(), name, metav1.DeleteOptions{})) })
	}
	if err == nil {
		a.Kubeconfig, err = w.Cluster.ServiceAccountKubeconfig(w.Context(), bareNamespace, name)
	}
	w.noError(err)
	return a
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
	clusterRoles, err := w.Installed.Manifests.ClusterRoles()
	w.noError(err)
	roles, err := w.Installed.Manifests.Roles()
	w.noError(err)
	for _, r := range clusterRoles {
		rules = append(rules, r.Rules...)
	}
	for _, r := range roles {
		rules = append(rules, r.Rules...)
	}
	return rules
}
