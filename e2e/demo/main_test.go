package main

import (
	"bytes"
	"context"
	"io"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/mirror-controller/mirror-controller/e2e/manual"
)

var durations = regexp.MustCompile(`\b[0-9.]+m?s\b`)

// TestReadmeShowsTheDemo compares the steps that the demo prints, but for times, with the README.
func TestReadmeShowsTheDemo(t *testing.T) {
	var out bytes.Buffer
	if err := run(t.Context(), nil, &out); err != nil {
		t.Fatalf("%v, after\n%s", err, out.String())
	}
	_, steps, _ := strings.Cut(out.String(), ".\n\n1. ")
	steps, _, _ = strings.Cut("1. "+steps, "\nThe controller was asked")
	got := durations.ReplaceAllString(steps, "TIME")
	if want := durations.ReplaceAllString(manual.Find(t, "README.md", "1. A tenant").Text, "TIME"); got != want {
		t.Errorf("got\n%swant what the README shows\n%s", out.String(), want)
	}
}

// TestPlaygroundInvites runs what `make run` prints. One command is refused, and no other is.
func TestPlaygroundInvites(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	read, write := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		err := playground(ctx, []string{"--deletion-grace=1h"}, write)
		_ = write.CloseWithError(io.EOF) // never fails
		ended <- err
	}()
	var script, printed strings.Builder
	buffer := make([]byte, 1<<16)
	for !strings.Contains(printed.String(), "The log of the controller follows") {
		n, err := read.Read(buffer)
		if err != nil {
			t.Fatalf("%v: %v, after %s", err, <-ended, printed.String())
		}
		printed.Write(buffer[:n])
	}
	go func() { _, _ = io.Copy(io.Discard, read) }() // it ends with the playground
	for line := range strings.Lines(printed.String()) {
		if strings.HasPrefix(line, "  ") {
			script.WriteString(line)
		}
	}
	out, err := exec.CommandContext(ctx, "sh", "-xc", script.String()).CombinedOutput()
	if err != nil {
		t.Errorf("%v:\n%s", err, out)
	}
	for _, want := range []string{"refused", "--deletion-grace=1h", "2 held", "Warning Expiring: 3 copies"} {
		if !strings.Contains(printed.String()+string(out), want) {
			t.Errorf("there is no %q in\n%s", want, out)
		}
	}
	if strings.Contains(string(out), "No controller runs") {
		t.Errorf("the plug-in sees no controller:\n%s", out)
	}
	if refused := strings.Count(strings.ToLower(string(out)), "\nerror"); refused != 1 {
		t.Errorf("%d commands have an error, want 1:\n%s", refused, out)
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
