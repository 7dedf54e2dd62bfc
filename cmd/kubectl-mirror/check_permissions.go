package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-helpers/auth/rbac/validation"
)

// needed returns the permissions that the controller uses: in the whole cluster, and where its Lease is. They are those of
// deploy/base/rbac.yaml. A dry run only reads.
func (o *processOptions) needed(dryRun bool) (everywhere, atHome []rbacv1.PolicyRule) {
	rule := func(group, resource, name string, verbs ...string) rbacv1.PolicyRule {
		return rbacv1.PolicyRule{APIGroups: []string{group}, Resources: []string{resource}, ResourceNames: nonEmpty([]string{name}), Verbs: verbs}
	}
	read := []string{"get", "list", "watch"}
	if dryRun {
		return []rbacv1.PolicyRule{rule("", "configmaps", "", read...), rule("", "namespaces", "", read...)}, nil
	}
	everywhere = []rbacv1.PolicyRule{
		rule("", "configmaps", "", append(read, "create", "update", "delete")...),
		rule("", "namespaces", "", read...),
		rule("events.k8s.io", "events", "", "create", "patch"),
	}
	if o.leaderElect {
		const group = "coordination.k8s.io"
		atHome = []rbacv1.PolicyRule{rule(group, "leases", "", "create"), rule(group, "leases", o.leaseName, "get", "update")}
	}
	return everywhere, atHome
}

// grants are the rules of the roles that are bound to an account.
type grants struct {
	// everywhere hold in the whole cluster, atHome in the namespace of the Lease.
	everywhere, atHome ruleSets
}

// ruleSets are rules by whom they are bound to: the account and its namespace, or all accounts of the cluster.
type ruleSets struct{ own, common []rbacv1.PolicyRule }

func (s ruleSets) all() []rbacv1.PolicyRule { return slices.Concat(s.own, s.common) }

// namesAccount reports whether the subjects name the account, alone or with the others of its namespace.
func namesAccount(subjects []rbacv1.Subject, account types.NamespacedName) bool {
	return slices.ContainsFunc(subjects, func(s rbacv1.Subject) bool {
		switch s.Kind {
		case rbacv1.ServiceAccountKind:
			return s.Namespace == account.Namespace && s.Name == account.Name
		case rbacv1.UserKind:
			return s.Name == userOf(account)
		}
		return s.Kind == rbacv1.GroupKind && s.Name == "system:serviceaccounts:"+account.Namespace
	})
}

// namesAll reports whether the subjects name every account.
func namesAll(subjects []rbacv1.Subject) bool {
	return slices.ContainsFunc(subjects, func(s rbacv1.Subject) bool {
		return s.Kind == rbacv1.GroupKind && s.Name == "system:serviceaccounts"
	})
}

// userOf returns the name of the account as a user.
func userOf(account types.NamespacedName) string {
	return fmt.Sprintf("system:serviceaccount:%s:%s", account.Namespace, account.Name)
}

// readGrants reads the roles that are bound to the account.
func (r *factReader) readGrants(ctx context.Context, bindings fact[[]rbacv1.ClusterRoleBinding]) (err error) {
	if bindings.missing != "" {
		r.granted.missing = bindings.missing
		return nil
	}
	var g grants
	for _, b := range bindings.value {
		if err := r.addRole(ctx, &g.everywhere, b.Subjects, b.RoleRef, ""); err != nil || r.granted.missing != "" {
			return err
		}
	}
	home := r.process.leaseNamespace
	local, err := find("list rolebindings.rbac.authorization.k8s.io in namespace "+home, func() ([]rbacv1.RoleBinding, error) {
		list, err := r.client.RbacV1().RoleBindings(home).List(ctx, metav1.ListOptions{})
		return list.Items, err
	})
	if err != nil || local.missing != "" {
		r.granted.missing = local.missing
		return err
	}
	for _, b := range local.value {
		if err := r.addRole(ctx, &g.atHome, b.Subjects, b.RoleRef, home); err != nil || r.granted.missing != "" {
			return err
		}
	}
	r.granted.value = g
	return nil
}

