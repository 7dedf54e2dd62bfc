package node

import (
	"errors"
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/mirror-controller/mirror-controller/e2e/cluster"
)

// TestServerAway kills the API server, and lets it hang, each time until the leader has given up its term. Nothing is lost.
func TestServerAway(t *testing.T) {
	w := newWorld(t)
	w.installTwo()
	w.expectMirrors("before")
	leader := w.process(w.leader())
	w.signalServer(syscall.SIGKILL)
	w.waitEnded(leader)
	if err := w.node.Run(cluster.APIServer); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(w.node.WaitServer(w.ctx), w.observe()); err != nil {
		t.Fatal(err)
	}
	back := time.Now()
	w.expectMirrors("killed")
	w.figure("API server back, to mirrored", time.Since(back), 30*time.Second) // client-go's longest pause

	leader = w.process(w.leader())
	w.signalServer(syscall.SIGSTOP)
	w.waitEnded(leader)
	w.signalServer(syscall.SIGCONT)
	back = time.Now()
	if err := w.observe(); err != nil {
		t.Fatal(err)
	}
	w.expectMirrors("hung")
	w.figure("API server hung, to mirrored", time.Since(back), 20*time.Second)
	w.expectTerms()
}

// waitEnded waits until a process of the node has ended.
func (w *world) waitEnded(pid int) {
	w.Helper()
	w.until("the end of the leader", func() error {
		if err := syscall.Kill(pid, 0); err == nil {
			return fmt.Errorf("process %d runs", pid)
		}
		return nil
	})
}

func (w *world) signalServer(sig syscall.Signal) {
	w.Helper()
	pids := w.node.Processes(cluster.APIServer, "")
	if len(pids) != 1 {
		w.Fatalf("API servers: %v", pids)
	}
	if err := cluster.Kill(pids[0], sig); err != nil {
		w.Fatal(err)
	}
}

// expectMirrors publishes something and waits until it is everywhere.
func (w *world) expectMirrors(value string) {
	w.Helper()
	data := map[string]string{"key": value}
	w.source("settings", data)
	w.waitInSync("settings", data, targets()...)
}

// TestPowerCut kills the whole node amid 2,000 writes and starts it again: all is in sync.
func TestPowerCut(t *testing.T) {
	w := newWorld(t)
	w.install()
	data := map[string]string{"key": "one"}
	for i := range 20 {
		w.source(fmt.Sprintf("settings-%d", i), data)
	}
	w.node.PowerOff()
	if n := w.copies(20); n == 2000 {
		t.Log("all copies were there before the node went")
	}
	began := time.Now()
	if err := errors.Join(w.node.PowerOn(w.ctx), w.observe()); err != nil {
		t.Fatal(err)
	}
	for i := range 20 {
		w.waitInSync(fmt.Sprintf("settings-%d", i), data, targets()...)
	}
	w.figure("node started again, to all in sync", time.Since(began), 60*time.Second)
	w.waitRolledOut()
}
