package mirror

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/mirror-controller/mirror-controller/mirror/plan"
	"github.com/mirror-controller/mirror-controller/mirror/plan/plantest"
)

// TestAdmissionAndImmutableCopies: a webhook alters a copy that is created, in
// what only another deletion and creation could change. What was created stays,
// as where admission alters a copy that can be updated. Fault F3.
func TestAdmissionAndImmutableCopies(t *testing.T) {
	skipKnownFault(t)
	for name, tc := range map[string]struct {
		source *corev1.ConfigMap
		alter  plantest.Option
	}{
		"makes it immutable":         {source(), plantest.Immutable},
		"adds a key to an immutable": {source(plantest.Immutable), plantest.Data("more", "x")},
	} {
		t.Run(name, inScene(teams(2, "team-"), func(t *testing.T, s scene) {
			s.alter(tc.alter)
			s.write(tc.source)
			time.Sleep(time.Minute)
			s.wantCopy("team-000", "value")
			uid := s.copyUIDs()["team-000"]
			deletions := s.CountAll("team-000", "delete")
			time.Sleep(time.Hour)
			if n := s.CountAll("team-000", "delete") - deletions; n > 0 {
				t.Errorf("got %d deletions in an hour of what was created, want none", n)
			}
			if got := s.copyUIDs()["team-000"]; got != uid {
				t.Errorf("got the object %q, want what was created, %q", got, uid)
			}
			s.wantNote(plan.ReasonWriteFailed, "admission")
			s.wantMetric(1, "mirror_copies", "rejected")
		}))
	}
}
