package plugin

import (
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/mirror-controller/mirror-controller/e2e/overlay"
	"github.com/mirror-controller/mirror-controller/e2e/suite"
)

// ViewerRole is the cluster role of component viewer.
const ViewerRole = "mirror-controller-viewer"

// ViewerRules returns the permissions of the role of component viewer.
func ViewerRules(w *suite.World) []rbacv1.PolicyRule {
	w.Helper()
	m := overlay.Render(w, map[string]string{"top": overlay.Above("deploy/base", "", "viewer")})
	roles, err := m.ClusterRoles()
	at := slices.IndexFunc(roles, func(r rbacv1.ClusterRole) bool { return r.Name == ViewerRole })
	if err != nil || at < 0 {
		w.Fatalf("the role is not among %d: %v", len(roles), err)
	}
	return roles[at].Rules
}
