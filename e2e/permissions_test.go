package e2e

import (
	"errors"
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
	"github.com/mirror-controller/mirror-controller/mirror"
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
func (w *world) startConfined(a *account, o shipped.RunOptions) *shipped.Process {
	w.Helper()
	o.Kubeconfig = a.kubeconfig
	o.Args = append(o.Args, "--health-probe-bind-address=127.0.0.1:0")
	return w.startWith(o)
}

// waitReadiness waits until exactly these checks of a controller's readiness fail, by what ?verbose says.
func (w *world) waitReadiness(p *shipped.Process, failing ...string) {
	w.Helper()
	slices.Sort(failing)
	w.until("readiness", func() error {
		_, text, err := w.ask(p, "/readyz?verbose")
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

// waitLog waits until the controller has logged the text.
func (w *world) waitLog(p *shipped.Process, text string) {
	w.Helper()
	w.until("the log says so", func() error {
		if !strings.Contains(p.Log(), text) {
			return errors.New("it does not say " + text)
		}
		return nil
	})
}

// TestC37Watches takes a permission to watch from the controller: the log and /readyz say which, it is not
// ready, and it mirrors when the permission is granted.
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
		{"configmaps", []string{"watch"}, nil, "cannot watch resource", []string{"watch-configmaps"}},
		{"configmaps", []string{"list"}, listing, "cannot list resource", []string{"list-configmaps", "caches"}},
		{"namespaces", []string{"list", "watch"}, nil, "cannot list resource", []string{"list-namespaces", "watch-namespaces", "caches"}},
		{"namespaces", []string{"watch"}, nil, "cannot watch resource", []string{"watch-namespaces"}},
	} {
		t.Run(strings.Join(append(c.verbs, c.resource), " "), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, "a", "b")
			rules, _ := w.shippedRules()
			account := w.newAccount("confined", without(rules, c.resource, c.verbs...))
			p := w.startConfined(account, shipped.RunOptions{Env: c.env})
			w.waitReadiness(p, c.failing...)
			w.waitLog(p, fmt.Sprintf(`%s \"%s\"`, c.says, c.resource))
			src := w.createSource(w.home, "settings")
			w.setRules(account, rules)
			w.waitReadiness(p)
			w.waitInSync(src, w.ns("a"), w.ns("b"))
			w.settle(w.ns("a"), w.ns("b"))
		})
	}
}

// TestC37RevokedWatch takes the permission to watch from a controller that watches, and ends its watch.
func TestC37RevokedWatch(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "a")
	rules, _ := w.shippedRules()
	account := w.newAccount("confined", rules)
	cut := newProxiedAs(t, w, account.kubeconfig)
	through := *account
	through.kubeconfig = cut.proxy.Kubeconfig()
	p := w.startConfined(&through, shipped.RunOptions{})
	w.waitReadiness(p)
	w.setRules(account, without(rules, "configmaps", "list", "watch"))
	// The API server may not have heard of it when the watch is begun anew.
	w.until("the watch is refused", func() error {
		cut.proxy.EndWatches("configmaps")
		_, text, err := w.ask(p, "/readyz/watch-configmaps")
		if err == nil && text == "ok" {
			err = errors.New("it is not")
		}
		return err
	})
	w.waitReadiness(p, "list-configmaps", "watch-configmaps")
	src := w.createSource(w.home, "settings")
	w.setRules(account, rules)
	w.waitReadiness(p)
	w.waitInSync(src, w.ns("a"))
}

// TestC37Writes takes a permission to write from the controller: an event, or the log where the source is gone, says
// which. It is ready, because its caches are full, and all copies are in sync when the permission is granted.
func TestC37Writes(t *testing.T) {
	t.Parallel()
	for verb, change := range map[string]func(w *world){
		"create": func(w *world) {},
		"update": func(w *world) { w.edit(w.home, "settings", withData(map[string]string{"key": "two"})) },
		"delete": func(w *world) { w.delete(w.home, "settings") },
	} {
		t.Run(verb, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, "a", "b")
			a, b := w.ns("a"), w.ns("b")
			rules, _ := w.shippedRules()
			account := w.newAccount("confined", without(rules, "configmaps", verb))
			p := w.startConfined(account, shipped.RunOptions{})
			src := w.createSource(w.home, "settings")
			if verb != "create" {
				w.waitInSync(src, a, b)
			}
			change(w)
			if verb == "delete" {
				w.waitLog(p, `cannot delete resource \"configmaps\"`)
			} else if note, want := w.waitEvent(w.home, "settings", mirror.ReasonWriteFailed),
				fmt.Sprintf(`cannot %s resource "configmaps"`, verb); !strings.Contains(note, want) {
				t.Errorf("the event says %q, and not %q", note, want)
			}
			w.waitReadiness(p)
			w.setRules(account, rules)
			if src = w.live(w.home, "settings"); src == nil {
				w.waitGone("settings", a, b)
			} else {
				w.waitInSync(src, a, b)
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
		change   func(w *world)
		deletes  int
	}{
		"unlabelled": {"configmaps", func(w *world) { w.edit(w.home, "settings", withoutLabel(w.label)) }, 2},
		"deleted":    {"configmaps", func(w *world) { w.delete(w.home, "settings") }, 2},
		"opted out":  {"namespaces", func(w *world) { w.labelNamespace(w.ns("a"), w.label, plan.OptOutValue) }, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, "a", "b")
			a, b := w.ns("a"), w.ns("b")
			rules, _ := w.shippedRules()
			account := w.newAccount("confined", without(rules, c.resource, "get"))
			p := w.startConfined(account, shipped.RunOptions{})
			w.waitInSync(w.createSource(w.home, "settings"), a, b)
			copies := w.copies("settings", a, b)
			c.change(w)
			w.waitLog(p, fmt.Sprintf(`cannot get resource \"%s\"`, c.resource))
			w.waitRequests("it asks again", 3, func(e cluster.Event) bool { return e.Verb == "get" && e.Response.Code == http.StatusForbidden })
			w.tick(0, b)
			w.tick(1, b)
			w.waitReadiness(p)
			w.allUntouched(copies)
			w.setRules(account, rules)
			w.waitGone("settings", a)
			w.waitWrites("settings", len(copies)+c.deletes)
			w.expectReadFirst(c.resource)
		})
	}
}

