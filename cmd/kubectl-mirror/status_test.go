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
		one := &report{Sources: []*snapshot.Source{source}, details: true}
		formats := outputFormats[:1]
		if source.Key().String() == "platform/mixed" {
			source.Warning = "WriteFailed: Out of sync in namespace team-g: the API server rejects\nthe write."
			formats = outputFormats
		}
		out.print(t, source.Name, one, formats...)
	}
	out.print(t, "all", &report{Sources: sources, answer: exitOf(sources, (*snapshot.Source).IsInSync)}, "table")
	out.print(t, "none", &report{}, "table")
	out.compare(t, "status")
}
