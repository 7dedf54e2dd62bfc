package installation

import (
	"cmp"
	"context"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// checker has the objects that more than one check is about, and why it has not got one.
type checker struct {
	CheckOptions
	*Installation
	noDeployment, noBinding error
	process                 *Process
	invalid                 error                       // an argument of the Deployment
	roles                   []rbacv1.ClusterRoleBinding // all of the cluster
	noRoles                 error
	policies                []admissionv1.ValidatingAdmissionPolicy
	policyBindings          []admissionv1.ValidatingAdmissionPolicyBinding
	noPolicies              error
}

// answer returns an answer of the API server, which is empty if there is no object of the name. The error is an [Unknown] if the user lacks
// the permission: it has the words of the API server.
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

// find finds the installation and the objects around it. The error is a task if there is none, and an [Unknown] if the user may not see it.
func (c *checker) find(ctx context.Context) error {
	bindings, err := answer(c.Client.RbacV1().ClusterRoleBindings().List(ctx, metav1.ListOptions{}))
	c.roles, c.noRoles, c.noBinding = bindings.Items, err, err
	deployments, err := c.deployments(ctx)
	c.noDeployment = err
	all, hidden := pair(c.labelled(), deployments), cmp.Or(c.noBinding, c.noDeployment)
	switch {
	case len(all) == 0 && hidden != nil:
		return hidden
	case len(all) == 0 && c.Controller == "":
		return todo("install it as deploy/docs/install.md says",
			"there is no controller: no ClusterRoleBinding has the label %s, and no Deployment the label %s", Label, DeploymentSelector)
	}
	if c.Installation, err = choose(all, c.Controller); err != nil {
		return err
	}
	labelled := c.Binding != nil
	for i := range c.roles { // without a label, the best one is that which has settings
		if b := &c.roles[i]; !labelled && c.isNamed(b.Subjects) && (c.Binding == nil || !annotated(c.Binding) && annotated(b)) {
			c.Binding = b
		}
	}
	if c.Binding == nil && c.noBinding == nil {
		c.noBinding = todo("install it as deploy/base/rbac.yaml says", "no ClusterRoleBinding names ServiceAccount %s", c.Account)
	}
	if c.Deployment == nil && c.noDeployment == nil {
		c.noDeployment = todo("install it as deploy/docs/install.md says", "no Deployment runs as ServiceAccount %s", c.Account)
	}
	c.process, c.invalid = c.Process()
	policies, errA := answer(c.Client.AdmissionregistrationV1().ValidatingAdmissionPolicies().List(ctx, metav1.ListOptions{}))
	bound, errB := answer(c.Client.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings().List(ctx, metav1.ListOptions{}))
	c.policies, c.policyBindings, c.noPolicies = policies.Items, bound.Items, cmp.Or(errA, errB)
	return nil
}

// deployments returns the Deployment that the user names, or those that have the label. To name one takes no permission to list.
func (c *checker) deployments(ctx context.Context) ([]appsv1.Deployment, error) {
	namespace, name, named := strings.Cut(c.Controller, "/")
	if named {
		if d, err := answer(c.Client.AppsV1().Deployments(namespace).Get(ctx, name, metav1.GetOptions{})); err != nil {
			return nil, err
		} else if d.Name != "" {
			return []appsv1.Deployment{*d}, nil
		}
	}
	list, err := answer(c.Client.AppsV1().Deployments(metav1.NamespaceAll).List(ctx, metav1.ListOptions{LabelSelector: DeploymentSelector}))
	if _, refused := err.(Unknown); named && refused {
		err = nil
	}
	return list.Items, err
}

// labelled returns the ClusterRoleBindings that the policies can find.
func (c *checker) labelled() []rbacv1.ClusterRoleBinding {
	return slices.DeleteFunc(slices.Clone(c.roles), func(b rbacv1.ClusterRoleBinding) bool {
		_, has := b.Labels[Label]
		return !has
	})
}
