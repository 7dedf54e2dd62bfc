package installation

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-helpers/auth/rbac/validation"
)

// needed returns the permissions that the controller uses: in the whole cluster, and where its Lease is. They are those of
// deploy/base/rbac.yaml. A dry run only reads.
func (p *Process) needed(dryRun bool) (everywhere, atHome []rbacv1.PolicyRule) {
	rule := func(group, resource, verbs string, names ...string) rbacv1.PolicyRule {
		return rbacv1.PolicyRule{APIGroups: []string{group}, Resources: []string{resource}, Verbs: strings.Fields(verbs), ResourceNames: names}
	}
	everywhere = []rbacv1.PolicyRule{rule("", "configmaps", "get list watch"), rule("", "namespaces", "get list watch")}
	if dryRun {
		return everywhere, nil
	}
	if p.LeaderElect {
		const group = "coordination.k8s.io"
		atHome = []rbacv1.PolicyRule{rule(group, "leases", "create"), rule(group, "leases", "get update", p.LeaseName)}
	}
	return append(everywhere, rule("", "configmaps", "create update delete"), rule("events.k8s.io", "events", "create patch")), atHome
}

// addPermissions adds a line about the permissions that the account needs and lacks, and a line about those that it has and does not need.
// Permissions of all accounts are not among the latter.
func (c *checker) addPermissions(ctx context.Context, r *Report) {
	everywhere, atHome, err := c.granted(ctx)
	missing, needless := err, err
	if err == nil {
		needed, neededAtHome := c.process.needed(c.process.DryRun)
		if text := c.uncovered(everywhere.all, atHome.all, needed, neededAtHome); text != "" {
			missing = todo("grant it as deploy/base/rbac.yaml does", "ServiceAccount %s may not %s", c.Account, text)
		}
		needed, neededAtHome = c.process.needed(false)
		if text := c.uncovered(needed, neededAtHome, everywhere.own, atHome.own); text != "" {
			needless = todo("take it out of the roles that are bound to it", "ServiceAccount %s may %s, and does not need it", c.Account, text)
		}
	}
	r.add("permissions/missing", fmt.Sprintf("ServiceAccount %s may do what it needs", c.Account), missing)
	r.add("permissions/needless", fmt.Sprintf("ServiceAccount %s may do no more, by the roles bound in the whole cluster and in namespace %s",
		c.Account, c.process.LeaseNamespace), needless)
}

// grants are the rules of roles that are bound to the account: all of them, and without those that every account of the cluster has.
type grants struct{ all, own []rbacv1.PolicyRule }

// granted returns the rules that the account has in the whole cluster, and those that it has where its Lease is by the Deployment.
func (c *checker) granted(ctx context.Context) (everywhere, atHome grants, err error) {
	if err = cmp.Or(c.noRoles, without(c.noDeployment)); err != nil {
		return everywhere, atHome, err
	}
	local, err := answer(c.Client.RbacV1().RoleBindings(c.process.LeaseNamespace).List(ctx, metav1.ListOptions{}))
	bound := local.Items
	for _, b := range c.roles { // in no namespace
		bound = append(bound, rbacv1.RoleBinding{Subjects: b.Subjects, RoleRef: b.RoleRef})
	}
	for _, b := range bound {
		own, to := c.isNamed(b.Subjects), &everywhere
		if b.Namespace != "" {
			to = &atHome
		}
		if err != nil || !own && !slices.ContainsFunc(b.Subjects, isEveryAccount) {
			continue
		}
		role := &rbacv1.Role{}
		if b.RoleRef.Kind == "Role" {
			role, err = answer(c.Client.RbacV1().Roles(b.Namespace).Get(ctx, b.RoleRef.Name, metav1.GetOptions{}))
		} else {
			of, refused := answer(c.Client.RbacV1().ClusterRoles().Get(ctx, b.RoleRef.Name, metav1.GetOptions{}))
			role.Rules, err = of.Rules, refused
		}
		if to.all = append(to.all, role.Rules...); own {
			to.own = append(to.own, role.Rules...)
		}
	}
	return everywhere, atHome, err
}

func isEveryAccount(s rbacv1.Subject) bool {
	return s.Kind == rbacv1.GroupKind && s.Name == "system:serviceaccounts"
}

// isNamed reports whether subjects name the account, alone or with the others of its namespace.
func (c *checker) isNamed(subjects []rbacv1.Subject) bool {
	return slices.ContainsFunc(subjects, func(s rbacv1.Subject) bool {
		return s.Kind == rbacv1.ServiceAccountKind && s.Namespace == c.Account.Namespace && s.Name == c.Account.Name ||
			s.Kind == rbacv1.UserKind && s.Name == c.user() ||
			s.Kind == rbacv1.GroupKind && s.Name == "system:serviceaccounts:"+c.Account.Namespace
	})
}

// user returns the name of the account as a user.
func (c *checker) user() string {
	return fmt.Sprintf("system:serviceaccount:%s:%s", c.Account.Namespace, c.Account.Name)
}

// uncovered names the first rules that others do not cover, such as "update leases.coordination.k8s.io/x in namespace y", and counts
// the rest.
func (c *checker) uncovered(by, byAtHome, everywhere, atHome []rbacv1.PolicyRule) string {
	_, rules := validation.Covers(by, everywhere)
	_, local := validation.Covers(slices.Concat(by, byAtHome), atHome)
	var texts []string
	for i, rule := range slices.Concat(rules, local) { // one verb, and one resource or URL each
		text := strings.Join(slices.Concat(rule.Verbs, rule.Resources, rule.NonResourceURLs), " ")
		if len(rule.Resources) > 0 {
			text = strings.Join(append([]string{strings.TrimSuffix(text+"."+rule.APIGroups[0], ".")}, rule.ResourceNames...), "/")
		}
		if i >= len(rules) {
			text += " in namespace " + c.process.LeaseNamespace
		}
		texts = append(texts, text)
	}
	const shown = 3
	if len(texts) > shown {
		texts = append(texts[:shown-1], fmt.Sprintf("%s and %d more", texts[shown-1], len(texts)-shown))
	}
	return strings.Join(texts, ", ")
}
