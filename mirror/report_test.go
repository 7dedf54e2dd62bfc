package mirror

import (
	"strings"
	"testing"
	"time"

	"github.com/mirror-controller/mirror-controller/mirror/internal/report"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
	"github.com/mirror-controller/mirror-controller/mirror/plan/plantest"
)

// TestNewestStateIsReported in the end, although nothing else happens.
func TestNewestStateIsReported(t *testing.T) {
	cluster(t, append(teams(1, "team-"), source()), func(t *testing.T, s scene) {
		time.Sleep(time.Minute)
		for _, prefix := range []string{"A", "B", "C"} {
			s.edit("platform", plantest.Annotation(plan.PrefixAnnotation, prefix))
			time.Sleep(time.Second)
		}
		time.Sleep(report.Spacing)
		if got := s.notesOf(plan.ReasonInvalidAnnotation); len(got) != 2 || !strings.Contains(got[1], `="C"`) {
			t.Errorf("got events %q, want one about A and one about C", got)
		}
	})
}
