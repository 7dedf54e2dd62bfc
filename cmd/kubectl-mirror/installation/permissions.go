package installation

import (
	"context"
	"fmt"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// needed returns the permissions that the controller uses, as deploy/base/rbac.yaml grants them.
func (p *Process) needed() (out []authorizationv1.ResourceAttributes) {
	add := func(on authorizationv1.ResourceAttributes, verbs string) {
		for _, on.Verb = range strings.Fields(verbs) {
			out = append(out, on)
		}
	}
	configMaps := authorizationv1.ResourceAttributes{Resource: "configmaps"}
	add(configMaps, "get list watch")
	add(authorizationv1.ResourceAttributes{Resource: "namespaces"}, "get list watch")
	add(configMaps, "create update delete")
	add(authorizationv1.ResourceAttributes{Resource: "events"}, "create patch")
	if p.LeaderElect {
		lease := authorizationv1.ResourceAttributes{Group: "coordination.k8s.io", Resource: "leases", Namespace: p.LeaseNamespace}
		add(lease, "create")
		lease.Name = p.LeaseName
		add(lease, "get update")
	}
	return out
}

// needless returns permissions that come with roles such as edit and cluster-admin, and that the controller never needs.
func needless() []authorizationv1.ResourceAttributes {
	return []authorizationv1.ResourceAttributes{
		{Verb: "list", Resource: "secrets"}, {Verb: "create", Resource: "pods"}, {Verb: "create", Resource: "namespaces"},
	}
}

// permissions asks the API server whether the account has each permission that the controller needs, and some that it does not.
func (c *checker) permissions(ctx context.Context) (string, error) {
	_, missing, err := c.may(ctx, c.process.needed())
	if err != nil {
		return "", err
	}
	more, _, err := c.may(ctx, needless())
	switch {
	case err != nil:
		return "", err
	case len(missing) > 0:
		return "", todo("grant it as deploy/base/rbac.yaml does", "ServiceAccount %s may not %s", c.Account, strings.Join(missing, ", "))
	case len(more) > 0:
		return "", todo("bind only the roles of deploy/base/rbac.yaml to it", "ServiceAccount %s may %s, and does not need that", c.Account,
			strings.Join(more, ", "))
	}
	return fmt.Sprintf("ServiceAccount %s may do what it needs", c.Account), nil
}

// may returns which of the permissions the account has, and which it has not.
func (c *checker) may(ctx context.Context, all []authorizationv1.ResourceAttributes) (allowed, denied []string, err error) {
	for _, p := range all {
		review, err := answer(c.Client.AuthorizationV1().SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{
			Spec: authorizationv1.SubjectAccessReviewSpec{User: c.user(), Groups: c.groups(), ResourceAttributes: &p},
		}, metav1.CreateOptions{}))
		switch {
		case err != nil:
			return nil, nil, err
		case review.Status.Allowed:
			allowed = append(allowed, text(p))
		default:
			denied = append(denied, text(p))
		}
	}
	return allowed, denied, nil
}

// text says what a permission is for, such as "get leases/x in namespace y".
func text(p authorizationv1.ResourceAttributes) string {
	text := p.Verb + " " + strings.TrimSuffix(p.Resource+"/"+p.Name, "/")
	if p.Namespace != "" {
		text += " in namespace " + p.Namespace
	}
	return text
}

// user returns the name of the account as a user.
func (c *checker) user() string {
	return fmt.Sprintf("system:serviceaccount:%s:%s", c.Account.Namespace, c.Account.Name)
}

// groups returns the groups in which the API server has the account.
func (c *checker) groups() []string {
	return []string{"system:serviceaccounts", "system:serviceaccounts:" + c.Account.Namespace, "system:authenticated"}
}
