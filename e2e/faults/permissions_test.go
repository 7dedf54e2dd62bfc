package faults

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mirror-controller/mirror-controller/e2e/cluster"
	"github.com/mirror-controller/mirror-controller/e2e/shipped"
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

// startConfined runs a controller of the account that answers probes.
func startConfined(w *suite.World, a *suite.Account, o shipped.RunOptions) *shipped.Process {
	w.Helper()
	o.Kubeconfig = a.Kubeconfig
	o.Args = append(o.Args, "--health-probe-bind-address=127.0.0.1:0")
	return w.StartWith(o)
}

// waitReadiness waits until exactly these checks of a controller's readiness fail, by what ?verbose says.
func waitReadiness(w *suite.World, p *shipped.Process, failing ...string) {
	w.Helper()
	slices.Sort(failing)
	w.Until("readiness", func() error {
		_, text, err := p.Get(w.Context(), "health", "/readyz?verbose")
		if err != nil {
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

// TestC37Watches takes a permission to watch from the controller: the log and /readyz say which, it is not ready, and it mirrors
// when the permission is granted. It is ready again when the last refusal is 90 s old.
func TestC37Watches(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		resource string
		verbs    []string
		env      []string
		says     string
		failing  []string
	}{
		// Who may not watch is asked whether he may list.
		{"configmaps", []string{"list", "watch"}, nil, "cannot list resource", []string{"list-configmaps", "watch-configmaps", "caches"}},
		{"configmaps", []string{"list"}, listing, "cannot list resource", []string{"list-configmaps", "caches"}},
		{"namespaces", []string{"watch"}, nil, "cannot watch resource", []string{"watch-namespaces"}},
	} {
		t.Run(strings.Join(append(c.verbs, c.resource), " "), func(t *testing.T) {
			t.Parallel()
			w := suite.New(t, "a", "b")
			rules, _ := w.ShippedRules()
			account := w.NewAccount("confined", without(rules, c.resource, c.verbs...))
			p := startConfined(w, account, shipped.RunOptions{Env: c.env})
			waitReadiness(w, p, c.failing...)
			w.WaitLog(p, fmt.Sprintf(`%s \"%s\"`, c.says, c.resource))
			src := w.CreateSource(w.Home, "settings")
			w.SetRules(account, rules)
			w.WaitInSync(src, w.NS("a"), w.NS("b"))
			waitReadiness(w, p)
			w.Settle(w.NS("a"), w.NS("b"))
		})
	}
}

// TestC37Writes takes a permission to write from the controller: an event, or the log where the source is gone, says
// which. It is ready, because its caches are full, and all copies are in sync when the permission is granted.
func TestC37Writes(t *testing.T) {
	t.Parallel()
	for verb, change := range map[string]func(w *suite.World){
		"create": func(w *suite.World) {},
		"update": func(w *suite.World) { w.Edit(w.Home, "settings", suite.WithData(map[string]string{"key": "two"})) },
		"delete": func(w *suite.World) { w.Delete(w.Home, "settings") },
	} {
		t.Run(verb, func(t *testing.T) {
			t.Parallel()
			w := suite.New(t, "a", "b")
			a, b := w.NS("a"), w.NS("b")
			rules, _ := w.ShippedRules()
			account := w.NewAccount("confined", without(rules, "configmaps", verb))
			p := startConfined(w, account, shipped.RunOptions{})
			src := w.CreateSource(w.Home, "settings")
			if verb != "create" {
				w.WaitInSync(src, a, b)
			}
			change(w)
			if verb == "delete" {
				w.WaitLog(p, `cannot delete resource \"configmaps\"`)
			} else if note, want := w.WaitEvent(w.Home, "settings", plan.ReasonWriteFailed),
				fmt.Sprintf(`cannot %s resource "configmaps"`, verb); !strings.Contains(note, want) {
				t.Errorf("the event says %q, and not %q", note, want)
			}
			waitReadiness(w, p)
			w.SetRules(account, rules)
			if src = w.Live(w.Home, "settings"); src == nil {
				w.WaitGone("settings", a, b)
			} else {
				w.WaitInSync(src, a, b)
			}
		})
	}
}

// TestC37LiveReads takes a permission from the controller on which the live reads before deletions depend: it deletes
// nothing, the log says why, and it is ready. When the permission is granted it reads, and deletes.
func TestC37LiveReads(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		resource string
		change   func(w *suite.World)
	}{
		"deleted":   {"configmaps", func(w *suite.World) { w.Delete(w.Home, "settings") }},
		"opted out": {"namespaces", func(w *suite.World) { w.LabelNamespace(w.NS("a"), w.Label, plan.OptOutValue) }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := suite.New(t, "a", "b")
			a, b := w.NS("a"), w.NS("b")
			rules, _ := w.ShippedRules()
			account := w.NewAccount("confined", without(rules, c.resource, "get"))
			p := startConfined(w, account, shipped.RunOptions{})
			w.WaitInSync(w.CreateSource(w.Home, "settings"), a, b)
			copies := w.Copies("settings", a, b)
			c.change(w)
			w.WaitLog(p, fmt.Sprintf(`cannot get resource \"%s\"`, c.resource))
			w.WaitRequests("it asks again", 3, func(e cluster.Event) bool {
				return e.Verb == "get" && e.Response.Code == http.StatusForbidden
			})
			w.Tick(0, b)
			w.Tick(1, b)
			waitReadiness(w, p)
			w.AllUntouched(copies)
			w.SetRules(account, rules)
			w.WaitGone("settings", a)
		})
	}
}

// TestC37Leases takes the permissions on the lease from the controller: the log and /readyz say which, it is not ready, and it
// mirrors when they are granted.
func TestC37Leases(t *testing.T) {
	t.Parallel()
	for _, verb := range []string{"get", "create", "update"} {
		t.Run(verb, func(t *testing.T) {
			t.Parallel()
			w := suite.New(t, "a")
			everywhere, atHome := w.ShippedRules()
			account := w.NewAccount("confined", everywhere)
			w.Grant(account, w.Home, without(atHome, "leases", verb))
			if verb == "update" { // by which only a lease is taken that is there
				createLease(w)
			}
			p := startConfined(w, account, elects(w))
			waitReadiness(w, p, verb+"-leases")
			w.WaitLog(p, fmt.Sprintf(`cannot %s resource \"leases\"`, verb))
			src := w.CreateSource(w.Home, "settings")
			w.SetRules(account, append(everywhere, atHome...))
			w.WaitInSync(src, w.NS("a"))
		})
	}
}

// elects are options for a controller that stands for election in the world's home.
func elects(w *suite.World, args ...string) shipped.RunOptions {
	return shipped.RunOptions{Args: append([]string{"--leader-elect", "--leader-elect-resource-namespace=" + w.Home}, args...)}
}

// createLease creates a lease in the world's home that is nobody's.
func createLease(w *suite.World) {
	w.Helper()
	_, err := w.Admin.CoordinationV1().Leases(w.Home).Create(w.Context(),
		&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: suite.LeaseName}}, metav1.CreateOptions{})
	if err != nil {
		w.Fatal(err)
	}
}

// TestC37RevokedLease takes the permission to renew the lease from the leader: it ends as one that has lost it, and its log says
// why. Its successor mirrors when the permission is granted.
func TestC37RevokedLease(t *testing.T) {
	t.Parallel()
	w := suite.New(t, "a")
	everywhere, atHome := w.ShippedRules()
	account := w.NewAccount("confined", everywhere)
	w.SetRules(account, slices.Concat(everywhere, atHome))
	first := &candidate{startConfined(w, account, elects(w)), account}
	leads(w, first)
	w.SetRules(account, slices.Concat(everywhere, without(atHome, "leases", "update")))
	exits(w, first)
	if want := `cannot update resource \"leases\"`; !strings.Contains(first.Log(), want) {
		t.Errorf("the log does not say %s", want)
	}
	src := w.CreateSource(w.Home, "settings")
	p := startConfined(w, account, elects(w))
	waitReadiness(w, p, "update-leases")
	w.SetRules(account, slices.Concat(everywhere, atHome))
	w.WaitInSync(src, w.NS("a"))
}
