package e2e

import (
	"testing"

	"github.com/mirror-controller/mirror-controller/e2e/cluster"
	"github.com/mirror-controller/mirror-controller/e2e/faultproxy"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// Decisions by an old cache: case C41.

// TestC41PausedProcess stops the controller's process, lets a namespace opt out and in again, and lets the
// process go on: it sees the opt-out first, and must not delete the copy on its strength.
func TestC41PausedProcess(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "a", "b")
	p := w.start()
	src := w.createSource(w.home, "settings")
	w.waitInSync(src, w.ns("a"), w.ns("b"))
	before := w.live(w.ns("a"), "settings")
	for range 20 {
		w.pause(p)
		w.labelNamespace(w.ns("a"), w.label, "false")
		w.labelNamespace(w.ns("a"), w.label, "")
		w.resume(p)
		w.settle(w.ns("b"))
	}
	w.untouched(before)
}

// TestC41Standby holds up the namespaces of a standby that has one as opted out, while that opts in again and gets its copy.
// The standby takes over, knows of the copy and not that it is wanted, and must not delete it.
func TestC41Standby(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "a", "b")
	a, b := w.ns("a"), w.ns("b")
	first, second := w.newCandidate("first"), w.newCandidate("second")
	w.stand(first, first.kubeconfig)
	src := w.createSource(w.home, "settings")
	w.waitInSync(src, a, b)
	w.labelNamespace(a, w.label, plan.OptOutValue)
	w.waitGone("settings", a)

	between := newProxiedAs(t, w, second.kubeconfig)
	w.stand(second, between.proxy.Kubeconfig())
	w.Cleanup(between.proxy.Heal)
	hold := between.proxy.Inject(faultproxy.Rule{
		Verbs: []string{"watch", "list"}, Resources: []string{"namespaces"}, Fault: faultproxy.Fault{Kind: faultproxy.Hold},
	})
	between.proxy.CutWatches("namespaces")
	between.await("the watch is down", func() bool { return hold.Held() == 1 })
	w.labelNamespace(a, w.label, "")
	w.waitInSync(src, a)
	before := w.copies("settings", a, b)
	first.Kill()
	w.leads(second)
	w.waitRequests("the live read of the namespace", 1, func(e cluster.Event) bool {
		return e.User.Username == second.user && e.Verb == "get" && e.Object.Resource == "namespaces" && e.Object.Name == a
	})
	w.settle(b)
	w.allUntouched(before)

	src = w.edit(w.home, "settings", withData(map[string]string{"key": "two"}))
	w.waitInSync(src, b)
	hold.Stop()
	w.waitInSync(src, a)
	w.sameObjects(before)
}
