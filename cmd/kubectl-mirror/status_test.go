package main

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/mirror-controller/mirror-controller/cmd/kubectl-mirror/snapshot"
	"github.com/mirror-controller/mirror-controller/cmd/kubectl-mirror/snapshot/snapshottest"
)

func TestStatus(t *testing.T) {
	s := snapshottest.EveryState()
	r := &report{Settings: "flags", Sources: s.Snapshot(t).Sources(&s.Options, types.NamespacedName{})}
	for _, source := range r.Sources {
		if source.Name == "mixed" && source.Namespace == "platform" {
			source.Warning = &snapshot.Warning{Reason: "WriteFailed", Last: time.Date(3000, 1, 1, 0, 0, 0, 0, time.UTC),
				Note: "Out of sync in namespace team-g: the API server rejects\nthe write."}
			expectPrinted(t, "status-one", &oneReport{Settings: "flags", Source: source})
		}
		if source.Name == "synced" {
			expectPrinted(t, "status-synced", &oneReport{Settings: "flags", InSync: true, Source: source})
			expectPrinted(t, "status-synced-all", &oneReport{Settings: "flags", InSync: true, Source: source, all: true})
		}
	}
	for _, source := range r.Sources {
		source.Targets = nil
	}
	expectPrinted(t, "status", r)
	expectPrinted(t, "status-none", &report{Settings: "flags", InSync: true, Sources: []*snapshot.Source{}, namespace: "team-a"})
}
