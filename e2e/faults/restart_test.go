package faults

import (
	"testing"

	"github.com/mirror-controller/mirror-controller/e2e/cluster"
	"github.com/mirror-controller/mirror-controller/e2e/faultproxy"
	"github.com/mirror-controller/mirror-controller/e2e/suite"
)

// TestC34Restart restarts the API server in the middle of a fan-out, with requests on their way to it.
func TestC34Restart(t *testing.T) {
	t.Parallel()
	w := suite.NewProxied(t, suite.NewAlone(t))
	targets := w.CreateMany(200)
	foreign := w.Create(targets[0], "settings")
	p := w.StartProxied(nil, "--health-probe-bind-address=127.0.0.1:0")
	w.Settle(targets[1])
	hold := w.Proxy.Inject(faultproxy.Rule{
		Verbs: []string{"create"}, Resources: []string{"configmaps"}, Skip: 80,
		Fault: faultproxy.Fault{Kind: faultproxy.Hold},
	})
	src := w.CreateSource(w.Home, "settings")
	w.Await("the middle", func() bool { return hold.Held() >= 32 })
	if err := w.Cluster.StopAPIServer(); err != nil {
		t.Fatal(err)
	}
	hold.Stop() // and nobody is there
	for _, path := range []string{"/livez", "/readyz"} {
		if err := w.Probe(p, path); err != nil {
			t.Errorf("while the API server is away: %v", err)
		}
	}
	if err := w.Cluster.StartAPIServer(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.WaitInSync(src, targets[1:]...)
	w.Untouched(foreign)
	w.Edit(targets[1], "settings", suite.WithData(map[string]string{"key": "wrong"}))
	w.WaitInSync(src, targets[1:]...)
	w.Settle(targets[1:]...)
	var updates []cluster.Event
	for _, e := range suite.WritesTo(w.Requests(), "settings") {
		switch {
		case e.Verb != "create" && e.Verb != "update":
			t.Errorf("a write without need: %v", e)
		case e.Verb == "update" && e.Response.Code < 300: // an API server that has just started refuses some, for want of RBAC
			updates = append(updates, e)
		}
	}
	if len(updates) > 1 {
		t.Errorf("%d updates, want that of the edited copy: %v", len(updates), updates)
	}
	select {
	case <-p.Done():
		t.Error("the controller has ended")
	default:
	}
}