// expectReadFirst fails the test if a delete was sent before a live read of the resource was answered.
func (w *world) expectReadFirst(resource string) {
	w.Helper()
	requests := w.requests()
	read := func(e cluster.Event) bool {
		return e.Verb == "get" && e.Object.Resource == resource && e.Response.Code != http.StatusForbidden
	}
	first := slices.IndexFunc(requests, read)
	if first < 0 {
		w.Fatal("there was no live read")
	}
	for _, e := range writesTo(requests, "settings") {
		if e.Verb == "delete" && e.Received.Before(requests[first].Received) {
			w.Errorf("deleted without a live read: %v", e)
		}
	}
}

// TestC37Events takes the permission to write events from the controller: the log says so, and it mirrors as ever. What
// there was to report is reported when the permission is granted.
func TestC37Events(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "a")
	rules, _ := w.shippedRules()
	account := w.newAccount("confined", without(rules, "events", "create"))
	p := w.startConfined(account, shipped.RunOptions{})
	w.waitInSync(w.createSource(w.home, "settings"), w.ns("a"))
	w.waitLog(p, `cannot create resource \"events\"`)
	w.waitReadiness(p)
	w.settle(w.ns("a"))
	w.expectReasons(w.home, "settings", nil)
	w.setRules(account, rules)
	w.until("the event", func() error {
		if w.reasons(w.home, "settings")["Mirrored"] == 0 {
			return errors.New("none yet")
		}
		return nil
	})
}

// TestC37Leases takes the permissions on the lease from the controller: the log and /readyz say which, it is not ready, and it
// mirrors when they are granted.
func TestC37Leases(t *testing.T) {
	t.Parallel()
	for _, verb := range []string{"get", "create", "update"} {
		t.Run(verb, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, "a")
			everywhere, atHome := w.shippedRules()
			account := w.newAccount("confined", everywhere)
			w.grant(account, w.home, without(atHome, "leases", verb))
			if verb == "update" { // by which only a lease is taken that is there
				w.createLease()
			}
			p := w.startConfined(account, w.elects())
			w.waitReadiness(p, verb+"-leases")
			w.waitLog(p, fmt.Sprintf(`cannot %s resource \"leases\"`, verb))
			src := w.createSource(w.home, "settings")
			w.setRules(account, append(everywhere, atHome...))
			w.waitReadiness(p)
			w.waitInSync(src, w.ns("a"))
		})
	}
}

// elects are options for a controller that stands for election in the world's home.
func (w *world) elects(args ...string) shipped.RunOptions {
	return shipped.RunOptions{Args: append([]string{"--leader-elect", "--leader-elect-resource-namespace=" + w.home}, args...)}
}

// createLease creates a lease in the world's home that is nobody's.
func (w *world) createLease() {
	w.Helper()
	_, err := w.admin.CoordinationV1().Leases(w.home).Create(w.ctx,
		&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: leaseName}}, metav1.CreateOptions{})
	if err != nil {
		w.Fatal(err)
	}
}

// TestC37RevokedLease takes the permission to renew the lease from the leader: it ends as one that has lost it, and its log says
// why. Its successor mirrors when the permission is granted.
func TestC37RevokedLease(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "a")
	everywhere, atHome := w.shippedRules()
	account := w.newAccount("confined", everywhere)
	w.setRules(account, slices.Concat(everywhere, atHome))
	first := &candidate{w.startConfined(account, w.elects()), account}
	w.leads(first)
	w.setRules(account, slices.Concat(everywhere, without(atHome, "leases", "update")))
	w.exits(first)
	if want := `cannot update resource \"leases\"`; !strings.Contains(first.Log(), want) {
		t.Errorf("the log does not say %s", want)
	}
	src := w.createSource(w.home, "settings")
	p := w.startConfined(account, w.elects())
	w.waitReadiness(p, "update-leases")
	w.setRules(account, slices.Concat(everywhere, atHome))
	w.waitReadiness(p)
	w.waitInSync(src, w.ns("a"))
}
