package faults

import (
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/mirror-controller/mirror-controller/e2e/cluster"
	"github.com/mirror-controller/mirror-controller/e2e/faultproxy"
	"github.com/mirror-controller/mirror-controller/e2e/suite"
)

// Requests that go wrong: case C34.

// faulty is a controller whose requests go wrong.
type faulty struct {
	*suite.Proxied
	name     string
	rules    []faultproxy.Rule
	injected []*faultproxy.Injection
	targets  []string
	taken    string // a target where a foreign object is in the way
	foreign  *corev1.ConfigMap
	source   *corev1.ConfigMap
}

// TestC34FaultyAPI fans out, edits and takes back a source in 200 namespaces, under every fault that a request can
// meet. Whatever the fault, each copy is written once for each state, by the API server's own account, nothing foreign is
// written to, and all is quiet in the end. A controller for each fault has the namespaces in common with the others.
func TestC34FaultyAPI(t *testing.T) {
	t.Parallel()
	fault := func(k faultproxy.Kind, probability float64, d time.Duration) faultproxy.Rule {
		return faultproxy.Rule{
			Verbs: []string{"get", "create", "update", "delete"}, Resources: watched,
			Probability: probability, Count: 60, Fault: faultproxy.Fault{Kind: k, For: d},
		}
	}
	few := func(k faultproxy.Kind) faultproxy.Rule {
		r := fault(k, 0.05, 0)
		r.Skip, r.Count = 20, 3
		return r
	}
	conflict := fault(faultproxy.Conflict, 0, 0)
	conflict.Verbs = []string{"create", "update", "delete"}
	const short = 20 * time.Millisecond
	cases := []*faulty{
		{name: "429", rules: []faultproxy.Rule{fault(faultproxy.TooManyRequests, 0.05, time.Second)}},
		{name: "500", rules: []faultproxy.Rule{fault(faultproxy.InternalError, 0.3, 0)}},
		{name: "503", rules: []faultproxy.Rule{fault(faultproxy.Unavailable, 0.3, 0)}},
		{name: "503, retry after", rules: []faultproxy.Rule{fault(faultproxy.Unavailable, 0.05, time.Second)}},
		{name: "409", rules: []faultproxy.Rule{conflict}},
		{name: "late", rules: []faultproxy.Rule{fault(faultproxy.Delay, 0.5, short), fault(faultproxy.DelayAnswer, 0.5, short)}},
		{name: "reset", rules: []faultproxy.Rule{fault(faultproxy.ResetBefore, 0.3, 0), fault(faultproxy.ResetAfter, 0.3, 0)}},
		{name: "connection broken", rules: []faultproxy.Rule{few(faultproxy.BreakBefore), few(faultproxy.BreakAfter)}},
		{name: "all", rules: []faultproxy.Rule{
			fault(faultproxy.TooManyRequests, 0.02, time.Second), fault(faultproxy.InternalError, 0.1, 0),
			fault(faultproxy.Unavailable, 0.1, 0), fault(faultproxy.Delay, 0.1, short),
			fault(faultproxy.ResetBefore, 0.1, 0), fault(faultproxy.ResetAfter, 0.1, 0), few(faultproxy.BreakAfter),
		}},
	}
	common := suite.New(t)
	all := common.CreateMany(200)
	for _, w := range cases {
		w.Proxied = suite.NewProxied(t, common.Sibling())
		w.targets, w.taken = all[1:], all[0]
		w.foreign = w.Create(w.taken, "settings-"+w.Instance,
			suite.WithAnnotation("mirror-controller.github.io/source", w.Home+"/settings"))
		w.StartProxied(nil)
		w.Settle(w.targets[0])
	}
	for _, step := range []struct{ do, wait func(*faulty) }{
		{
			func(w *faulty) { w.source = w.CreateSource(w.Home, w.foreign.Name) },
			func(w *faulty) { w.WaitInSync(w.source, w.targets...) },
		}, {
			func(w *faulty) {
				w.source = w.Edit(w.Home, w.foreign.Name, suite.WithData(map[string]string{"key": "new"}))
			},
			func(w *faulty) { w.WaitInSync(w.source, w.targets...) },
		}, {
			func(w *faulty) { w.Edit(w.Home, w.foreign.Name, suite.WithoutLabel(w.Label)) },
			func(w *faulty) { w.WaitGone(w.foreign.Name, w.targets...) },
		},
	} {
		for _, w := range cases {
			w.inject()
			step.do(w)
		}
		for _, w := range cases {
			step.wait(w)
		}
	}
	for _, w := range cases {
		t.Run(w.name, func(t *testing.T) {
			w.Proxied = w.In(t)
			w.check()
		})
	}
}

