package e2e

import (
	"errors"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/mirror-controller/mirror-controller/e2e/cluster"
	"github.com/mirror-controller/mirror-controller/e2e/faultproxy"
)

// Requests that go wrong: case C34.

// faulty is a controller whose requests go wrong.
type faulty struct {
	*proxied
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
	common := newWorld(t)
	all := common.createMany(200)
	for _, w := range cases {
		w.proxied = newProxied(t, common.sibling())
		w.targets, w.taken = all[1:], all[0]
		w.foreign = w.create(w.taken, "settings-"+w.instance, withAnnotation("mirror-controller.github.io/source", w.home+"/settings"))
		w.run(nil)
		w.settle(w.targets[0])
	}
	for _, step := range []struct{ do, wait func(*faulty) }{
		{
			func(w *faulty) { w.source = w.createSource(w.home, w.foreign.Name) },
			func(w *faulty) { w.waitInSync(w.source, w.targets...) },
		}, {
			func(w *faulty) { w.source = w.edit(w.home, w.foreign.Name, withData(map[string]string{"key": "new"})) },
			func(w *faulty) { w.waitInSync(w.source, w.targets...) },
		}, {
			func(w *faulty) { w.edit(w.home, w.foreign.Name, withoutLabel(w.label)) },
			func(w *faulty) { w.waitGone(w.foreign.Name, w.targets...) },
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
			w.proxied = w.in(t)
			w.check()
		})
	}
}

