package policies

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mirror-controller/mirror-controller/e2e/cluster"
	"github.com/mirror-controller/mirror-controller/e2e/shipped"
	"github.com/mirror-controller/mirror-controller/e2e/suite"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// The controller as the manifests install it.

// shippedLease is held by the test whose controller has the lease of the Deployment: there is one.
var shippedLease sync.Mutex

// takeShippedLease has the lease of the Deployment for the controllers of the test, until they have stopped.
func takeShippedLease(t *testing.T) {
	shippedLease.Lock()
	t.Cleanup(shippedLease.Unlock)
}

// TestPermissions lets the controller do everything it can do, once as it is and once without WatchList, whose
// fallback lists, and compares the requests in the API server's audit log with the roles: no permission
// too many, and none too few.
func TestPermissions(t *testing.T) {
	t.Parallel()
	granted, err := grantedPermissions(suite.Shared(t).Installed.Manifests)
	if err != nil {
		t.Fatal(err)
	}
	used := map[permission]bool{}
	takeShippedLease(t)
	for _, env := range []string{"KUBE_FEATURE_WatchListClient=true", "KUBE_FEATURE_WatchListClient=false"} {
		w := suite.New(t, "a", "b")
		setLeaseNamespace(w, w.Installed.Namespace)
		w.CleanUp(w.Admin.CoordinationV1().Leases(w.Installed.Namespace).Delete(w.Context(), suite.LeaseName, metav1.DeleteOptions{}))
		p := w.StartWith(shipped.RunOptions{Env: []string{env}, Args: []string{"--leader-elect"}})
		doEverything(w)
		w.Stop(p)
		for _, e := range w.Requests() {
			if e.User.Username != w.Installed.User {
				t.Errorf("request of another user than the ServiceAccount: %v", e)
			}
			// A policy may judge by an older state of a namespace, and the write is tried again.
			if e.Response.Code == 403 && !strings.Contains(e.Response.Message, suite.Refusal) {
				t.Errorf("a permission is missing: %v", e)
			}
			covered := false
			for _, r := range granted {
				if r.covers(e) {
					used[r], covered = true, true
				}
			}
			if !covered {
				t.Errorf("used, and not granted: %v", e)
			}
		}
	}
	for _, r := range granted {
		if !used[r] {
			t.Errorf("granted, and never used: %+v", r)
		}
	}
}

// doEverything brings about each kind of request: create, update and delete copies, read what is in the
// way, a source that is gone and a namespace that opted out, and write events, one of them twice and one on a copy.
func doEverything(w *suite.World) {
	w.Helper()
	w.Create(w.NS("b"), "settings") // foreign
	src := w.CreateSource(w.Home, "settings")
	w.WaitInSync(src, w.NS("a"))
	w.WaitEvent(w.Home, "settings", plan.ReasonForeign)
	w.WaitEvent(w.Home, "settings", plan.ReasonMirrored)
	w.WaitInSync(w.Edit(w.Home, "settings", suite.WithData(map[string]string{"key": "two"})), w.NS("a"))
	w.WaitReasons(w.Home, "settings", map[string]int{plan.ReasonForeign: 1, plan.ReasonMirrored: 2})
	src = w.Edit(w.Home, "settings", suite.WithData(src.Data)) // and so the text is that of the first Mirrored
	w.WaitInSync(src, w.NS("a"))
	w.Eventually("the same text is counted on the first event", func() error {
		for _, e := range w.Seen.EventsOn(w.Home, "settings") {
			if e.Count > 1 {
				return nil
			}
		}
		return fmt.Errorf("there are %v", w.Reasons(w.Home, "settings"))
	})
	w.Edit(w.NS("a"), "settings", suite.WithData(nil))
	w.WaitEvent(w.NS("a"), "settings", plan.ReasonRestored)
	w.LabelNamespace(w.NS("a"), w.Label, plan.OptOutValue)
	w.WaitGone("settings", w.NS("a"))
	w.LabelNamespace(w.NS("a"), w.Label, "")
	w.WaitInSync(src, w.NS("a"))
	w.Edit(w.Home, "settings", suite.WithoutLabel(w.Label))
	w.WaitGone("settings", w.NS("a"))
}

