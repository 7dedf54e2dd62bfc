package e2e

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/mirror-controller/mirror-controller/e2e/cluster"
	"github.com/mirror-controller/mirror-controller/e2e/shipped"
	"github.com/mirror-controller/mirror-controller/mirror"
)

// TestRights lets the controller do everything it can do, once as it is and once without WatchList, whose
// fallback lists, and compares the requests in the API server's audit log with the ClusterRole: no right too
// many, and none too few.
func TestRights(t *testing.T) {
	t.Parallel()
	used := map[string]bool{}
	for _, env := range []string{"KUBE_FEATURE_WatchListClient=true", "KUBE_FEATURE_WatchListClient=false"} {
		w := newWorld(t, "a", "b")
		p := w.startWith(shipped.RunOptions{Env: []string{env}})
		w.doEverything()
		w.stop(p)
		for _, e := range w.requests() {
			if e.User.Username != w.installed.User {
				t.Errorf("request of another user than the ServiceAccount: %v", e)
			}
			if e.Response.Code == 403 {
				t.Errorf("a right is missing: %v", e)
			}
			used[right(e)] = true
		}
	}
	granted, err := grantedRights(shared.installed.Manifests)
	if err != nil {
		t.Fatal(err)
	}
	for r := range granted {
		if !used[r] {
			t.Errorf("granted, and never used: %s", r)
		}
	}
	for r := range used {
		if !granted[r] {
			t.Errorf("used, and not granted: %s", r)
		}
	}
	if t.Failed() {
		t.Logf("granted: %v", slices.Sorted(maps.Keys(granted)))
		t.Logf("used: %v", slices.Sorted(maps.Keys(used)))
	}
}

// doEverything brings about each kind of request: create, update and delete copies, look at what is in the
// way, look at a source that is gone and at a namespace that opted out, tell about it.
func (w *world) doEverything() {
	w.Helper()
	w.create(w.ns("b"), "settings") // foreign
	src := w.createSource(w.home, "settings")
	w.waitInLine(src, w.ns("a"))
	w.waitEvent(w.home, "settings", mirror.ReasonForeign)
	src = w.edit(w.home, "settings", withData(map[string]string{"key": "two"}))
	w.waitInLine(src, w.ns("a"))
	w.labelNamespace(w.ns("a"), w.label, mirror.OptOutValue)
	w.waitGone("settings", w.ns("a"))
	w.labelNamespace(w.ns("a"), w.label, "")
	w.waitInLine(src, w.ns("a"))
	w.edit(w.home, "settings", withoutLabel(w.label))
	w.waitGone("settings", w.ns("a"))
}

// right is what RBAC asks for a request.
func right(e cluster.Event) string {
	group := e.Object.APIGroup
	if group == "" {
		group = "core"
	}
	resource := e.Object.Resource
	if e.Object.Subresource != "" {
		resource += "/" + e.Object.Subresource
	}
	return strings.Join([]string{group, resource, e.Verb}, " ")
}

// grantedRights returns the rights of all roles in the manifests, in the form of right.
func grantedRights(m shipped.Manifests) (map[string]bool, error) {
	var rules []rbacv1.PolicyRule
	clusterRoles, err := m.ClusterRoles()
	if err != nil {
		return nil, err
	}
	for _, r := range clusterRoles {
		rules = append(rules, r.Rules...)
	}
	roles, err := m.Roles()
	if err != nil {
		return nil, err
	}
	for _, r := range roles {
		rules = append(rules, r.Rules...)
	}
	out := map[string]bool{}
	for _, rule := range rules {
		if len(rule.NonResourceURLs) > 0 {
			return nil, fmt.Errorf("a rule for URLs: %v", rule)
		}
		for _, group := range rule.APIGroups {
			if group == "" {
				group = "core"
			}
			for _, resource := range rule.Resources {
				for _, verb := range rule.Verbs {
					out[strings.Join([]string{group, resource, verb}, " ")] = true
				}
			}
		}
	}
	return out, nil
}

// TestShippedArguments runs the controller with exactly the arguments of the Deployment: they are good, and
// mirror into the namespaces that they name.
func TestShippedArguments(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	prefix := ""
	for _, arg := range w.installed.Args {
		if p, ok := strings.CutPrefix(arg, "--namespace-prefix="); ok {
			prefix = p
		}
	}
	w.label, w.instance = mirror.DefaultLabel, "default"
	target := prefix + w.instance + "-shipped"
	w.createNamespace(target, nil)
	p, err := w.installed.Start(shipped.RunOptions{})
	if err != nil {
		t.Fatal(err)
	}
	w.stopAtEnd(p)
	src := w.createSource(w.home, "shipped")
	w.waitInLine(src, target)
	w.edit(w.home, "shipped", withoutLabel(w.label))
	w.waitGone("shipped", target)
}
