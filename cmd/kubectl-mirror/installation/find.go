package installation

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// By these labels the objects of an installation are found.
const (
	Label              = plan.Domain + "/installation"
	DeploymentSelector = "app.kubernetes.io/name=mirror-controller"
)

// Installation is one controller, as its objects in the cluster tell. One of Binding and Deployment may be nil.
type Installation struct {
	Key        types.NamespacedName // of its Deployment, or else of its ServiceAccount
	Account    types.NamespacedName
	Binding    *rbacv1.ClusterRoleBinding
	Deployment *appsv1.Deployment
}

// Hidden is the error if the user may see no controller.
type Hidden struct{ resources []string }

func (h *Hidden) Error() string {
	return fmt.Sprintf("cannot find the controller: you may not list %s: give its flags, at least --namespace-prefix", strings.Join(h.resources, ", nor "))
}

// find returns the installation with the key, or the only one.
func find(ctx context.Context, client kubernetes.Interface, key string) (*Installation, error) {
	all, hidden, err := List(ctx, client)
	if err != nil {
		return nil, err
	}
	in, err := choose(all, key)
	if err != nil && hidden != nil {
		return nil, hidden
	}
	return in, err
}

// List returns the controllers of the cluster, sorted. hidden is not nil if the user may not see all of them.
func List(ctx context.Context, client kubernetes.Interface) (all []*Installation, hidden *Hidden, err error) {
	var resources []string
	bindings, err := client.RbacV1().ClusterRoleBindings().List(ctx, metav1.ListOptions{LabelSelector: Label})
	switch {
	case apierrors.IsForbidden(err):
		resources, bindings = append(resources, "clusterrolebindings"), &rbacv1.ClusterRoleBindingList{}
	case err != nil:
		return nil, nil, fmt.Errorf("list ClusterRoleBindings: %w", err)
	}
	deployments, err := client.AppsV1().Deployments(metav1.NamespaceAll).List(ctx, metav1.ListOptions{LabelSelector: DeploymentSelector})
	switch {
	case apierrors.IsForbidden(err):
		resources, deployments = append(resources, "deployments"), &appsv1.DeploymentList{}
	case err != nil:
		return nil, nil, fmt.Errorf("list Deployments: %w", err)
	}
	if len(resources) > 0 {
		hidden = &Hidden{resources}
	}
	return pair(bindings.Items, deployments.Items), hidden, nil
}

// pair returns the installations that the objects belong to, sorted. A Deployment and a ClusterRoleBinding belong together by
// the ServiceAccount.
func pair(bindings []rbacv1.ClusterRoleBinding, deployments []appsv1.Deployment) []*Installation {
	byAccount := map[types.NamespacedName]*Installation{}
	for i := range bindings {
		for _, s := range bindings[i].Subjects {
			if s.Kind == rbacv1.ServiceAccountKind {
				account := types.NamespacedName{Namespace: s.Namespace, Name: s.Name}
				byAccount[account] = &Installation{Key: account, Account: account, Binding: &bindings[i]}
			}
		}
	}
	var out []*Installation
	for i := range deployments {
		d := &deployments[i]
		in := &Installation{Key: types.NamespacedName{Namespace: d.Namespace, Name: d.Name}, Account: accountOf(d), Deployment: d}
		if known := byAccount[in.Account]; known != nil {
			in.Binding = known.Binding
			delete(byAccount, in.Account)
		}
		out = append(out, in)
	}
	for _, in := range byAccount {
		out = append(out, in)
	}
	slices.SortFunc(out, func(a, b *Installation) int { return strings.Compare(a.Key.String(), b.Key.String()) })
	return out
}

// accountOf returns the ServiceAccount as which a Deployment runs.
func accountOf(d *appsv1.Deployment) types.NamespacedName {
	return types.NamespacedName{Namespace: d.Namespace, Name: cmp.Or(d.Spec.Template.Spec.ServiceAccountName, "default")}
}

// Instance returns the instance by the annotations alone.
func (in *Installation) Instance() string {
	return in.annotation("instance", plan.NewOptions().Instance)
}

// Keys returns the keys of installations.
func Keys(all []*Installation) (keys []string) {
	for _, in := range all {
		keys = append(keys, in.Key.String())
	}
	return keys
}

// choose returns the installation with this key, which may be that of its ServiceAccount, or the only one.
func choose(all []*Installation, key string) (*Installation, error) {
	switch {
	case key != "":
		for _, in := range all {
			if in.Key.String() == key || in.Account.String() == key {
				return in, nil
			}
		}
		return nil, fmt.Errorf("--controller=%q: no such controller, must be one of: %s", key, cmp.Or(strings.Join(Keys(all), ", "), "(there is none)"))
	case len(all) == 1:
		return all[0], nil
	case len(all) == 0:
		return nil, fmt.Errorf("found no controller: no ClusterRoleBinding has the label %s, and no Deployment the label %s: "+
			"give the flags of the controller, at least --namespace-prefix", Label, DeploymentSelector)
	}
	return nil, fmt.Errorf("found %d controllers: choose one with --controller: %s", len(all), strings.Join(Keys(all), ", "))
}