// inject puts the rules to work, with new counts.
func (w *faulty) inject() {
	w.stopFaults()
	for _, r := range w.rules {
		w.injected = append(w.injected, w.Proxy.Inject(r))
	}
}

func (w *faulty) stopFaults() {
	for _, i := range w.injected {
		i.Stop()
	}
	w.injected = nil
}

func (w *faulty) check() {
	w.stopFaults()
	w.Settle(w.targets...)
	w.Untouched(w.foreign)
	counts := w.Proxy.Counts()
	for _, r := range w.rules {
		if counts[r.Fault.Kind] == 0 {
			w.Errorf("there was no fault of kind %s", r.Fault.Kind)
		}
	}
	w.WroteOnce(w.foreign.Name, w.taken)
	w.ExpectQuiet(w.foreign.Name, w.targets[0])
	w.Absent(w.foreign.Name, w.targets...)
	w.Logf("faults: %v", counts)
}

// TestC34Partition parts the controller from the API server in the middle of a fan-out, until the controller has
// given up its connection, and puts them together again: its earlier requests arrive late.
func TestC34Partition(t *testing.T) {
	t.Parallel()
	for name, cut := range map[string]func(*suite.Proxied){
		"cut and joined": func(w *suite.Proxied) {
			_, before := w.Proxy.Connections()
			w.Proxy.Silence()
			w.Await("a new connection is tried", func() bool { _, ever := w.Proxy.Connections(); return ever > before })
			w.Proxy.Heal()
		},
		"half-open": func(w *suite.Proxied) { w.Proxy.LoseConnections() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := suite.NewProxied(t, suite.New(t))
			targets := w.CreateMany(100)
			w.StartProxied(impatient, "--concurrent-writes=8")
			w.Settle(targets[0])
			hold := w.Proxy.Inject(faultproxy.Rule{
				Verbs: []string{"create"}, Resources: []string{"configmaps"}, Skip: 40,
				Fault: faultproxy.Fault{Kind: faultproxy.Hold},
			})
			src := w.CreateSource(w.Home, "settings")
			w.Await("the middle", func() bool { return hold.Held() >= 8 })
			var made []string
			w.Eventually("a copy", func() error {
				if made = w.Having(targets, "settings"); len(made) == 0 {
					return errors.New("none yet")
				}
				return nil
			})
			// The answers to these get lost, or come late.
			hold.Stop()
			cut(w)
			w.Delete(made[0], "settings")
			w.WaitInSync(src, targets...)
			w.Settle(targets...)
			created := map[string]int{}
			for _, e := range suite.WritesTo(w.Requests(), "settings") {
				switch {
				case e.Verb != "create":
					t.Errorf("a write without need: %v", e)
				case e.Response.Code < 300:
					created[e.Object.Namespace]++
				}
			}
			created[made[0]]-- // the one that was deleted meanwhile
			for namespace, n := range created {
				if n > 1 {
					t.Errorf("the copy in %s was created %d times", namespace, n)
				}
			}
			w.ExpectQuiet("settings", targets[0])
		})
	}
}

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
