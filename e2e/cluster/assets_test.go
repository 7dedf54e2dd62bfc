package cluster

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestAssets has folders with and without what is needed.
func TestAssets(t *testing.T) {
	for name, tc := range map[string]struct {
		programs map[string]string // scripts
		want     string
		ok       bool
	}{
		"nothing":   {nil, "it has no etcd", false},
		"no server": {map[string]string{Etcd: "exit"}, "it has no kube-apiserver that runs", false},
		"too old":   {map[string]string{Etcd: "exit", APIServer: "echo Kubernetes v1.34.9"}, "has the version v1.34.9, and 1.35 is needed", false},
		"new":       {map[string]string{Etcd: "exit", APIServer: "echo Kubernetes v1.36.0"}, "Taking etcd and kube-apiserver v1.36.0 from ", true},
	} {
		t.Run(name, func(t *testing.T) {
			folder := t.TempDir()
			for program, script := range tc.programs {
				if err := os.WriteFile(filepath.Join(folder, program), []byte("#!/bin/sh\n"+script+"\n"), 0o755); err != nil {
					t.Fatal(err)
				}
			}
			var said strings.Builder
			bin, ok := assets(t.Context(), folder, &said)
			if ok != tc.ok || ok && bin != folder || !strings.Contains(said.String(), tc.want) || strings.Count(said.String(), "\n") != 1 {
				t.Errorf("got %q, %v and %q, want %v and %q", bin, ok, said.String(), tc.ok, tc.want)
			}
		})
	}
	if _, ok := assets(t.Context(), "", os.Stderr); ok {
		t.Error("no folder was taken for one")
	}
}
