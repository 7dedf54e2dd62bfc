package faults

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/mirror-controller/mirror-controller/e2e/faultproxy"
	"github.com/mirror-controller/mirror-controller/e2e/suite"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// Requests that go wrong: case C34.

// TestC34FaultyAPI fans out, edits and takes back a source in 200 namespaces, under every fault that a request can
// meet. The second edit meets copies with a label of other people. Each copy is written once for each state, nothing
// foreign is written to, and all is quiet in the end.
func TestC34FaultyAPI(t *testing.T) {
	t.Parallel()
	w := suite.New(t).WithProxy()
	targets := w.CreateMany(200)
	taken, targets := targets[0], targets[1:]
	foreign := w.Create(taken, "settings", suite.WithAnnotation(plan.SourceAnnotation, w.Home+"/settings"))
	w.StartProxied(nil)
	w.Settle(targets[0])
	var source *corev1.ConfigMap
	for _, step := range []struct {
		verb string // of the requests that fail
		do   func()
	}{
		{"create", func() { source = w.CreateSource(w.Home, "settings") }},
		{"update", func() { source = w.Edit(w.Home, "settings", suite.WithKey("key", "new")) }},
		{"get", func() { // before each update
			for _, namespace := range targets {
				w.Edit(namespace, "settings", suite.WithLabel("team", "red"))
			}
			source = w.Edit(w.Home, "settings", suite.WithKey("key", "newer"))
		}},
		{"delete", func() {
			w.Edit(w.Home, "settings", suite.WithoutLabel(w.Label))
			source = nil
		}},
	} {
		injected := map[faultproxy.Kind]*faultproxy.Injection{}
		for _, kind := range faultproxy.Usual {
			injected[kind] = w.Proxy.Inject(faultproxy.Rule{
				Verbs: []string{step.verb}, Resources: []string{"configmaps"}, Skip: 20, Probability: 0.1, Count: 10,
				Kind: kind, For: time.Second,
			})
		}
		step.do()
		w.Proxy.BreakConnections() // with requests on them
		if source != nil {
			w.WaitInSync(source, targets...)
		} else {
			w.WaitGone("settings", targets...)
		}
		for kind, i := range injected {
			if i.Stop(); i.Fired() == 0 {
				t.Errorf("there was no fault of kind %s for %s", kind, step.verb)
			}
		}
	}
	w.Settle(targets...)
	w.Untouched(foreign)
	for write, n := range accepted(w) {
		most := 1
		if strings.HasPrefix(write, "update") {
			most = 2 // the source has changed twice
		}
		if n > most {
			t.Errorf("%d times %s", n, write)
		}
	}
	w.ExpectQuiet("settings", targets[0])
}

// accepted returns how often the API server accepted each write to a copy of the source settings, as "verb namespace".
// What was cut is sent again, and each call is conditional.
func accepted(w *suite.World) map[string]int {
	w.Helper()
	writes := map[string]int{}
	for _, e := range suite.WritesTo(w.Requests(), "settings") {
		if e.Response.Code < 300 {
			writes[e.Verb+" "+e.Object.Namespace]++
		}
	}
	return writes
}

// TestC34Partition parts the controller from the API server in the middle of a fan-out, until the controller has
// given up its connection, and puts them together again: its earlier requests arrive late. Case C33.
func TestC34Partition(t *testing.T) {
	t.Parallel()
	for name, cut := range map[string]func(*faultproxy.Proxy){
		"cut and joined": (*faultproxy.Proxy).Silence, "half-open": (*faultproxy.Proxy).LoseConnections,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := suite.New(t).WithProxy()
			targets := w.CreateMany(100)
			// It looks after a connection on which nothing comes in, sooner than by default.
			soon := []string{"HTTP2_READ_IDLE_TIMEOUT_SECONDS=1", "HTTP2_PING_TIMEOUT_SECONDS=1"}
			w.StartProxied(soon, "--concurrent-writes=8")
			w.Settle(targets[0])
			hold := haltAfter(w, 40, "create")
			src := w.CreateSource(w.Home, "settings")
			var made []string
			w.Await("all writers wait", func() bool {
				made = w.Having(targets, "settings")
				return hold.Held() >= 8 && len(made) > 0
			})
			// The answers to these get lost, or come late.
			hold.Stop()
			_, before := w.Proxy.Connections()
			cut(w.Proxy)
			w.Await("a new connection is tried", func() bool { _, ever := w.Proxy.Connections(); return ever > before })
			w.Proxy.Heal()
			w.Delete(made[0], "settings")
			w.WaitInSync(src, targets...)
			w.Settle(targets...)
			writes := accepted(w)
			writes["create "+made[0]]-- // it was deleted meanwhile
			for write, n := range writes {
				if n > 1 || !strings.HasPrefix(write, "create") {
					t.Errorf("%d times %s", n, write)
				}
			}
			w.ExpectQuiet("settings", targets[0])
		})
	}
}
