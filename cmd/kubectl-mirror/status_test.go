package main

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/mirror-controller/mirror-controller/cmd/kubectl-mirror/snapshot"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
	"github.com/mirror-controller/mirror-controller/mirror/plan/plantest"
)

func TestStatus(t *testing.T) {
	s := everyState()
	s.Copy(s.Add(plantest.Source("platform", "narrowed", plantest.Annotation(plan.PrefixAnnotation, "prod-"))), "team-a")
	sources := s.Snapshot(t).Sources(types.NamespacedName{})
	var out golden
	for _, source := range sources {
		one := newReport([]*snapshot.Source{source})
		one.details = true
		switch source.Key().String() {
		case "platform/mixed":
			source.Warning = &snapshot.Warning{Reason: "WriteFailed", Last: time.Date(3000, 1, 1, 0, 0, 0, 0, time.UTC),
				Note: "Out of sync in namespace team-g: the API server rejects\nthe write."}
			out.print(t, "mixed", one, outputFormats...)
		case "platform/synced":
			one.all = true
			fallthrough
		default:
			out.print(t, source.Name, one, "table")
		}
	}
	out.print(t, "all", newReport(sources), outputFormats...)
	one, two := *sources[0], *sources[0]
	one.Controller, two.Controller = "mirror-a/mirror-controller", "mirror-b/mirror-controller"
	out.print(t, "of two controllers", newReport([]*snapshot.Source{&one, &two}), "table")
	out.print(t, "none", newReport(nil), "table", "json")
	out.compare(t, "status")
}
