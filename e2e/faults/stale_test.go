package faults

import (
	"testing"

	"github.com/mirror-controller/mirror-controller/e2e/cluster"
	"github.com/mirror-controller/mirror-controller/e2e/faultproxy"
	"github.com/mirror-controller/mirror-controller/e2e/suite"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// Decisions by an old cache: case C41.

// TestC41PausedProcess stops the controller's process, lets a namespace opt out and in again, and lets the
// process go on: it sees the opt-out first, and must not delete the copy on its strength.
func TestC41PausedProcess(t *testing.T) {
	t.Parallel()
	w := suite.New(t, "a", "b")
	p := w.Start()
	src := w.CreateSource(w.Home, "settings")
	w.WaitInSync(src, w.NS("a"), w.NS("b"))
	before := w.Live(w.NS("a"), "settings")
	for range 20 {
		w.Pause(p)
		w.LabelNamespace(w.NS("a"), w.Label, "false")
		w.LabelNamespace(w.NS("a"), w.Label, "")
		w.Resume(p)
		w.Settle(w.NS("b"))
	}
	w.Untouched(before)
}

// TestC41Standby holds up the namespaces of a standby that has one as opted out, while that opts in again and gets its copy.
// The standby takes over, knows of the copy and not that it is wanted, and must not delete it.
func TestC41Standby(t *testing.T) {
	t.Parallel()
	w := suite.New(t, "a", "b")
	a, b := w.NS("a"), w.NS("b")
	first, second := newCandidate(w, "first"), newCandidate(w, "second")
	stand(w, first, first.Kubeconfig)
	src := w.CreateSource(w.Home, "settings")
	w.WaitInSync(src, a, b)
	w.LabelNamespace(a, w.Label, plan.OptOutValue)
	w.WaitGone("settings", a)

	between := suite.NewProxiedAs(t, w, second.Kubeconfig)
	stand(w, second, between.Proxy.Kubeconfig())
	w.Cleanup(between.Proxy.Heal)
	hold := between.Proxy.Inject(faultproxy.Rule{
		Verbs: []string{"watch", "list"}, Resources: []string{"namespaces"}, Fault: faultproxy.Fault{Kind: faultproxy.Hold},
	})
	between.Proxy.CutWatches("namespaces")
	between.Await("the watch is down", func() bool { return hold.Held() == 1 })
	w.LabelNamespace(a, w.Label, "")
	w.WaitInSync(src, a)
	before := w.Copies("settings", a, b)
	first.Kill()
	leads(w, second)
	w.WaitRequests("the live read of the namespace", 1, func(e cluster.Event) bool {
		return e.User.Username == second.User && e.Verb == "get" && e.Object.Resource == "namespaces" && e.Object.Name == a
	})
	w.Settle(b)
	w.AllUntouched(before)

	src = w.Edit(w.Home, "settings", suite.WithData(map[string]string{"key": "two"}))
	w.WaitInSync(src, b)
	hold.Stop()
	w.WaitInSync(src, a)
	w.SameObjects(before)
}
