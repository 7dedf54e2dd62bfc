package e2e

import (
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mirror-controller/mirror-controller/e2e/cluster"
)

// account is a ServiceAccount of a test, for a controller with other permissions than the shipped one, or one that is to
// be told from another in the audit log.
type account struct {
	subject    rbacv1.Subject // a ClusterRole of the same name is its own
	user       string         // its name, as RBAC and the audit log have it
	kubeconfig string
}

// newAccount creates a ServiceAccount with rules that hold for the whole cluster. The policies confine it by the settings of
// the world.
func (w *world) newAccount(name string, rules []rbacv1.PolicyRule) *account {
	w.Helper()
	name = w.account() + "." + name
	a := &account{
		subject: rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: bareNamespace, Name: name},
		user:    cluster.ServiceAccountUser(bareNamespace, name),
	}
	w.Cleanup(func() { w.expectConfined(a.user) })
	_, err := w.admin.CoreV1().ServiceAccounts(bareNamespace).Create(w.ctx,
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	if err == nil {
		_, err = w.admin.RbacV1().ClusterRoles().Create(w.ctx,
			&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: rules}, metav1.CreateOptions{})
	}
	if err == nil {
		bindings := w.admin.RbacV1().ClusterRoleBindings()
		_, err = bindings.Create(w.ctx, boundAccount(name, name, a.subject, w.settings()), metav1.CreateOptions{})
		w.Cleanup(func() { w.cleanUp(bindings.Delete(w.background(), name, metav1.DeleteOptions{})) })
	}
	if err == nil {
		a.kubeconfig, err = w.cluster.ServiceAccountKubeconfig(w.ctx, bareNamespace, name)
	}
	if err != nil {
		w.Fatal(err)
	}
	return a
}

// setRules replaces the rules that hold for the whole cluster.
func (w *world) setRules(a *account, rules []rbacv1.PolicyRule) {
	w.Helper()
	_, err := w.admin.RbacV1().ClusterRoles().Update(w.ctx,
		&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: a.subject.Name}, Rules: rules}, metav1.UpdateOptions{})
	if err != nil {
		w.Fatal(err)
	}
}

// grant gives the account rules in one namespace.
func (w *world) grant(a *account, namespace string, rules []rbacv1.PolicyRule) {
	w.Helper()
	name := a.subject.Name
	_, err := w.admin.RbacV1().Roles(namespace).Create(w.ctx,
		&rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: rules}, metav1.CreateOptions{})
	if err == nil {
		_, err = w.admin.RbacV1().RoleBindings(namespace).Create(w.ctx, &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name},
			Subjects:   []rbacv1.Subject{a.subject},
		}, metav1.CreateOptions{})
	}
	if err != nil {
		w.Fatal(err)
	}
}

// shippedRules returns the rules that the manifests give the controller in the whole cluster, and in its own namespace.
func (w *world) shippedRules() (everywhere, atHome []rbacv1.PolicyRule) {
	w.Helper()
	clusterRoles, err := w.installed.Manifests.ClusterRoles()
	if err != nil {
		w.Fatal(err)
	}
	roles, err := w.installed.Manifests.Roles()
	if err != nil {
		w.Fatal(err)
	}
	for _, r := range clusterRoles {
		everywhere = append(everywhere, r.Rules...)
	}
	for _, r := range roles {
		atHome = append(atHome, r.Rules...)
	}
	return everywhere, atHome
}
