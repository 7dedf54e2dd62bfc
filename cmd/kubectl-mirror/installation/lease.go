package installation

import (
	"context"
	"fmt"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// serverTime returns the time of the API server, which everybody may ask for: the machine of the user may have another.
func serverTime(ctx context.Context, client kubernetes.Interface) time.Time {
	review, err := client.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil || review.CreationTimestamp.IsZero() {
		return time.Now()
	}
	return review.CreationTimestamp.Time
}

// Leader says by which object a controller runs, or why none does. The text is empty if none has to. The error is an [Unknown] if
// the user lacks the permission.
func (in *Installation) Leader(ctx context.Context, client kubernetes.Interface) (text string, runs bool, err error) {
	p, _ := in.Process() // the controller refuses malformed arguments
	if !p.LeaderElect {
		text := in.ready()
		return text, text != "", nil
	}
	l, err := answer(client.CoordinationV1().Leases(p.LeaseNamespace).Get(ctx, p.LeaseName, metav1.GetOptions{}))
	if err != nil {
		return "", false, err
	}
	key, holder, held := p.LeaseNamespace+"/"+p.LeaseName, "", false
	if s := l.Spec; s.HolderIdentity != nil && s.RenewTime != nil && s.LeaseDurationSeconds != nil {
		holder, _, _ = strings.Cut(*s.HolderIdentity, "_") // the name of the Pod and a number
		held = serverTime(ctx, client).Before(s.RenewTime.Add(time.Duration(*s.LeaseDurationSeconds) * time.Second))
	}
	switch {
	case holder != "" && held:
		return fmt.Sprintf("%s holds Lease %s", holder, key), true, nil
	case l.Name == "" && in.Deployment == nil: // it may be one that holds no Lease
		return "", false, in.noDeployment
	case holder == "":
		return "nobody holds Lease " + key, false, nil
	}
	since := l.Spec.RenewTime.UTC().Format(time.RFC3339)
	return fmt.Sprintf("%s held Lease %s, and nobody has renewed it since %s", holder, key, since), false, nil
}

// Restorer says by which object a controller would restore a deleted copy: it runs, or a standby leads soon. The text is empty
// if none would.
func (in *Installation) Restorer(ctx context.Context, client kubernetes.Interface) (string, error) {
	text, runs, err := in.Leader(ctx, client)
	if !runs {
		text = in.ready()
	}
	return text, err
}

// ready names the replicas that write, or stand by; empty if there are none.
func (in *Installation) ready() string {
	if in.Deployment == nil || in.Deployment.Status.ReadyReplicas == 0 {
		return ""
	}
	return fmt.Sprintf("Deployment %s has %d ready replicas", in.Key, in.Deployment.Status.ReadyReplicas)
}

// Absence says that no controller runs, and since when, or that the user may not know; empty if one runs, or if none has to.
func (in *Installation) Absence(ctx context.Context, client kubernetes.Interface) string {
	if in == nil {
		return ""
	}
	text, runs, err := in.Leader(ctx, client)
	switch {
	case err != nil:
		return "Not checked: whether a controller runs: " + err.Error()
	case runs || text == "":
		return ""
	}
	return "No controller runs: " + text + "."
}
