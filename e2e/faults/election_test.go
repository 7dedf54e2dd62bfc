package faults

import (
	"fmt"
	"net/http"
	"syscall"
	"testing"

	"github.com/mirror-controller/mirror-controller/e2e/cluster"
	"github.com/mirror-controller/mirror-controller/e2e/faultproxy"
	"github.com/mirror-controller/mirror-controller/e2e/suite"
)

// Two replicas: cases C35 and C61. `make bench BENCH=node` measures how long a handover takes.

// TestC35Killed kills the leader in the middle of a fan-out: another brings it to its end.
func TestC35Killed(t *testing.T) {
	t.Parallel()
	w := suite.New(t)
	targets := w.CreateMany(300)
	first, second, between := proxiedPair(w, []string{"--concurrent-writes=4"}, nil)
	haltAfter(between, len(targets)*2/3, "create")
	src := fanOut(w, targets)
	first.Kill()
	w.WaitInSync(src, targets...)
	w.Settle(targets[0])
	r := records(w, first, second)
	inTurn(w, r[0], r[1])
}

// TestC35Stopped stops the leader in the middle of a fan-out: it gives its lease back behind its last write, and the
// other goes on.
func TestC35Stopped(t *testing.T) {
	t.Parallel()
	w := suite.New(t)
	targets := w.CreateMany(300)
	first, second, between := proxiedPair(w, []string{"--concurrent-writes=4"}, nil)
	hold := haltAfter(between, len(targets)*2/3, "create")
	src := fanOut(w, targets)
	w.Signal(first.Process, syscall.SIGTERM)
	w.WaitLog(first.Process, `"Stopping`)
	hold.Stop()
	w.Wait("the first ends", first.Done()) // by one signal: a second one kills
	if code := first.ExitCode(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	w.WaitInSync(src, targets...)
	w.Settle(targets[0])
	r := records(w, first, second)
	inTurn(w, r[0], r[1])
	release := r[0].lease[len(r[0].lease)-1]
	for _, e := range r[0].writes {
		if e.Response.Code < 300 && e.Done.After(release.Received) { // a call that was cut may end later
			t.Errorf("the lease was given back %v before a write was done: %v", e.Done.Sub(release.Received), e)
		}
	}
}

// TestC61Paused, of case C35 too, stops the process of the leader for longer than its lease, in the middle of a fan-out,
// with all its writes in flight. When it goes on, these are answered, and neither its watches nor its lease tell it at once
// what has happened: its own clock has to. It sends no more.
func TestC61Paused(t *testing.T) {
	t.Parallel()
	w := suite.New(t)
	targets := w.CreateMany(300)
	const concurrent, before = 4, 100
	const inFlight = concurrent + slowPlaces
	first, second, between := proxiedPair(w, []string{fmt.Sprint("--concurrent-writes=", concurrent)}, nil)
	halt := haltAfter(between, before, "create")
	src := w.CreateSource(w.Home, "settings")
	between.Await("all writers wait", func() bool { return halt.Held() >= concurrent })
	w.Pause(first.Process)
	hold := faultproxy.Fault{Kind: faultproxy.Hold}
	between.Proxy.Inject(faultproxy.Rule{Verbs: []string{"list", "watch"}, Fault: hold})
	between.Proxy.Inject(faultproxy.Rule{Resources: []string{"leases"}, Fault: hold})
	between.Proxy.CutWatches()
	halt.Stop()
	w.WaitInSync(src, targets...)
	w.Resume(first.Process)
	exits(w, first)
	w.Settle(targets[0])
	w.WaitInSync(src, targets...)
	r := records(w, first, second)
	inTurn(w, r[0], r[1])
	for _, e := range r[0].writes {
		if e.Verb != "create" { // which fails if there is any object: each request is conditional
			t.Errorf("a fan-out has %v", e)
		}
	}
	if n := len(r[0].writes) - before - inFlight; n > 0 {
		t.Errorf("%d requests were sent after the pause", n)
	}
}

// TestC35CutOff cuts the leader off from the API server in the middle of a fan-out: it ends by itself, and the other
// brings the fan-out to its end. The writes in flight arrive when all copies have changed once more, and are refused.
func TestC35CutOff(t *testing.T) {
	t.Parallel()
	w := suite.New(t)
	const before = 60
	targets := w.CreateMany(before + slowPlaces) // a call that is held moves to a slow place
	first, second, between := proxiedPair(w, []string{"--concurrent-writes=4"}, nil)
	src := w.CreateSource(w.Home, "settings")
	w.WaitInSync(src, targets...)
	halt := haltAfter(between, before, "update")
	src = w.Edit(w.Home, "settings", suite.WithData(map[string]string{"key": "two"}))
	between.Await("writes are in flight", func() bool { return halt.Held() >= slowPlaces })
	between.Proxy.Silence()
	exits(w, first)
	w.WaitInSync(src, targets...)
	w.Settle(targets[0])
	r := records(w, first, second)
	inTurn(w, r[0], r[1])
	src = w.Edit(w.Home, "settings", suite.WithData(map[string]string{"key": "three"}))
	w.WaitInSync(src, targets...)
	copies := w.Copies("settings", targets...)

	sent, inFlight := len(r[0].writes), halt.Held()
	halt.Stop()
	w.WaitRequests("what was in flight", sent+inFlight, func(e cluster.Event) bool {
		return e.User.Username == first.User && len(suite.WritesTo([]cluster.Event{e}, "settings")) > 0
	})
	between.Proxy.Heal() // and what it sent in silence comes as well
	between.Await("its connections are closed", func() bool { open, _ := between.Proxy.Connections(); return open == 0 })
	w.Settle(targets[0])
	w.AllUntouched(copies)
	conflicts := 0
	for _, e := range records(w, first)[0].writes[sent:] {
		switch {
		case e.Response.Code == http.StatusConflict:
			conflicts++
		case e.Response.Code < 500: // which it answers if the end of the connection meets a request at work
			t.Errorf("not refused: %v", e)
		}
	}
	if conflicts == 0 {
		t.Error("none of them was refused for what has changed")
	}
}
