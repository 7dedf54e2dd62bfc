package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// What keeps copies from being purged: a controller that would restore them, and a policy that protects them.

// errUnknown says what the user may not ask.
type errUnknown string

func (e errUnknown) Error() string { return string(e) }

// objections returns why the copies should not be deleted now, each with what would change that.
func (p *purge) objections(ctx context.Context, found *purgeable) ([]string, error) {
	if len(found.Copies) == 0 {
		return nil, nil
	}
	all, refused, err := installations(ctx, p.cluster.client)
	if err != nil {
		return nil, err
	}
	if len(all) == 0 && len(refused) > 0 {
		return nil, errUnknown("you may not list " + strings.Join(refused, ", nor "))
	}
	namespaces := map[string]*corev1.Namespace{}
	listed, err := p.cluster.listNamespaces(ctx)
	if err != nil {
		return nil, err
	}
	for _, ns := range listed {
		namespaces[ns.Name] = ns
	}
	var out []string
	for _, in := range all {
		s, err := in.settings()
		switch {
		case err != nil && in.isOfAnother(p.settings.Instance):
			continue
		case err != nil:
			return out, errUnknown(err.Error())
		case s.Instance != p.settings.Instance || s.Label != p.settings.Label:
			continue
		}
		mine, err := p.objectionsOf(ctx, in, s, found, namespaces)
		out = append(out, mine...)
		if err != nil {
			return out, err
		}
	}
	return out, nil
}

// isOfAnother reports whether the annotations alone tell that the controller has another instance: its other settings may be
// malformed.
func (in *installation) isOfAnother(instance string) bool {
	return in.binding != nil && cmp.Or(in.binding.Annotations[plan.Domain+"/instance"], plan.NewOptions().Instance) != instance
}

// objectionsOf returns the objections that one controller of the instance gives rise to.
func (p *purge) objectionsOf(ctx context.Context, in *installation, s *settings, found *purgeable, namespaces map[string]*corev1.Namespace) ([]string, error) {
	rules := plan.NewRules(&s.Options.Options)
	var out []string
	if n := found.wanted(rules, namespaces); n > 0 {
		sign, err := p.signOfLife(ctx, in)
		if err != nil {
			return nil, err
		}
		if sign != "" {
			out = append(out, fmt.Sprintf("Controller %s would restore %d of %d copies: %s. Take the label off the sources (kubectl -n NAMESPACE "+
				"label configmap NAME %s-), or stop the controller", in.key, n, len(found.Copies), sign, s.Label))
		}
	}
	if slices.ContainsFunc(found.Copies, func(c *oneCopy) bool { return rules.AllowsTarget(c.Namespace) }) {
		bound, err := p.protectedBy(ctx, in)
		if err != nil {
			return out, err
		}
		for _, name := range bound {
			out = append(out, "A policy lets nobody but the controller delete copies. To lift it: "+liftCommand(name))
		}
	}
	return out, nil
}

func liftCommand(binding string) string {
	return "kubectl delete validatingadmissionpolicybinding " + binding
}

// election is what the arguments of a controller say about its Lease.
type election struct {
	lease  types.NamespacedName
	dryRun bool // it writes nothing, and holds no Lease
}

// election returns where the Lease of the controller is: by the annotations, by the arguments, or by default.
func (in *installation) election() election {
	fs := pflag.NewFlagSet(program, pflag.ContinueOnError)
	fs.ParseErrorsAllowlist.UnknownFlags = true
	name := fs.String("leader-elect-resource-name", "mirror-controller", "")
	namespace := fs.String("leader-elect-resource-namespace", in.account.Namespace, "")
	dryRun := fs.Bool("dry-run", false, "")
	if in.deployment != nil {
		_ = fs.Parse(argumentsOf(in.deployment)) // the controller refuses malformed ones
	}
	e := election{lease: types.NamespacedName{Namespace: *namespace, Name: *name}, dryRun: *dryRun}
	if in.binding != nil {
		e.lease.Name = cmp.Or(in.binding.Annotations[plan.Domain+"/leader-elect-resource-name"], e.lease.Name)
		e.lease.Namespace = cmp.Or(in.binding.Annotations[plan.Domain+"/leader-elect-resource-namespace"], e.lease.Namespace)
	}
	return e
}

