package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/mirror-controller/mirror-controller/mirror"
)

// facts are what the cluster tells of an installation. The checks decide by them alone.
type facts struct {
	now      time.Time // by the clock of the API server
	expected []string  // the policies that have to be in force

	found   bool   // whether there is an installation
	hidden  string // the permissions without which that cannot be known
	key     types.NamespacedName
	account types.NamespacedName

	// binding is the ClusterRoleBinding of the account by the label, or else any that names the account. others are those of
	// other installations.
	binding    fact[*rbacv1.ClusterRoleBinding]
	others     []rbacv1.ClusterRoleBinding
	deployment fact[*appsv1.Deployment]
	process    processOptions
	lease      fact[*coordinationv1.Lease]
	granted    fact[grants]
	server     fact[string] // version of the API server

	policies       fact[[]admissionv1.ValidatingAdmissionPolicy]
	policyBindings fact[[]admissionv1.ValidatingAdmissionPolicyBinding]
	probes         fact[[]probe]
}

// fact is what the cluster has, or the permission without which that cannot be known, such as "list deployments.apps".
type fact[T any] struct {
	value   T
	missing string
}

// find asks for a fact, and returns the zero value if the cluster does not have it.
func find[T any](permission string, ask func() (T, error)) (fact[T], error) {
	value, err := ask()
	switch {
	case apierrors.IsForbidden(err):
		return fact[T]{missing: permission}, nil
	case apierrors.IsNotFound(err):
		return fact[T]{}, nil
	case err != nil:
		return fact[T]{}, fmt.Errorf("%s: %w", permission, err)
	}
	return fact[T]{value: value}, nil
}

// processOptions are the arguments of the Deployment.
type processOptions struct {
	*mirror.Options
	leaderElect               bool
	leaseName, leaseNamespace string
	invalid                   error
}

// optionsOf reads the arguments of a Deployment, or returns the defaults if there is none.
func optionsOf(d *appsv1.Deployment, namespace string) processOptions {
	s := &settings{Options: mirror.NewOptions()}
	o := processOptions{Options: s.Options, leaseName: "mirror-controller", leaseNamespace: namespace}
	if d == nil {
		return o
	}
	fs := pflag.NewFlagSet(program, pflag.ContinueOnError)
	fs.ParseErrorsAllowlist.UnknownFlags = true
	fs.BoolVar(&o.leaderElect, "leader-elect", false, "")
	fs.StringVar(&o.leaseName, "leader-elect-resource-name", o.leaseName, "")
	fs.StringVar(&o.leaseNamespace, "leader-elect-resource-namespace", d.Namespace, "")
	fs.BoolVar(&o.DryRun, "dry-run", false, "")
	o.invalid = errors.Join(s.readArguments(d), fs.Parse(argumentsOf(d)))
	if o.invalid == nil {
		o.invalid = o.Options.Options.Validate()
	}
	return o
}

// factReader reads facts.
type factReader struct {
	*facts
	client kubernetes.Interface
}

// readFacts reads what there is of the controller that is named, or of the only one, where these policies are expected.
func (c *cli) readFacts(ctx context.Context, controller string, expected []string) (*facts, error) {
	client, err := c.client()
	if err != nil {
		return nil, err
	}
	r := &factReader{facts: &facts{expected: expected}, client: client}
	roles, err := r.readInstallation(ctx, controller)
	if err != nil || !r.found {
		return r.facts, err
	}
	r.process = optionsOf(r.deployment.value, r.account.Namespace)
	for _, read := range []func(context.Context) error{
		r.readClock, r.readServer, r.readLease, r.readPolicies,
		func(ctx context.Context) error { return r.readGrants(ctx, roles) },
		func(ctx context.Context) error { return c.readProbes(ctx, r) },
	} {
		if err := read(ctx); err != nil {
			return nil, err
		}
	}
	return r.facts, nil
}

// readInstallation finds the installation, and returns all ClusterRoleBindings.
func (r *factReader) readInstallation(ctx context.Context, controller string) (fact[[]rbacv1.ClusterRoleBinding], error) {
	all, err := find("list clusterrolebindings.rbac.authorization.k8s.io", func() ([]rbacv1.ClusterRoleBinding, error) {
		list, err := r.client.RbacV1().ClusterRoleBindings().List(ctx, metav1.ListOptions{})
		return list.Items, err
	})
	if err != nil {
		return all, err
	}
	deployments, err := r.findDeployments(ctx, controller)
	if err != nil {
		return all, err
	}
	installed := pair(labelledBindings(all.value), deployments.value)
	if len(installed) == 0 {
		if all.missing != "" || deployments.missing != "" {
			r.hidden = strings.Join(nonEmpty([]string{all.missing, deployments.missing}), ", nor ")
			return all, nil
		}
		if controller == "" {
			return all, nil
		}
	}
	in, err := choose(installed, controller)
	if err != nil {
		return all, err
	}
	r.found, r.key, r.account = true, in.key, in.account
	r.binding = fact[*rbacv1.ClusterRoleBinding]{value: in.binding, missing: all.missing}
	if in.binding == nil {
		r.binding.value = bindingOfAccount(all.value, in.account)
	}
	r.others = slices.DeleteFunc(labelledBindings(all.value), func(b rbacv1.ClusterRoleBinding) bool {
		return r.binding.value != nil && b.Name == r.binding.value.Name
	})
	r.deployment.value = in.deployment
	if in.deployment == nil {
		r.deployment, err = r.findDeploymentOf(ctx, in.account)
		if controller != "" && deployments.missing == "" {
			r.deployment.missing = "" // there is none of the name that was given
		}
	}
	if r.deployment.value != nil {
		r.key = types.NamespacedName{Namespace: r.deployment.value.Namespace, Name: r.deployment.value.Name}
	}
	return all, err
}

