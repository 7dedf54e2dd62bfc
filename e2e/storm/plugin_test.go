package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// wrongPlugin shows that a plug-in is found out that says there is nothing to do, and nothing there.
func (s *storm) wrongPlugin(t *testing.T, change step) {
	s.plugin = filepath.Join(t.TempDir(), "kubectl-mirror")
	if err := os.WriteFile(s.plugin, []byte("#!/bin/sh\necho {}\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	resume := newStep("resume", "*").with(profileArg, "0").with(limitArg, "100")
	_, err := s.weatherAll(t.Context(), []round{calm([]step{newStep("halt", "*"), change, resume})})
	for _, want := range []string{`kubectl mirror plan says "", and the controllers did ["update"]`, "kubectl mirror status says map[]"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want that %s", err, want)
		}
	}
}

// TestFulfils shows which writes are those of an operation.
func TestFulfils(t *testing.T) {
	for _, tc := range []struct {
		writes    []string
		operation string
		held      bool
		want      bool
	}{
		{nil, "", false, true},
		{[]string{"update"}, "", false, false},
		{nil, "create", false, false},
		{[]string{"create"}, "create", false, true},
		{[]string{"update", "update"}, "update", false, false},
		{[]string{"delete", "create"}, "recreate", false, true},
		{[]string{"delete"}, "recreate", true, true},
		{[]string{"delete"}, "recreate", false, false},
	} {
		if got := fulfils(tc.writes, tc.operation, tc.held); got != tc.want {
			t.Errorf("%v for %q, held %v: got %v, want %v", tc.writes, tc.operation, tc.held, got, tc.want)
		}
	}
}