// signOfLife says by what a controller is seen to run; empty: it is not.
func (p *purge) signOfLife(ctx context.Context, in *installation) (string, error) {
	e := in.election()
	lease, err := p.cluster.client.CoordinationV1().Leases(e.lease.Namespace).Get(ctx, e.lease.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsForbidden(err):
		return "", errUnknown("you may not get leases in namespace " + e.lease.Namespace)
	case err != nil && !apierrors.IsNotFound(err):
		return "", fmt.Errorf("get Lease %s: %w", e.lease, err)
	case err == nil && held(lease, time.Now()):
		return fmt.Sprintf("its Lease %s is held by %s", e.lease, *lease.Spec.HolderIdentity), nil
	case e.dryRun: // its Pods restore nothing; while one of before the dry run does, it holds the Lease
		return "", nil
	}
	// By its account a Pod is found whatever runs it.
	pods, err := p.cluster.client.CoreV1().Pods(in.account.Namespace).List(ctx, metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector("spec.serviceAccountName", in.account.Name).String()})
	switch {
	case apierrors.IsForbidden(err):
		return "", errUnknown("you may not list pods in namespace " + in.account.Namespace)
	case err != nil:
		return "", fmt.Errorf("list Pods: %w", err)
	}
	for i := range pods.Items {
		if ready(&pods.Items[i]) {
			return fmt.Sprintf("its Pod %s/%s is ready", in.account.Namespace, pods.Items[i].Name), nil
		}
	}
	return "", nil
}

// held reports whether somebody has renewed the Lease within its duration. The clock of this machine may be ahead: then a
// ready Pod tells.
func held(lease *coordinationv1.Lease, now time.Time) bool {
	s := lease.Spec
	return s.HolderIdentity != nil && *s.HolderIdentity != "" && s.RenewTime != nil && s.LeaseDurationSeconds != nil &&
		now.Before(s.RenewTime.Add(time.Duration(*s.LeaseDurationSeconds)*time.Second))
}

func ready(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// protectedPolicies end so, whatever release or overlay they are of.
const protectedPolicies = "-protected-copies"

// protectedBy returns the bindings of the policy that protects the copies of the controller. Without permission to list them it
// returns none: a refused deletion names its binding, too.
func (p *purge) protectedBy(ctx context.Context, in *installation) (names []string, err error) {
	if in.binding == nil {
		return nil, nil // the policy protects nothing without its settings
	}
	list, err := p.cluster.client.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings().List(ctx,
		metav1.ListOptions{LabelSelector: deploymentSelector})
	switch {
	case apierrors.IsForbidden(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("list ValidatingAdmissionPolicyBindings: %w", err)
	}
	for i := range list.Items {
		if protects(&list.Items[i], in.binding.Labels) {
			names = append(names, list.Items[i].Name)
		}
	}
	return names, nil
}

// protects reports whether the policy is in force for the controller whose ClusterRoleBinding has these labels.
func protects(b *admissionregistrationv1.ValidatingAdmissionPolicyBinding, installation map[string]string) bool {
	if !strings.HasSuffix(b.Spec.PolicyName, protectedPolicies) || b.Spec.ParamRef == nil || b.Spec.ParamRef.Selector == nil ||
		!slices.Contains(b.Spec.ValidationActions, admissionregistrationv1.Deny) {
		return false
	}
	selector, err := metav1.LabelSelectorAsSelector(b.Spec.ParamRef.Selector)
	return err == nil && selector.Matches(labels.Set(installation))
}
