package main

import (
	"strings"
	"testing"
)

// TestWhatIsLeftOutIsThere: what gets no delays is in the folder mirror, and a function that is not in its file is an
// error.
func TestWhatIsLeftOutIsThere(t *testing.T) {
	if err := instrument("../../..", t.TempDir()); err != nil {
		t.Error(err)
	}
	_, err := withDelays("metrics.go", []byte("package mirror\n"))
	if err == nil || !strings.Contains(err.Error(), "metrics.go has no function registerGauges") {
		t.Errorf("got %v for a file without the function that is left out", err)
	}
	if err := instrument(t.TempDir(), t.TempDir()); err == nil {
		t.Error("got no error for a folder without what is left out")
	}
}
