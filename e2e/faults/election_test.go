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

// TestC35KilledOrStopped kills or stops the leader in the middle of a fan-out: the other one completes it.
// Alerts and dashboards sum over replicas: only the one that leads counts.
func TestC35KilledOrStopped(t *testing.T) {
	t.Parallel()
	for name, sig := range map[string]syscall.Signal{"killed": syscall.SIGKILL, "stopped": syscall.SIGTERM} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := suite.New(t)
			targets := w.CreateMany(90)
			first, second := newPair(w, "--concurrent-writes=4", "--metrics-bind-address=127.0.0.1:0")
			hold := haltAfter(w, len(targets)*2/3, "create")
			src := w.CreateSource(w.Home, "settings")
			w.Await("all writers wait", func() bool { return hold.Held() >= 4 })
			w.WaitMetrics("the standby", second.Process, counted(0, 0))
			w.Signal(first.Process, sig)
			if sig == syscall.SIGTERM {
				w.WaitLog(first.Process, `"Stopping`)
				hold.Stop()
			}
			w.Wait("the first ends", first.Done()) // by one signal: a second one kills
			if code := first.ExitCode(); sig == syscall.SIGTERM && code != 0 {
				t.Errorf("exit code %d", code)
			}
			w.WaitLog(second.Process, `"Mirroring"`)
			w.WaitInSync(src, targets...)
			w.WaitMetrics("the one that took over", second.Process, counted(1, float64(len(targets))))
			w.Settle(targets[0])
			writesBefore(w, first, second)
		})
	}
}

// counted are the metrics of a replica with so many sources and copies, which leads if it has any.
func counted(sources, copies float64) map[string]float64 {
	return map[string]float64{
		`leader_election_master_status{name="mirror-controller"}`: sources, `mirror_sources`: sources,
		`mirror_copies{state="synced"}`: copies, `mirror_copies{state="pending"}`: 0,
	}
}

// TestC61Paused, of case C35 too, stops the process of the leader for longer than its lease, in the middle of a
// fan-out, with all its writes in flight. When it goes on, these are answered, and neither its watches nor its lease
// show what has happened: it ends by its own clock. What it has sent is conditional.
func TestC61Paused(t *testing.T) {
	t.Parallel()
	w := suite.New(t)
	targets := w.CreateMany(90)
	const concurrent, before = 4, 30
	first, second := newPair(w, fmt.Sprint("--concurrent-writes=", concurrent))
	halt := haltAfter(w, before, "create")
	src := w.CreateSource(w.Home, "settings")
	w.Await("all writers wait", func() bool { return halt.Held() >= concurrent })
	w.Pause(first.Process)
	w.Proxy.Inject(faultproxy.Rule{Verbs: reads, Kind: faultproxy.Hold})
	w.Proxy.Inject(faultproxy.Rule{Resources: []string{"leases"}, Kind: faultproxy.Hold})
	w.Proxy.EndWatches()
	halt.Stop()
	w.WaitLog(second.Process, `"Mirroring"`)
	w.WaitInSync(src, targets...)
	w.Resume(first.Process)
	exits(w, first)
	w.Settle(targets[0])
	w.WaitInSync(src, targets...)
	writes := writesBefore(w, first, second)
	for _, e := range writes {
		if e.Verb != "create" { // which fails if there is any object: each request is conditional
			t.Errorf("a fan-out has %v", e)
		}
	}
}

// TestC35CutOff cuts the leader off from the API server in the middle of a fan-out: it ends by itself, and the other
// brings the fan-out to its end. The writes in flight arrive when all copies have changed once more, and are refused:
// each is conditional. Case C61.
func TestC35CutOff(t *testing.T) {
	t.Parallel()
	w := suite.New(t)
	const before, concurrent = 60, 16
	targets := w.CreateMany(before + concurrent)
	first, second := newPair(w, fmt.Sprint("--concurrent-writes=", concurrent))
	src := w.CreateSource(w.Home, "settings")
	w.WaitInSync(src, targets...)
	halt := haltAfter(w, before, "update")
	src = w.Edit(w.Home, "settings", suite.WithData(map[string]string{"key": "two"}))
	w.Await("writes are in flight", func() bool { return halt.Held() >= concurrent })
	w.Proxy.Silence()
	exits(w, first)
	w.WaitLog(second.Process, `"Mirroring"`)
	w.WaitInSync(src, targets...)
	w.Settle(targets[0])
	sent := len(writesBefore(w, first, second))
	src = w.Edit(w.Home, "settings", suite.WithData(map[string]string{"key": "three"}))
	w.WaitInSync(src, targets...)
	copies := w.Copies("settings", targets...)

	inFlight := halt.Held()
	halt.Stop()
	w.WaitRequests("what was in flight", sent+inFlight, func(e cluster.Event) bool {
		return e.User.Username == first.User && len(suite.WritesTo([]cluster.Event{e}, "settings")) > 0
	})
	w.Proxy.Heal() // and what it sent in silence comes as well
	w.Await("its connections are closed", func() bool { open, _ := w.Proxy.Connections(); return open == 0 })
	w.Settle(targets[0])
	w.Untouched(copies...)
	conflicts := 0
	for _, e := range writesOf(w, first)[sent:] {
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