// addRole adds the rules of a role if the subjects name the account.
func (r *factReader) addRole(ctx context.Context, to *ruleSets, subjects []rbacv1.Subject, ref rbacv1.RoleRef, namespace string) error {
	own := namesAccount(subjects, r.account)
	if !own && !namesAll(subjects) {
		return nil
	}
	permission, get := "get clusterroles."+rbacv1.GroupName, func() ([]rbacv1.PolicyRule, error) {
		role, err := r.client.RbacV1().ClusterRoles().Get(ctx, ref.Name, metav1.GetOptions{})
		return role.Rules, err
	}
	if ref.Kind == "Role" {
		permission, get = "get roles."+rbacv1.GroupName+" in namespace "+namespace, func() ([]rbacv1.PolicyRule, error) {
			role, err := r.client.RbacV1().Roles(namespace).Get(ctx, ref.Name, metav1.GetOptions{})
			return role.Rules, err
		}
	}
	rules, err := find(permission, get)
	if own {
		to.own = append(to.own, rules.value...)
	} else {
		to.common = append(to.common, rules.value...)
	}
	r.granted.missing = rules.missing
	return err
}

// grantsUnread is the result of a check of permissions that cannot be told. Whether the account needs a Lease stands in the
// Deployment.
func (f *facts) grantsUnread() (l checkLine, unread bool) {
	if f.granted.missing != "" {
		return notAllowed(f.granted.missing), true
	}
	return f.notInstalled()
}

// missingLine tells what the account may not do and needs.
func (f *facts) missingLine() checkLine {
	if l, unread := f.grantsUnread(); unread {
		return l
	}
	everywhere, atHome := f.process.needed(f.process.DryRun)
	g := f.granted.value
	_, missing := validation.Covers(g.everywhere.all(), everywhere)
	_, missingAtHome := validation.Covers(slices.Concat(g.everywhere.all(), g.atHome.all()), atHome)
	texts := slices.Concat(rulesText(missing, ""), rulesText(missingAtHome, f.process.leaseNamespace))
	if len(texts) > 0 {
		return todo("grant it as deploy/base/rbac.yaml does", "ServiceAccount %s may not %s", f.account, some(texts))
	}
	return fine("ServiceAccount %s may do what it needs", f.account)
}

// needlessLine tells what the account, but not every account, may do and does not need.
func (f *facts) needlessLine() checkLine {
	if l, unread := f.grantsUnread(); unread {
		return l
	}
	everywhere, atHome := f.process.needed(false)
	g := f.granted.value
	_, needless := validation.Covers(everywhere, g.everywhere.own)
	_, needlessAtHome := validation.Covers(slices.Concat(everywhere, atHome), g.atHome.own)
	texts := slices.Concat(rulesText(needless, ""), rulesText(needlessAtHome, f.process.leaseNamespace))
	if len(texts) > 0 {
		return todo("take it out of the roles that are bound to it", "ServiceAccount %s may %s, and does not need it", f.account, some(texts))
	}
	return fine("ServiceAccount %s may do no more, by the roles bound in the whole cluster and in namespace %s", f.account, f.process.leaseNamespace)
}

// rulesText returns a text for each rule, such as "update leases.coordination.k8s.io/mirror-controller in namespace x".
func rulesText(rules []rbacv1.PolicyRule, namespace string) (out []string) {
	for _, rule := range rules {
		what := strings.Join(rule.Resources, ",")
		if group := strings.Join(rule.APIGroups, ","); group != "" {
			what += "." + group
		}
		if len(rule.ResourceNames) > 0 {
			what += "/" + strings.Join(rule.ResourceNames, ",")
		}
		text := strings.Join(rule.Verbs, ",") + " " + what + strings.Join(rule.NonResourceURLs, ",")
		if namespace != "" {
			text += " in namespace " + namespace
		}
		out = append(out, text)
	}
	return out
}

// some joins the first texts, and counts the others.
func some(texts []string) string {
	const shown = 3
	if len(texts) <= shown {
		return strings.Join(texts, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(texts[:shown], ", "), len(texts)-shown)
}