// permission is what a rule of a role allows. No namespace and no name means all of them.
type permission struct{ namespace, group, resource, verb, name string }

// covers reports whether the permission is one to make that request.
func (r permission) covers(e cluster.Event) bool {
	resource := e.Object.Resource
	if e.Object.Subresource != "" {
		resource += "/" + e.Object.Subresource
	}
	return r.group == e.Object.APIGroup && r.resource == resource && r.verb == e.Verb &&
		(r.namespace == "" || r.namespace == e.Object.Namespace) && (r.name == "" || r.name == e.Object.Name)
}

// grantedPermissions returns the permissions of all roles in the manifests.
func grantedPermissions(m shipped.Manifests) ([]permission, error) {
	clusterRoles, err := m.ClusterRoles()
	if err != nil {
		return nil, err
	}
	roles, err := m.Roles()
	if err != nil {
		return nil, err
	}
	var out []permission
	for _, r := range clusterRoles {
		out = append(out, permissionsOf("", r.Rules)...)
	}
	for _, r := range roles {
		out = append(out, permissionsOf(r.Namespace, r.Rules)...)
	}
	return out, nil
}

// permissionsOf returns the permissions of the rules. A rule for URLs is one that no request uses.
func permissionsOf(namespace string, rules []rbacv1.PolicyRule) []permission {
	var out []permission
	for _, rule := range rules {
		names := rule.ResourceNames
		if len(names) == 0 {
			names = []string{""}
		}
		for _, url := range rule.NonResourceURLs {
			out = append(out, permission{resource: url})
		}
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				for _, verb := range rule.Verbs {
					for _, name := range names {
						out = append(out, permission{namespace, group, resource, verb, name})
					}
				}
			}
		}
	}
	return out
}

// TestShippedArguments runs the controller with exactly the arguments of the Deployment: they are good, and
// mirror into the namespaces that they name.
func TestShippedArguments(t *testing.T) {
	t.Parallel()
	w := suite.New(t)
	prefix := ""
	for _, arg := range w.Installed.Args {
		if p, ok := strings.CutPrefix(arg, "--namespace-prefix="); ok {
			prefix = p
		}
	}
	w.Label, w.Instance = plan.DefaultLabel, "default"
	target := prefix + w.Instance + "-shipped"
	takeShippedLease(t)
	w.Cleanup(func() { w.ExpectConfined(suite.Shared(t).Installed.User) })
	w.CreateNamespace(target, nil)
	p, err := suite.Shared(t).Installed.Start(shipped.RunOptions{})
	if err != nil {
		t.Fatal(err)
	}
	w.StopAtEnd(p)
	src := w.CreateSource(w.Home, "shipped")
	w.WaitInSync(src, target)
	expectMetricsOfMonitoring(w, p)
	w.Edit(w.Home, "shipped", suite.WithoutLabel(w.Label))
	w.WaitGone("shipped", target)
}

// TestPodSecurity asks the API server to take the Pod of the shipped Deployment into the shipped namespace, which enforces the
// Pod Security Standard restricted, and one as root.
func TestPodSecurity(t *testing.T) {
	t.Parallel()
	site := suite.Shared(t)
	create := func(change func(*corev1.SecurityContext)) error {
		deployment, err := site.Installed.Manifests.Deployment()
		if err != nil {
			t.Fatal(err)
		}
		spec := deployment.Spec.Template.Spec
		change(spec.Containers[0].SecurityContext)
		_, err = site.Admin.CoreV1().Pods(deployment.Namespace).Create(t.Context(),
			&corev1.Pod{ObjectMeta: metav1.ObjectMeta{GenerateName: "probe-"}, Spec: spec}, dryCreate)
		return err
	}
	if err := create(func(*corev1.SecurityContext) {}); err != nil {
		t.Error(err)
	}
	err := create(func(c *corev1.SecurityContext) { c.RunAsUser = new(int64(0)) })
	if !strings.Contains(fmt.Sprint(err), `violates PodSecurity "restricted`) {
		t.Errorf("got error %v, want that root violates restricted", err)
	}
}
