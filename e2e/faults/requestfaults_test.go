package faults

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/mirror-controller/mirror-controller/e2e/faultproxy"
	"github.com/mirror-controller/mirror-controller/e2e/suite"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// Requests that go wrong: case C34.

// TestC34FaultyAPI fans out, edits and takes back a source in 200 namespaces, under every fault that a request can
// meet. Each copy is written once for each state, nothing foreign is written to, and all is quiet in the end.
func TestC34FaultyAPI(t *testing.T) {
	t.Parallel()
	w := suite.NewProxied(t, suite.New(t))
	targets := w.CreateMany(200)
	taken, targets := targets[0], targets[1:]
	foreign := w.Create(taken, "settings", suite.WithAnnotation(plan.SourceAnnotation, w.Home+"/settings"))
	w.StartProxied(nil)
	w.Settle(targets[0])
	var source *corev1.ConfigMap
	fired := map[faultproxy.Kind]int{}
	for _, step := range []func(){
		func() { source = w.CreateSource(w.Home, "settings") },
		func() { source = w.Edit(w.Home, "settings", suite.WithKey("key", "new")) },
		func() { w.Edit(w.Home, "settings", suite.WithoutLabel(w.Label)); source = nil },
	} {
		var injected []*faultproxy.Injection
		for _, rule := range faults {
			rule.Resources = watched
			injected = append(injected, w.Proxy.Inject(rule))
		}
		if step(); source != nil {
			w.WaitInSync(source, targets...)
		} else {
			w.WaitGone("settings", targets...)
		}
		for n, i := range injected {
			i.Stop()
			fired[faults[n].Fault.Kind] += i.Fired()
		}
	}
	w.Settle(targets...)
	w.Untouched(foreign)
	for _, rule := range faults {
		if fired[rule.Fault.Kind] == 0 {
			t.Errorf("there was no fault of kind %s", rule.Fault.Kind)
		}
	}
	accepted := map[string]int{} // the controller sends again what it has cut, and each call is conditional
	for _, e := range suite.WritesTo(w.Requests(), "settings") {
		if e.Response.Code < 300 {
			accepted[e.Verb+" in "+e.Object.Namespace]++
		}
	}
	for what, n := range accepted {
		if n > 1 {
			t.Errorf("%d times %s", n, what)
		}
	}
	w.ExpectQuiet("settings", targets[0])
}

// faults are what may happen to the requests of TestC34FaultyAPI: with a probability so many times, or three times in
// the middle.
var faults = []faultproxy.Rule{
	fault(faultproxy.TooManyRequests, 0.02, time.Second), fault(faultproxy.Unavailable, 0.02, time.Second),
	fault(faultproxy.InternalError, 0.1, 0), fault(faultproxy.Conflict, 0.1, 0),
	fault(faultproxy.Delay, 0.1, 20*time.Millisecond), fault(faultproxy.DelayAnswer, 0.1, 20*time.Millisecond),
	fault(faultproxy.ResetBefore, 0.1, 0), fault(faultproxy.ResetAfter, 0.1, 0),
	few(faultproxy.BreakBefore), few(faultproxy.BreakAfter),
}

func fault(k faultproxy.Kind, probability float64, d time.Duration) faultproxy.Rule {
	return faultproxy.Rule{
		Verbs: []string{"create", "update", "delete"}, Probability: probability, Count: 60,
		Fault: faultproxy.Fault{Kind: k, For: d},
	}
}

func few(k faultproxy.Kind) faultproxy.Rule {
	r := fault(k, 0.05, 0)
	r.Skip, r.Count = 20, 3
	return r
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
			hold := haltAfter(w, 40, "create")
			src := fanOut(w.World, targets)
			w.Await("the middle", func() bool { return hold.Held() >= 8 })
			made := w.Having(targets, "settings")[0]
			// The answers to these get lost, or come late.
			hold.Stop()
			cut(w)
			w.Delete(made, "settings")
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
			created[made]-- // the one that was deleted meanwhile
			for namespace, n := range created {
				if n > 1 {
					t.Errorf("the copy in %s was created %d times", namespace, n)
				}
			}
			w.ExpectQuiet("settings", targets[0])
		})
	}
}
