package main

import (
	"testing"

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
		one := &report{list: list{[]*snapshot.Source{source}}}
		formats := outputFormats[:1]
		switch source.Key().String() {
		case "platform/mixed":
			source.Warning = "WriteFailed: Out of sync in namespace team-g: the API server rejects\nthe write."
			formats = outputFormats
		case "platform/synced":
			one.all = true
		}
		out.print(t, source.Name, one, formats...)
	}
	out.print(t, "all", &list{sources}, "table")
	out.print(t, "none", &list{}, "table")
	out.compare(t, "status")
}
