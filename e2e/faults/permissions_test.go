package faults

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/mirror-controller/mirror-controller/e2e/cluster"
	"github.com/mirror-controller/mirror-controller/e2e/suite"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// Permissions that are missing: case C37.

// without returns the rules without the verbs on a resource.
func without(rules []rbacv1.PolicyRule, resource string, verbs ...string) []rbacv1.PolicyRule {
	var out []rbacv1.PolicyRule
	for _, rule := range rules {
		rule.Verbs = slices.Clone(rule.Verbs)
		if slices.Contains(rule.Resources, resource) {
			rule.Verbs = slices.DeleteFunc(rule.Verbs, func(verb string) bool { return slices.Contains(verbs, verb) })
		}
		if len(rule.Verbs) > 0 {
			out = append(out, rule)
		}
	}
	return out
}

// TestC37MissingPermission takes a permission from the controller: an event about a source that is there, or the log,
// says which, and no copy goes. The controller is ready unless its caches are not full. When the permission is granted
// the controller goes on.
func TestC37MissingPermission(t *testing.T) {
	t.Parallel()
	unpublish := func(w *suite.World) { w.Delete(w.Home, "settings") }
	edit := func(w *suite.World) { w.Edit(w.Home, "settings", suite.WithKey("key", "two")) }
	for _, c := range []struct {
		resource string
		verbs    []string           // the log names the first
		happens  func(*suite.World) // to copies that are in sync; nil: there are none before the permission is granted
		event    bool
		deletes  bool
	}{
		// Without a watch the caches are filled by a list.
		{resource: "configmaps", verbs: []string{"watch", "list"}},
		{resource: "namespaces", verbs: []string{"watch"}},
		{resource: "leases", verbs: []string{"get"}},
		{resource: "leases", verbs: []string{"create"}},
		{resource: "configmaps", verbs: []string{"create"}, event: true},
		{resource: "configmaps", verbs: []string{"update"}, event: true, happens: edit},
		{resource: "configmaps", verbs: []string{"delete"}, deletes: true, happens: unpublish},
		{resource: "configmaps", verbs: []string{"get"}, deletes: true, happens: unpublish},
		{resource: "namespaces", verbs: []string{"get"}, deletes: true,
			happens: func(w *suite.World) { w.OptOut(plan.OptOutValue, "a") }},
	} {
		t.Run(c.verbs[0]+" "+c.resource, func(t *testing.T) {
			t.Parallel()
			w := suite.New(t, "a", "b")
			a, b := w.NS("a"), w.NS("b")
			rules := w.ShippedRules()
			account := w.NewAccount("confined", without(rules, c.resource, c.verbs...))
			p := start(w, account, account.Kubeconfig, longLease)
			source := w.CreateSource(w.Home, "settings")
			var copies []*corev1.ConfigMap
			if c.happens != nil {
				w.WaitInSync(source, a, b)
				copies = w.Copies("settings", a, b)
				c.happens(w)
			}
			if says := fmt.Sprintf("cannot %s resource ", c.verbs[0]); c.event {
				w.WaitEvent(w.Home, "settings", plan.ReasonWriteFailed, fmt.Sprintf("%s%q", says, c.resource))
			} else {
				w.WaitLog(p.Process, fmt.Sprintf(`%s\"%s\"`, says, c.resource))
			}
			w.WaitRequests("it asks again", 2, func(e cluster.Event) bool { return e.Response.Code == http.StatusForbidden })
			w.Until("/readyz", func() error { // what fills the caches may still be under way
				unready := len(c.verbs) > 1
				if err := w.Probe(p.Process, "/readyz"); (err != nil) != unready {
					return fmt.Errorf("%w, want an error: %v", err, unready)
				}
				return nil
			})
			w.Untouched(copies...)
			w.SetRules(account, rules)
			if c.deletes {
				w.WaitGone("settings", a)
			} else {
				w.WaitInSync(w.Live(w.Home, "settings"), a, b)
			}
		})
	}
}

// TestC37RevokedLease takes the permission to renew the Lease from the leader: it ends as one that has lost it, and
// its log says why. Its successor mirrors when the permission is granted.
func TestC37RevokedLease(t *testing.T) {
	t.Parallel()
	w := suite.New(t, "a")
	rules := w.ShippedRules()
	account := w.NewAccount("confined", rules)
	first := start(w, account, account.Kubeconfig, shortLease)
	w.WaitLog(first.Process, `"Mirroring"`)
	w.SetRules(account, without(rules, "leases", "update"))
	exits(w, first)
	if want := `cannot update resource \"leases\"`; !strings.Contains(first.Log(), want) {
		t.Errorf("the log does not say %s", want)
	}
	source := w.CreateSource(w.Home, "settings")
	second := start(w, account, account.Kubeconfig, longLease)
	w.WaitLog(second.Process, `cannot update resource \"leases\"`)
	w.SetRules(account, rules)
	w.WaitInSync(source, w.NS("a"))
}