// inject puts the rules to work, with new counts.
func (w *faulty) inject() {
	w.stopFaults()
	for _, r := range w.rules {
		w.injected = append(w.injected, w.proxy.Inject(r))
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
	w.settle(w.targets...)
	w.untouched(w.foreign)
	counts := w.proxy.Counts()
	for _, r := range w.rules {
		if counts[r.Fault.Kind] == 0 {
			w.Errorf("there was no fault of kind %s", r.Fault.Kind)
		}
	}
	w.wroteOnce(w.foreign.Name, w.taken)
	w.expectQuiet(w.foreign.Name, w.targets[0])
	w.absent(w.foreign.Name, w.targets...)
	w.Logf("faults: %v", counts)
}

// TestC34NoAnswer has some of the requests of a fan-out hang for ever, before or after the server did what they
// asked for. All others go on, and these are tried again when the controller has given them up.
func TestC34NoAnswer(t *testing.T) {
	t.Parallel()
	w := newProxied(t, newWorld(t))
	targets := w.createMany(100)
	w.run(nil)
	w.settle(targets[0])
	creates := faultproxy.Rule{Verbs: []string{"create"}, Resources: []string{"configmaps"}, Skip: 30, Count: 5}
	before, after := creates, creates
	before.Fault = faultproxy.Fault{Kind: faultproxy.Hold}
	after.Fault = faultproxy.Fault{Kind: faultproxy.DelayAnswer, For: time.Hour}
	held, lost := w.proxy.Inject(before), w.proxy.Inject(after)
	src := w.createSource(w.home, "settings")
	w.await("requests hang", func() bool { return held.Fired() == 5 && lost.Fired() == 5 })
	w.eventually("all others in sync", func() error {
		if n := w.count(targets, "settings"); n < len(targets)-5 {
			return fmt.Errorf("there are %d of %d", n, len(targets)-5)
		}
		return nil
	})
	w.waitInSync(src, targets...)
	w.settle(targets...)
	w.wroteOnce("settings", "")
	w.expectQuiet("settings", targets[0])
}

// TestC34HangingLiveRead has the live read hang on which the deletion of many copies depends. That holds up nobody else.
func TestC34HangingLiveRead(t *testing.T) {
	t.Parallel()
	w := newProxied(t, newWorld(t))
	targets := w.createMany(50) // more than there are places for writes
	w.run(nil)
	gone, other := w.createSource(w.home, "gone"), w.createSource(w.home, "other")
	w.waitInSync(gone, targets...)
	w.waitInSync(other, targets...)
	hold := w.proxy.Inject(faultproxy.Rule{
		Verbs: []string{"get"}, Resources: []string{"configmaps"}, Fault: faultproxy.Fault{Kind: faultproxy.Hold},
		When: func(q faultproxy.Request) bool { return q.Name == "gone" },
	})
	defer hold.Stop()
	w.edit(w.home, "gone", withoutLabel(w.label))
	w.await("the live read", func() bool { return hold.Fired() > 0 })
	other = w.edit(w.home, "other", withData(map[string]string{"key": "new"}))
	w.waitInSync(other, targets...)
	w.await("one live read hangs", func() bool { return hold.Held() == 1 }) // it may just have been given up, to be tried again
	hold.Stop()
	w.waitGone("gone", targets...)
}

// TestC34Partition parts the controller from the API server in the middle of a fan-out, until the controller has
// given up its connection, and puts them together again: its earlier requests arrive late.
func TestC34Partition(t *testing.T) {
	t.Parallel()
	for name, cut := range map[string]func(*proxied){
		"cut and joined": func(w *proxied) {
			_, before := w.proxy.Connections()
			w.proxy.Silence()
			w.await("a new connection is tried", func() bool { _, ever := w.proxy.Connections(); return ever > before })
			w.proxy.Heal()
		},
		"half-open": func(w *proxied) { w.proxy.LoseConnections() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newProxied(t, newWorld(t))
			targets := w.createMany(100)
			w.run(impatient, "--concurrent-writes=8")
			w.settle(targets[0])
			hold := w.proxy.Inject(faultproxy.Rule{
				Verbs: []string{"create"}, Resources: []string{"configmaps"}, Skip: 40,
				Fault: faultproxy.Fault{Kind: faultproxy.Hold},
			})
			src := w.createSource(w.home, "settings")
			w.await("the middle", func() bool { return hold.Held() >= 8 })
			var made []string
			w.eventually("a copy", func() error {
				if made = w.having(targets, "settings"); len(made) == 0 {
					return errors.New("none yet")
				}
				return nil
			})
			// The answers to these get lost, or come late.
			hold.Stop()
			cut(w)
			w.delete(made[0], "settings")
			w.waitInSync(src, targets...)
			w.settle(targets...)
			created := map[string]int{}
			for _, e := range writesTo(w.requests(), "settings") {
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
			w.expectQuiet("settings", targets[0])
		})
	}
}

// TestC34Restart restarts the API server in the middle of a fan-out, with requests on their way to it.
func TestC34Restart(t *testing.T) {
	t.Parallel()
	s, err := newSite(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.cluster.Stop(); err != nil {
			t.Error(err)
		}
	})
	w := newProxied(t, newWorldAt(t, s))
	targets := w.createMany(200)
	foreign := w.create(targets[0], "settings")
	p := w.run(nil, "--health-probe-bind-address=127.0.0.1:0")
	w.settle(targets[1])
	hold := w.proxy.Inject(faultproxy.Rule{
		Verbs: []string{"create"}, Resources: []string{"configmaps"}, Skip: 80,
		Fault: faultproxy.Fault{Kind: faultproxy.Hold},
	})
	src := w.createSource(w.home, "settings")
	w.await("the middle", func() bool { return hold.Held() >= 32 })
	if err := s.cluster.StopAPIServer(); err != nil {
		t.Fatal(err)
	}
	hold.Stop() // and nobody is there
	for _, path := range []string{"/livez", "/readyz"} {
		if err := w.probe(p, path); err != nil {
			t.Errorf("while the API server is away: %v", err)
		}
	}
	if err := s.cluster.StartAPIServer(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.waitInSync(src, targets[1:]...)
	w.untouched(foreign)
	w.edit(targets[1], "settings", withData(map[string]string{"key": "wrong"}))
	w.waitInSync(src, targets[1:]...)
	w.settle(targets[1:]...)
	var updates []cluster.Event
	for _, e := range writesTo(w.requests(), "settings") {
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
