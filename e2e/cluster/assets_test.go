package cluster

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestAssets has folders with and without what is needed.
func TestAssets(t *testing.T) {
	for want, programs := range map[string]map[string]string{ // scripts
		"it has no etcd":                              nil,
		"it has no kube-apiserver that runs":          {Etcd: "exit"},
		"has the version v1.34.9, and 1.35 is needed": {Etcd: "exit", APIServer: "echo Kubernetes v1.34.9"},
		"v1.36.0": {Etcd: "exit", APIServer: "echo Kubernetes v1.36.0"},
	} {
		folder := t.TempDir()
		for program, script := range programs {
			if err := os.WriteFile(filepath.Join(folder, program), []byte("#!/bin/sh\n"+script+"\n"), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		got, err := assets(t.Context(), folder)
		if err != nil {
			got = err.Error()
		}
		if !strings.HasSuffix(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
