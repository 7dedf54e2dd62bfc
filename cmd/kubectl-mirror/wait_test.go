package main

import (
	"bytes"
	"context"
	"net"
	"strings"
	"sync"
	"testing"
)

// output is what a program has printed so far.
type output struct {
	mu      sync.Mutex
	changed sync.Cond
	text    bytes.Buffer
	ended   bool // the program prints nothing more
}

func newOutput() *output {
	o := &output{}
	o.changed.L = &o.mu
	return o
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	defer o.changed.Broadcast()
	return o.text.Write(p)
}

// end says that the program prints nothing more.
func (o *output) end() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.ended = true
	o.changed.Broadcast()
}

// await returns when the text is there. It fails the test if the program ends before.
func (o *output) await(t *testing.T, text string) {
	t.Helper()
	o.mu.Lock()
	defer o.mu.Unlock()
	for !strings.Contains(o.text.String(), text) {
		if o.ended {
			t.Fatalf("got %q, want %q in it", o.text.String(), text)
		}
		o.changed.Wait()
	}
}

// closing is a listener that ends each TLS handshake by the alert "internal error".
type closing struct {
	net.Listener
	ended *counter
}

func (c closing) Accept() (net.Conn, error) {
	conn, err := c.Listener.Accept()
	if err == nil {
		_, _ = conn.Read(make([]byte, 1<<10)) // else the client gets a reset, and tries again for ten seconds
		_, _ = conn.Write([]byte{21, 3, 1, 0, 2, 2, 80})
		_ = conn.Close()
		c.ended.add()
	}
	return conn, err
}

// waitFault is what goes wrong for a command that waits.
type waitFault struct {
	title   string
	begin   func(*testing.T, *api)
	line    string // that the command prints
	atStart bool   // the command goes on, too, if the fault is there when it begins
	later   bool   // when the command begins it is no fault, but a permission that the user lacks
}

// TestC88WaitGoesOn has one fault after another while the command waits, and again when it begins: what a balancer
// answers, refusals for a moment, and an API server that starts again. Each is printed once, however often it comes,
// and the answer is that of the end.
func TestC88WaitGoesOn(t *testing.T) {
	html := func(code int) func(*testing.T, *api) {
		return func(_ *testing.T, a *api) { a.with(func() { a.fault = code }) }
	}
	// The last report is there: to go by it would be wrong.
	refuse := func(resource string) func(*testing.T, *api) {
		return func(_ *testing.T, a *api) {
			a.with(func() {
				a.refused = []string{resource}
				a.objects = append(a.objects, events("platform", "settings", "Mirrored version=7 synced=1")...)
			})
		}
	}
	const unseen = "Cannot see whether a controller runs: "
	var group sync.WaitGroup
	for _, tc := range []waitFault{
		{"502", html(502), "502 Bad Gateway", true, false},
		{"503", html(503), "503 Service Unavailable", true, false},
		{"504", html(504), "504 Gateway Timeout", true, false},
		{"401", html(401), "the server has asked for the client to provide credentials", false, false},
		{"403", refuse("events"), "events is forbidden: ", false, false},
		{"403 of Deployments", refuse("deployments"), "deployments is forbidden: ", false, true},
		{"403 of the Lease", refuse("leases"), unseen + "leases is forbidden: ", false, true},
		{"403 of reviews", refuse("selfsubjectreviews"), unseen + "selfsubjectreviews is forbidden: ", false, true},
		{"404", html(404), "the server could not find the requested resource", false, false},
		{"cut", html(cut), "EOF", true, false},
		{"cut in HTTP/2", func(t *testing.T, a *api) {
			a.with(func() { a.fault = cut })
			a.http2 = true
			a.restart(t, func(l net.Listener) net.Listener { return l })
		}, "INTERNAL_ERROR", true, false},
		{"handshake", func(t *testing.T, a *api) {
			a.restart(t, func(l net.Listener) net.Listener { return closing{l, &a.faults} })
		}, "tls: internal error", true, false},
		{"refused", func(_ *testing.T, a *api) {
			a.Close()
			a.faults.n = 3 // nobody sees them
		}, "connection refused", true, false},
	} {
		for _, atStart := range []bool{false, true} {
			name := tc.title
			if atStart && tc.later {
				continue
			}
			if atStart {
				name += " at the start"
			}
			group.Go(func() {
				t.Run(name, func(t *testing.T) { waitWithFault(t, tc, atStart) })
			})
		}
	}
	group.Wait()
}

// waitWithFault has a fault come, and end, while a command waits.
func waitWithFault(t *testing.T, fault waitFault, atStart bool) {
	a := newAPI(t, append(installation(0), settingsSource()...)...)
	stdout, stderr := newOutput(), newOutput()
	ended := make(chan exitCode, 1)
	start := func() {
		go func() {
			ended <- a.start(t.Context(), "wait platform/settings --timeout=1h", stdout, stderr)
			stderr.end()
		}()
	}
	if atStart {
		fault.begin(t, a)
		start()
	} else {
		start()
		stderr.await(t, "platform/settings: NotKnown\n")
		fault.begin(t, a)
	}
	stderr.await(t, fault.line)
	want, answer := exitUnknown, ""
	if !atStart || fault.atStart {
		want, answer = exitYes, "platform/settings: InSync, 1 synced\n"
		a.faults.await(3)
		a.with(func() {
			a.fault = 0
			a.refused = nil
			a.objects = append(a.objects, events("platform", "settings", "Mirrored version=7 synced=1")...)
		})
		a.restart(t, func(l net.Listener) net.Listener { return l })
	}
	if code := <-ended; code != want || !strings.HasPrefix(stdout.text.String(), answer) {
		t.Errorf("got %v and %q, want %v and %q", code, stdout.text.String(), want, answer)
	}
	if n := strings.Count(stderr.text.String(), fault.line); n != 1 {
		t.Errorf("got %d lines with %q, want 1: %q", n, fault.line, stderr.text.String())
	}
}

// TestWaitForDeletedSource: the source is deleted while the command waits, before any report. That ends the command.
func TestWaitForDeletedSource(t *testing.T) {
	a := newAPI(t, append(installation(0), settingsSource()...)...)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	a.with(func() {
		a.onList = func() {
			switch a.listed {
			case 2:
				a.objects = installation(0)
			case 4:
				cancel()
			}
		}
	})
	var stdout, stderr bytes.Buffer
	code := a.start(ctx, "wait platform/settings", &stdout, &stderr)
	const want = "\nno source platform/settings: There is no ConfigMap platform/settings.\n"
	if code != exitNo || !strings.HasSuffix(stderr.String(), want) {
		t.Errorf("got %v, %q and %q, want 1 and %q", code, stdout.String(), stderr.String(), want)
	}
}
