package main

import (
	"bytes"
	"regexp"
	"strings"
	"testing"

	"github.com/mirror-controller/mirror-controller/e2e/manual"
)

var durations = regexp.MustCompile(`\b[0-9.]+m?s\b`)

// TestReadmeShowsTheDemo compares the steps that the demo prints, but for times, with the README.
func TestReadmeShowsTheDemo(t *testing.T) {
	var out bytes.Buffer
	if err := run(t.Context(), *binary, *manifests, &out); err != nil {
		t.Fatalf("%v, after\n%s", err, out.String())
	}
	_, steps, _ := strings.Cut(out.String(), ".\n\n1. ")
	steps, _, _ = strings.Cut("1. "+steps, "\nThe controller was asked")
	got := durations.ReplaceAllString(steps, "TIME")
	if want := durations.ReplaceAllString(manual.Find(t, "README.md", "1. A tenant").Text, "TIME"); got != want {
		t.Errorf("got\n%swant what the README shows\n%s", out.String(), want)
	}
}