// findDeployments returns the Deployment that is named, or all that have the label.
func (r *factReader) findDeployments(ctx context.Context, controller string) (fact[[]appsv1.Deployment], error) {
	namespace, name, named := strings.Cut(controller, "/")
	if !named {
		return find("list deployments.apps", func() ([]appsv1.Deployment, error) {
			list, err := r.client.AppsV1().Deployments(metav1.NamespaceAll).List(ctx, metav1.ListOptions{LabelSelector: deploymentSelector})
			return list.Items, err
		})
	}
	return find("get deployments.apps in namespace "+namespace, func() ([]appsv1.Deployment, error) {
		d, err := r.client.AppsV1().Deployments(namespace).Get(ctx, name, metav1.GetOptions{})
		return []appsv1.Deployment{*d}, err
	})
}

// findDeploymentOf returns the Deployment that runs as the account, whatever labels it has.
func (r *factReader) findDeploymentOf(ctx context.Context, account types.NamespacedName) (fact[*appsv1.Deployment], error) {
	return find("list deployments.apps in namespace "+account.Namespace, func() (*appsv1.Deployment, error) {
		list, err := r.client.AppsV1().Deployments(account.Namespace).List(ctx, metav1.ListOptions{})
		i := slices.IndexFunc(list.Items, func(d appsv1.Deployment) bool { return accountOf(&d) == account })
		if err != nil || i < 0 {
			return nil, err
		}
		return &list.Items[i], nil
	})
}

// labelledBindings returns those that the policies find.
func labelledBindings(all []rbacv1.ClusterRoleBinding) (out []rbacv1.ClusterRoleBinding) {
	for _, b := range all {
		if _, ok := b.Labels[installationLabel]; ok {
			out = append(out, b)
		}
	}
	return out
}

// bindingOfAccount returns the ClusterRoleBinding that names the account, best one that has settings.
func bindingOfAccount(all []rbacv1.ClusterRoleBinding, account types.NamespacedName) (found *rbacv1.ClusterRoleBinding) {
	for i := range all {
		if namesAccount(all[i].Subjects, account) && (found == nil || !annotated(found) && annotated(&all[i])) {
			found = &all[i]
		}
	}
	return found
}

// readClock asks for the time of the API server, because the user's machine may have another. Everybody may ask.
func (r *factReader) readClock(ctx context.Context) error {
	r.now = time.Now()
	review, err := r.client.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err == nil && !review.CreationTimestamp.IsZero() {
		r.now = review.CreationTimestamp.Time
	}
	return nil
}

func (r *factReader) readServer(context.Context) (err error) {
	r.server, err = find("get /version", func() (string, error) {
		info, err := r.client.Discovery().ServerVersion()
		if err != nil {
			return "", err
		}
		return info.GitVersion, nil
	})
	return err
}

func (r *factReader) readLease(ctx context.Context) (err error) {
	namespace, name := r.process.leaseNamespace, r.process.leaseName
	if !r.process.leaderElect {
		return nil
	}
	r.lease, err = find("get leases.coordination.k8s.io in namespace "+namespace, func() (*coordinationv1.Lease, error) {
		return r.client.CoordinationV1().Leases(namespace).Get(ctx, name, metav1.GetOptions{})
	})
	return err
}

// readPolicies reads the policies. An API server that does not know the kind has none.
func (r *factReader) readPolicies(ctx context.Context) (err error) {
	const group = ".admissionregistration.k8s.io"
	r.policies, err = find("list validatingadmissionpolicies"+group, func() ([]admissionv1.ValidatingAdmissionPolicy, error) {
		list, err := r.client.AdmissionregistrationV1().ValidatingAdmissionPolicies().List(ctx, metav1.ListOptions{})
		return list.Items, err
	})
	if err != nil {
		return err
	}
	r.policyBindings, err = find("list validatingadmissionpolicybindings"+group, func() ([]admissionv1.ValidatingAdmissionPolicyBinding, error) {
		list, err := r.client.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings().List(ctx, metav1.ListOptions{})
		return list.Items, err
	})
	return err
}
