package main

import (
	"bytes"
	"regexp"
	"testing"

	"github.com/mirror-controller/mirror-controller/e2e/manual"
)

var durations = regexp.MustCompile(`\b[0-9.]+m?s\b`)

// TestReadmeShowsTheDemo compares what the demo prints, but for times, with the README.
func TestReadmeShowsTheDemo(t *testing.T) {
	var out bytes.Buffer
	if err := run(t.Context(), *binary, *manifests, &out); err != nil {
		t.Fatalf("%v, after\n%s", err, out.String())
	}
	got := durations.ReplaceAllString(out.String(), "TIME")
	if want := durations.ReplaceAllString(manual.Find(t, "README.md", "Starting etcd").Text, "TIME"); got != want {
		t.Errorf("got\n%swant what the README shows\n%s", out.String(), want)
	}
}
