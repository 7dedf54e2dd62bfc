package installation

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
)

// Unknown is an error that says which permission the user lacks.
type Unknown string

func (u Unknown) Error() string { return string(u) }

// serverTime returns the time of the API server, which everybody may ask for: the machine of the user may have another.
func serverTime(ctx context.Context, client kubernetes.Interface) time.Time {
	review, err := client.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil || review.CreationTimestamp.IsZero() {
		return time.Now()
	}
	return review.CreationTimestamp.Time
}

// held reports whether somebody has renewed the Lease within its duration.
func held(l *coordinationv1.Lease, now time.Time) bool {
	s := l.Spec
	return s.HolderIdentity != nil && *s.HolderIdentity != "" && s.RenewTime != nil && s.LeaseDurationSeconds != nil &&
		now.Before(s.RenewTime.Add(time.Duration(*s.LeaseDurationSeconds)*time.Second))
}

// lease returns the Lease of the controller; nil if there is none.
func (in *Installation) lease(ctx context.Context, client kubernetes.Interface) (key types.NamespacedName, l *coordinationv1.Lease, p *Process, err error) {
	p, _ = in.Process() // the controller refuses malformed arguments
	key = types.NamespacedName{Namespace: p.LeaseNamespace, Name: p.LeaseName}
	l, err = client.CoordinationV1().Leases(key.Namespace).Get(ctx, key.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsForbidden(err):
		return key, nil, p, Unknown("you may not get leases in namespace " + key.Namespace)
	case apierrors.IsNotFound(err):
		return key, nil, p, nil
	case err != nil:
		return key, nil, p, fmt.Errorf("get Lease %s: %w", key, err)
	}
	return key, l, p, nil
}

// Absence says that no controller runs, and since when, or that you may not know; empty if one runs, or if it holds no Lease.
func (in *Installation) Absence(ctx context.Context, client kubernetes.Interface) string {
	if in == nil {
		return ""
	}
	key, l, p, err := in.lease(ctx, client)
	switch {
	case !p.LeaderElect || p.DryRun || err == nil && l != nil && held(l, serverTime(ctx, client)):
		return ""
	case err != nil:
		return "Not checked: whether a controller runs: " + err.Error()
	case l == nil && in.Deployment == nil: // it may be one that holds no Lease
		return ""
	case l == nil || l.Spec.HolderIdentity == nil || *l.Spec.HolderIdentity == "" || l.Spec.RenewTime == nil:
		return fmt.Sprintf("No controller runs: nobody holds Lease %s.", key)
	}
	holder, _, _ := strings.Cut(*l.Spec.HolderIdentity, "_") // the name of the Pod and a number
	return fmt.Sprintf("No controller runs: %s held Lease %s, and nobody has renewed it since %s.", holder, key, l.Spec.RenewTime.UTC().Format(time.RFC3339))
}

// SignOfLife says which object shows that the controller runs; empty: none does. The error is an [Unknown] if the user lacks a permission.
func (in *Installation) SignOfLife(ctx context.Context, client kubernetes.Interface) (string, error) {
	key, l, p, err := in.lease(ctx, client)
	switch {
	case err != nil:
		return "", err
	case l != nil && held(l, serverTime(ctx, client)):
		return fmt.Sprintf("its Lease %s is held by %s", key, *l.Spec.HolderIdentity), nil
	case p.DryRun: // its Pods restore nothing; while one of before the dry run does, it holds the Lease
		return "", nil
	}
	// A Pod has the account of the controller, whatever runs it.
	pods, err := client.CoreV1().Pods(in.Account.Namespace).List(ctx, metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector("spec.serviceAccountName", in.Account.Name).String()})
	switch {
	case apierrors.IsForbidden(err):
		return "", Unknown("you may not list pods in namespace " + in.Account.Namespace)
	case err != nil:
		return "", fmt.Errorf("list Pods: %w", err)
	}
	for i := range pods.Items {
		if isReady(&pods.Items[i]) {
			return fmt.Sprintf("its Pod %s/%s is ready", in.Account.Namespace, pods.Items[i].Name), nil
		}
	}
	return "", nil
}

func isReady(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}
