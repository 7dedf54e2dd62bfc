package node

import (
	"errors"
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/mirror-controller/mirror-controller/e2e/cluster"
)

// TestServerAway kills the API server for 25 seconds, and lets it hang for 20: longer than a term. Nothing is lost.
func TestServerAway(t *testing.T) {
	w := newWorld(t)
	w.installTwo()
	w.expectMirrors("before")
	w.signalServer(syscall.SIGKILL)
	time.Sleep(25 * time.Second) // for so long it is away
	if err := w.node.Run(cluster.APIServer); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(w.node.WaitServer(w.ctx), w.observe()); err != nil {
		t.Fatal(err)
	}
	back := time.Now()
	w.expectMirrors("killed")
	w.figure("API server back after 25 s, to mirrored", time.Since(back), 30*time.Second) // client-go's longest pause

	w.signalServer(syscall.SIGSTOP)
	time.Sleep(20 * time.Second) // for so long it hangs
	w.signalServer(syscall.SIGCONT)
	back = time.Now()
	if err := w.observe(); err != nil {
		t.Fatal(err)
	}
	w.expectMirrors("hung")
	w.figure("API server hung for 20 s, to mirrored", time.Since(back), 20*time.Second)
	w.expectTerms()
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
