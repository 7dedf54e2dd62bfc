package main

import (
	"strings"
	"syscall"
	"testing"
	"time"
)

// expectFailure fails the test unless the process ends with exit code 1 and this reason.
func (p *process) expectFailure(reason string) {
	p.t.Helper()
	if line := p.awaitLine("Failed"); !strings.Contains(line, reason) {
		p.t.Errorf("it says %s, want %s", line, reason)
	}
	if status := p.end(); !status.Exited() || status.ExitStatus() != exitFailed {
		p.t.Errorf("ended with status %#x, want exit code 1", status)
	}
}

// TestOnceWithoutServer ends at the timeout: there is nothing that it knows.
func TestOnceWithoutServer(t *testing.T) {
	for _, dry := range []string{"--dry-run=false", "--dry-run=true"} {
		start(t, "http://127.0.0.1:1", "--once", "--once-timeout=1s", dry).expectFailure("--once-timeout=1s exceeded: nothing was compared")
	}
}

// TestOnceAskedToStop exits with 1: a pipeline that waits for it must not go on.
func TestOnceAskedToStop(t *testing.T) {
	server := newAPIServer(t)
	p := start(t, server.URL, "--once")
	<-server.writes
	p.signal(syscall.SIGTERM)
	p.awaitLine("Stopping")
	time.AfterFunc(100*time.Millisecond, server.answer)
	p.expectFailure("stopped before the end: not ")
}
