package e2e

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mirror-controller/mirror-controller/e2e/cluster"
	"github.com/mirror-controller/mirror-controller/e2e/faultproxy"
)

// TestC35Killed kills the leader in the middle of a fan-out to a thousand namespaces: another brings it to its end, no
// later than the lease duration and five seconds after. A machine that has other things to do as well takes longer; how
// much, plain creates of as many objects tell: four times their time is granted where it is more than five seconds.
func TestC35Killed(t *testing.T) {
	s, err := newSite(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.cluster.Stop(); err != nil {
			t.Error(err)
		}
	})
	w := newWorldAt(t, s)
	targets := w.createMany(1000)
	plain := w.plainCreates("before", targets)
	first, second, between := w.proxiedPair(append(shortLeaseArgs, "--concurrent-writes=4"), shortLeaseArgs)
	between.haltAfter(len(targets)*2/3, "create")
	src := w.fanOut(targets)
	first.Kill()
	made := w.count(targets, "settings")
	w.waitInSync(src, targets...)
	plain = max(plain, w.plainCreates("after", targets))
	w.settle(targets[0])
	r := w.records(first, second)
	w.inTurn(r[0], r[1])
	// The leader was alive when it sent its last request.
	took := lastDone(r[1].writes).Sub(lastReceived(r[0].all))
	limit := shortLease + max(5*time.Second, 4*plain)
	w.figure("leader killed with %d of %d copies made: all were there %.1fs later, by a lease of %v; at most %.1fs, "+
		"where as many plain creates take %.1fs", made, len(targets), took.Seconds(), shortLease, limit.Seconds(), plain.Seconds())
	if took > limit {
		t.Errorf("that is %v too late", took-limit)
	}
}

// plainCreates returns how long it takes to create an object in each of the namespaces, with as many requests at a time
// as the controller has by default.
func (w *world) plainCreates(name string, namespaces []string) time.Duration {
	w.Helper()
	began := time.Now()
	waiting := make(chan string)
	var writers sync.WaitGroup
	for range 32 {
		writers.Go(func() {
			for namespace := range waiting {
				if _, err := w.admin.CoreV1().ConfigMaps(namespace).Create(w.ctx, configMap(namespace, name), metav1.CreateOptions{}); err != nil {
					w.Error(err)
				}
			}
		})
	}
	for _, namespace := range namespaces {
		waiting <- namespace
	}
	close(waiting)
	writers.Wait()
	return time.Since(began)
}

