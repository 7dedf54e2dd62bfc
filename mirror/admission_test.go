package mirror

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/mirror-controller/mirror-controller/mirror/plan"
	"github.com/mirror-controller/mirror-controller/mirror/plan/plantest"
)

// TestC68AdmissionAndImmutableCopies: a webhook alters a copy that is created, in
// what only another deletion and creation could change. What was created stays,
// also when somebody edits it, and over resyncs. Other content of the source has
// it deleted and created again, once.
func TestC68AdmissionAndImmutableCopies(t *testing.T) {
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
			stays := func(deletions int) {
				t.Helper()
				time.Sleep(time.Minute)
				s.edit("team-000", plantest.Annotation("theirs", s.version()))
				time.Sleep(time.Hour)
				if n := s.CountAll("team-000", "delete"); n != deletions {
					t.Errorf("got %d deletions of what was created, want %d", n, deletions)
				}
				s.wantNote(plan.ReasonWriteFailed, "admission")
				s.wantMetric(1, "mirror_copies", "rejected")
			}
			stays(0)
			if got := s.copyUIDs()["team-000"]; got != uid {
				t.Errorf("got the object %q, want what was created, %q", got, uid)
			}
			for i, content := range []string{"new", "value"} {
				s.remove("platform") // an immutable source cannot be edited
				changed := tc.source.DeepCopy()
				data(content)(changed)
				s.write(changed)
				stays(i + 1)
			}
		}))
	}
}

// TestC68AlteredOverAnOptOut: admission strips a mark of the copies. The namespace
// opts out and in again, or the source holds the target for a time. The reason
// stays admission, and nobody is advised to hand the object over.
func TestC68AlteredOverAnOptOut(t *testing.T) {
	for name, tc := range map[string]struct{ begin, end func(scene) }{
		"opt-out": {func(s scene) { s.optOut("team-000") }, func(s scene) { s.setNamespace("team-000") }},
		"hold": {func(s scene) { s.edit("platform", plantest.Annotation(plan.PausedAnnotation, "true")) },
			func(s scene) { s.edit("platform", plantest.Without(plan.PausedAnnotation)) }},
	} {
		t.Run(name, inScene(teams(2, "team-"), func(t *testing.T, s scene) {
			s.alter(plantest.Without(plan.CopyAnnotation))
			s.write(source())
			time.Sleep(time.Minute)
			s.wantNote(plan.ReasonWriteFailed, "admission")
			tc.begin(s)
			time.Sleep(time.Minute)
			tc.end(s)
			time.Sleep(5 * time.Minute)
			s.wantEventCount(0, plan.ReasonForeign)
			s.wantMetric(1, "mirror_copies", "rejected")
		}))
	}
}
