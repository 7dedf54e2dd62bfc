package main

import (
	"strings"
	"testing"
)

// TestWhatIsLeftOutIsThere: what gets no delays is in the folder mirror. A function that is not in its file is an error,
// and so is a lock that waits in real time.
func TestWhatIsLeftOutIsThere(t *testing.T) {
	const left = "package mirror\nfunc registerGauges() {}\n"
	if err := instrument("../../..", t.TempDir()); err != nil {
		t.Error(err)
	}
	for src, want := range map[string]string{
		"package mirror\n":                           "metrics.go has no function registerGauges",
		left + "type locks struct{ sync.RWMutex }\n": "metrics.go uses sync.RWMutex",
	} {
		if _, err := withDelays("metrics.go", []byte(src)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %s", src, err, want)
		}
	}
	if err := instrument(t.TempDir(), t.TempDir()); err == nil {
		t.Error("got no error for a folder without what is left out")
	}
}
