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
	all := &report{Sources: []*listed{}}
	var out golden
	for _, source := range s.Snapshot(t).Sources(types.NamespacedName{}) {
		one := &report{InSync: true, one: true}
		one.add(source, nil)
		switch source.Key().String() {
		case "platform/mixed":
			source.Warning = &snapshot.Warning{Reason: "WriteFailed", Last: time.Date(3000, 1, 1, 0, 0, 0, 0, time.UTC),
				Note: "Out of sync in namespace team-g: the API server rejects\nthe write."}
			out.print(t, "one", one, outputFormats...)
		case "platform/synced":
			out.print(t, "in sync", one, "table")
			one.all = true
			out.print(t, "in sync, all", one, "table")
		}
		source.Targets = nil
		all.Sources = append(all.Sources, &listed{Source: source})
	}
	out.print(t, "all", all, outputFormats...)
	for i, of := range []string{"mirror-a/mirror-controller", "mirror-b/mirror-controller"} {
		all.Sources[i] = &listed{of, all.Sources[0].Source}
	}
	all.Sources = all.Sources[:2]
	out.print(t, "of two controllers", all, "table")
	out.print(t, "none", &report{InSync: true, Sources: []*listed{}}, "table", "json")
	out.compare(t, "status")
}
