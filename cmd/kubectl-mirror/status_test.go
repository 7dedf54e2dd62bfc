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
	r := &report{Sources: []*listed{}}
	var out golden
	for _, source := range s.Snapshot(t).Sources(types.NamespacedName{}) {
		switch source.Key().String() {
		case "platform/mixed":
			source.Warning = &snapshot.Warning{Reason: "WriteFailed", Last: time.Date(3000, 1, 1, 0, 0, 0, 0, time.UTC),
				Note: "Out of sync in namespace team-g: the API server rejects\nthe write."}
			out.print(t, "one", &oneReport{Source: source}, outputFormats...)
		case "platform/synced":
			out.print(t, "in sync", &oneReport{InSync: true, Source: source}, "table")
			out.print(t, "in sync, all", &oneReport{InSync: true, Source: source, all: true}, "table")
		}
		source.Targets = nil
		r.Sources = append(r.Sources, &listed{Source: source})
	}
	out.print(t, "all", r, outputFormats...)
	for i, of := range []string{"mirror-a/mirror-controller", "mirror-b/mirror-controller"} {
		r.Sources[i] = &listed{of, r.Sources[0].Source}
	}
	r.Sources = r.Sources[:2]
	out.print(t, "of two controllers", r, "table")
	out.print(t, "none", &report{InSync: true, Sources: []*listed{}, namespace: "team-a"}, "table", "json")
	out.compare(t, "status")
}
