package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

// TestDelayPointsStay: there are no fewer delay points than before. Code that leaves the instrumented files takes its
// points along, and the histories still pass: they only find less.
func TestDelayPointsStay(t *testing.T) {
	const fewest = 1530 // a little less than there are
	out, points := t.TempDir(), 0
	if err := instrument("../../..", out); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(out, "*.delayed"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		delayed, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		points += bytes.Count(delayed, []byte("delay.At("))
	}
	if points < fewest {
		t.Errorf("got %d delay points, want %d or more", points, fewest)
	}
}
