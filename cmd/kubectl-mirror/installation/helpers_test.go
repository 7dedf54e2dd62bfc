package installation

import (
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// bindingOf returns a ClusterRoleBinding of an account in mirror-system. The annotations are flags and values in turn.
func bindingOf(name, account string, annotations ...string) rbacv1.ClusterRoleBinding {
	b := rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{}},
		RoleRef:    rbacv1.RoleRef{Kind: "ClusterRole", Name: "controller"},
		Subjects: []rbacv1.Subject{
			{Kind: rbacv1.GroupKind, Name: "everybody"},
			{Kind: rbacv1.ServiceAccountKind, Namespace: "mirror-system", Name: account},
		},
	}
	for i := 0; i < len(annotations); i += 2 {
		b.Annotations[plan.Domain+"/"+annotations[i]] = annotations[i+1]
	}
	return b
}

// deploymentOf returns a Deployment in mirror-system. A service mesh has put a container before that of the controller.
func deploymentOf(name, account string, args ...string) appsv1.Deployment {
	d := appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "mirror-system", Name: name}}
	d.Spec.Template.Spec.ServiceAccountName = account
	d.Spec.Template.Spec.Containers = []corev1.Container{{Name: "proxy", Args: []string{"--instance=proxy"}}, {Name: "mirror-controller", Args: args}}
	return d
}
