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

// waitReadiness waits until exactly these checks of the readiness fail, by what ?verbose says.
func waitReadiness(w *suite.World, c *candidate, failing ...string) {
	w.Helper()
	slices.Sort(failing)
	w.Until("readiness", func() error {
		text, err := c.Get(w.Context(), "health", "/readyz?verbose")
		if text == "" {
			return err
		}
		var got []string
		for line := range strings.Lines(text) {
			if check, failed := strings.CutPrefix(line, "[-]"); failed {
				got = append(got, strings.Fields(check)[0])
			}
		}
		if slices.Sort(got); !slices.Equal(got, failing) {
			return fmt.Errorf("failing %q, want %q", got, failing)
		}
		return nil
	})
}

// TestC37MissingPermission takes a permission from the controller: an event about a source that is there, or the log,
// says which, and no copy goes. The controller is ready unless its watches or its Lease need that permission. When
// the permission is granted the controller goes on.
func TestC37MissingPermission(t *testing.T) {
	t.Parallel()
	unpublish := func(w *suite.World) { w.Delete(w.Home, "settings") }
	for _, c := range []struct {
		resource string
		verbs    []string           // the log names the first
		happens  func(*suite.World) // to copies that are in sync; nil: there are none before the permission is granted
		event    bool
		deletes  bool
		failing  []string // checks of the readiness
	}{
		// Whoever may not watch is asked for a list.
		{resource: "configmaps", verbs: []string{"list", "watch"},
			failing: []string{"caches", "list-configmaps", "watch-configmaps"}},
		{resource: "namespaces", verbs: []string{"watch"}, failing: []string{"watch-namespaces"}},
		{resource: "leases", verbs: []string{"get"}, failing: []string{"get-leases"}},
		{resource: "leases", verbs: []string{"create"}, failing: []string{"create-leases"}},
		{resource: "configmaps", verbs: []string{"create"}, event: true},
		{resource: "configmaps", verbs: []string{"update"}, event: true,
			happens: func(w *suite.World) { w.Edit(w.Home, "settings", suite.WithKey("key", "two")) }},
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
			p := start(w, account, account.Kubeconfig)
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
			waitReadiness(w, p, c.failing...)
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
	first := start(w, account, account.Kubeconfig)
	w.WaitLog(first.Process, `"Mirroring"`)
	w.SetRules(account, without(rules, "leases", "update"))
	exits(w, first)
	if want := `cannot update resource \"leases\"`; !strings.Contains(first.Log(), want) {
		t.Errorf("the log does not say %s", want)
	}
	source := w.CreateSource(w.Home, "settings")
	second := start(w, account, account.Kubeconfig)
	waitReadiness(w, second, "update-leases")
	w.SetRules(account, rules)
	w.WaitInSync(source, w.NS("a"))
}
