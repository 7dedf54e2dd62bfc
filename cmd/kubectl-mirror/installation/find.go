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

	noBinding, noDeployment error // why the user may not see all of them
}

// Unknown is an error that says which permission the user lacks.
type Unknown string

func (u Unknown) Error() string { return string(u) }

// answer returns an answer of the API server, which is empty if there is no object of the name. The error is an [Unknown] if the
// user lacks the permission: it has the words of the API server.
func answer[T any](object T, err error) (T, error) {
	switch {
	case apierrors.IsNotFound(err):
		return object, nil
	case apierrors.IsForbidden(err):
		_, action, _ := strings.Cut(err.Error(), " cannot ")
		return object, Unknown("you may not " + cmp.Or(action, "ask: "+err.Error()))
	}
	return object, err
}

// List returns the controllers of the cluster, sorted. hidden says why the user may not see all of them. To see the Deployment
// with the key takes no permission to list Deployments.
func List(ctx context.Context, client kubernetes.Interface, key string) (all []*Installation, hidden, err error) {
	bindings, noBindings := answer(client.RbacV1().ClusterRoleBindings().List(ctx, metav1.ListOptions{LabelSelector: Label}))
	deployments, noDeployments := listDeployments(ctx, client, key)
	for _, err := range []error{noBindings, noDeployments} {
		if _, refused := err.(Unknown); err != nil && !refused {
			return nil, nil, fmt.Errorf("find controllers: %w", err)
		}
	}
	all = pair(bindings.Items, deployments)
	for _, in := range all {
		in.noBinding, in.noDeployment = noBindings, noDeployments
		if in.Deployment == nil && noDeployments == nil && key == "" {
			in.findDeployment(ctx, client)
		}
	}
	return all, cmp.Or(noBindings, noDeployments), nil
}

// findDeployment finds a Deployment that lacks the label, as with another name of the chart, by its ServiceAccount.
func (in *Installation) findDeployment(ctx context.Context, client kubernetes.Interface) {
	list, err := answer(client.AppsV1().Deployments(in.Account.Namespace).List(ctx, metav1.ListOptions{}))
	in.noDeployment = err
	for i := range list.Items {
		if d := &list.Items[i]; accountOf(d) == in.Account {
			in.Key.Name, in.Deployment = d.Name, d
		}
	}
}

// Keys returns the keys of the controllers of the cluster that the user may see.
func Keys(ctx context.Context, client kubernetes.Interface) (keys []string, err error) {
	all, _, err := List(ctx, client, "")
	for _, in := range all {
		keys = append(keys, in.Key.String())
	}
	return keys, err
}

// listDeployments returns the Deployment with the key, or those that have the label.
func listDeployments(ctx context.Context, client kubernetes.Interface, key string) ([]appsv1.Deployment, error) {
	namespace, name, named := strings.Cut(key, "/")
	var notNamed error
	if named {
		d, err := answer(client.AppsV1().Deployments(namespace).Get(ctx, name, metav1.GetOptions{}))
		if err == nil && d.Name != "" {
			return []appsv1.Deployment{*d}, nil
		}
		notNamed = err
	}
	all := client.AppsV1().Deployments(metav1.NamespaceAll)
	list, err := answer(all.List(ctx, metav1.ListOptions{LabelSelector: DeploymentSelector}))
	if _, refused := err.(Unknown); named && refused {
		err = notNamed
	}
	return list.Items, err
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

// find returns the installation with the key, or the only one.
func find(ctx context.Context, client kubernetes.Interface, key string) (*Installation, error) {
	all, hidden, err := List(ctx, client, key)
	if err != nil {
		return nil, err
	}
	in, err := choose(all, key)
	if err != nil && hidden != nil {
		return nil, fmt.Errorf("cannot find the controller: %w: give its flags, at least --namespace-prefix", hidden)
	}
	return in, err
}

// choose returns the installation with this key, which may be that of its ServiceAccount, or the only one.
func choose(all []*Installation, key string) (*Installation, error) {
	var keys []string
	for _, in := range all {
		if key != "" && (in.Key.String() == key || in.Account.String() == key) {
			return in, nil
		}
		keys = append(keys, in.Key.String())
	}
	names := cmp.Or(strings.Join(keys, ", "), "(there is none)")
	switch {
	case key != "":
		return nil, fmt.Errorf("--controller=%q: no such controller, must be one of: %s", key, names)
	case len(all) == 0:
		return nil, fmt.Errorf("found no controller: no ClusterRoleBinding has the label %s, and no Deployment the label %s: "+
			"give the flags of the controller, at least --namespace-prefix", Label, DeploymentSelector)
	case len(all) > 1:
		return nil, fmt.Errorf("found %d controllers: choose one with --controller: %s", len(all), names)
	}
	return all[0], nil
}