// TestC35Stopped stops the leader in the middle of a fan-out: it gives its lease back behind its last write, and the
// other goes on within two seconds, in which the machine has time for it.
func TestC35Stopped(t *testing.T) {
	w := newWorld(t)
	targets := w.createMany(300)
	first, second, between := w.proxiedPair([]string{"--concurrent-writes=4"}, nil)
	hold := between.haltAfter(len(targets)*2/3, "create")
	src := w.fanOut(targets)
	w.signal(first.Process, syscall.SIGTERM)
	w.waitLog(first.Process, `"Stopping`)
	hold.Stop()
	w.wait("the first ends", first.Done()) // by one signal: a second one kills
	if code := first.ExitCode(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	made := w.count(targets, "settings")
	w.waitInSync(src, targets...)
	w.settle(targets[0])
	r := w.records(first, second)
	gap := w.inTurn(r[0], r[1])
	still := standstills.Between(lastDone(r[0].writes), firstReceived(r[1].writes))
	w.figure("leader stopped with %d of %d copies made: the next write came %.2fs after its last one, at most 2s; the machine stood still for %.1fs of it",
		made, len(targets), gap.Seconds(), still.Seconds())
	if gap > 2*time.Second+still {
		t.Error("that is more than two seconds")
	}
	release := r[0].lease[len(r[0].lease)-1]
	if last := lastDone(r[0].writes); release.Received.Before(last) {
		t.Errorf("the lease was given back %v before the last write was done", last.Sub(release.Received))
	}
	for _, e := range r[0].writes {
		if e.Response.Code >= 300 {
			t.Errorf("a write in flight was cut off or refused: %v", e)
		}
	}
}

// TestC35Paused stops the process of the leader for longer than its lease, in the middle of a fan-out, with all its writes
// in flight. When it goes on, these are answered, and neither its watches nor its lease tell it at once what has happened:
// its own clock has to. It sends no more.
func TestC35Paused(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	targets := w.createMany(300)
	const concurrent, before = 4, 100
	const inFlight = concurrent + slowPlaces
	first, second, between := w.proxiedPair(append(shortLeaseArgs, fmt.Sprint("--concurrent-writes=", concurrent)), shortLeaseArgs)
	halt := between.haltAfter(before, "create")
	src := w.createSource(w.home, "settings")
	between.await("all writers wait", func() bool { return halt.Held() >= concurrent })
	w.pause(first.Process)
	hold := faultproxy.Fault{Kind: faultproxy.Hold}
	between.proxy.Inject(faultproxy.Rule{Verbs: []string{"list", "watch"}, Fault: hold})
	between.proxy.Inject(faultproxy.Rule{Resources: []string{"leases"}, Fault: hold})
	between.proxy.CutWatches()
	halt.Stop()
	w.waitInSync(src, targets...)
	w.resume(first.Process)
	w.exits(first)
	w.settle(targets[0])
	r := w.records(first, second)
	began, late := firstReceived(r[1].writes), 0
	for _, e := range r[0].writes {
		if e.Received.After(began) {
			late++
		}
		if e.Verb != "create" { // which fails if there is any object: each request is conditional
			t.Errorf("a fan-out has %v", e)
		}
	}
	t.Logf("%d late requests", late)
	if late > inFlight {
		t.Errorf("more than can be in flight: %d", inFlight)
	}
	if n := len(r[0].writes) - before - inFlight; n > 0 {
		t.Errorf("%d requests were sent after the pause", n)
	}
}

// TestC35LeaseLost takes the way to its lease from the leader, while its writes get through and there is always something
// to write: it stops because its lease is over, and for no other reason, before the other begins.
func TestC35LeaseLost(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	targets := w.createMany(20)
	first, second, between := w.proxiedPair(shortLeaseArgs, shortLeaseArgs)
	src := w.createSource(w.home, "settings")
	change := func(i int) {
		src = w.edit(w.home, "settings", withData(map[string]string{"key": fmt.Sprint(i)}))
		w.waitInSync(src, targets...)
	}
	between.proxy.Inject(faultproxy.Rule{Resources: []string{"leases"}, Fault: faultproxy.Fault{Kind: faultproxy.Hold}})
	changes := 0
	for ; !strings.Contains(second.Log(), leading); changes++ {
		change(changes)
	}
	for i := range 20 { // for a first that goes on
		change(changes + i)
	}
	w.exits(first)
	w.settle(targets[0])
	r := w.records(first, second)
	gap := w.inTurn(r[0], r[1])
	t.Logf("%d changes until the other led; its first write came %v after the last one of the first", changes, gap)
	if changes < 2 {
		t.Error("the first had nothing to write")
	}
}

// TestC35CutOff cuts the leader off from the API server in the middle of a fan-out: it ends by itself, and the other
// brings the fan-out to its end. The writes in flight arrive when all copies have changed once more, and are refused.
func TestC35CutOff(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const before, inFlight = 60, slowPlaces // a call that is held moves to a slow place
	targets := w.createMany(before + inFlight)
	first, second, between := w.proxiedPair(append(shortLeaseArgs, "--concurrent-writes=4"), shortLeaseArgs)
	src := w.createSource(w.home, "settings")
	w.waitInSync(src, targets...)
	halt := between.haltAfter(before, "update")
	src = w.edit(w.home, "settings", withData(map[string]string{"key": "two"}))
	between.await("all writes that are left are in flight", func() bool { return halt.Held() == inFlight })
	between.proxy.Silence()
	w.exits(first)
	w.waitInSync(src, targets...)
	w.settle(targets[0])
	r := w.records(first, second)
	w.inTurn(r[0], r[1])
	src = w.edit(w.home, "settings", withData(map[string]string{"key": "three"}))
	w.waitInSync(src, targets...)
	copies := w.copies("settings", targets...)

	sent := len(r[0].writes)
	halt.Stop()
	w.waitRequests("what was in flight", sent+inFlight, func(e cluster.Event) bool {
		return e.User.Username == first.user && len(writesTo([]cluster.Event{e}, "settings")) > 0
	})
	between.proxy.Heal() // and what it sent in silence comes as well
	between.await("its connections are closed", func() bool { open, _ := between.proxy.Connections(); return open == 0 })
	w.settle(targets[0])
	w.allUntouched(copies)
	late := w.records(first)[0].writes[sent:]
	if len(late) > inFlight {
		t.Errorf("%d late requests, more than were in flight: %d", len(late), inFlight)
	}
	conflicts := 0
	for _, e := range late {
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

// TestC35LostConnections makes all connections of the leader half-open, as a firewall does that has forgotten them: it
// keeps its lease by a new one.
func TestC35LostConnections(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "a")
	// A hanging request ends after half of the deadline, which leaves time for a new connection.
	args := []string{"--leader-elect-lease-duration=20s", "--leader-elect-renew-deadline=12s"}
	first, second, between := w.proxiedPair(args, args)
	for range 2 {
		between.proxy.LoseConnections()
		mark := w.auditMark() // what was on its way has arrived, or never does
		w.waitRenewal(first, mark)
	}
	if strings.Contains(second.Log(), leading) {
		t.Error("the other has taken over")
	}
}
