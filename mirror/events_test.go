package mirror

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mirror-controller/mirror-controller/mirror/apitest"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
	"github.com/mirror-controller/mirror-controller/mirror/plan/plantest"
)

// wantEvents fails the test unless these events were recorded since the last call, by their reasons.
func (s scene) wantEvents(what string, want ...string) {
	s.t.Helper()
	synctest.Wait()
	s.diary.mu.Lock()
	defer s.diary.mu.Unlock()
	if !slices.Equal(s.reasons, want) {
		s.t.Errorf("%s: got events %q with %q, want %q", what, s.reasons, s.notes, want)
	}
	s.reasons, s.notes, s.about = nil, nil, nil
}

// TestEventsOfASource: it is said to be mirrored when a change of it has reached all targets, and not for each target
// or namespace, nor where nothing was written.
func TestEventsOfASource(t *testing.T) {
	cluster(t, teams(3, "team-"), func(t *testing.T, s scene) {
		s.write(source())
		time.Sleep(time.Second)
		if got := s.notesOf(plan.ReasonMirrored); !slices.Equal(got, []string{"Synced d0f95a5a763e to 3 namespaces"}) {
			t.Errorf("got %q, want one event that counts the namespaces", got)
		}
		s.wantEvents("created", plan.ReasonMirrored)
		time.Sleep(time.Minute)
		s.edit("platform", plantest.Data("key", "other"))
		time.Sleep(time.Second)
		s.wantEvents("changed", plan.ReasonMirrored)
		s.edit("platform", plantest.Label("theirs", "x"))
		time.Sleep(time.Second)
		s.wantEvents("changed in nothing that is copied")
		s.addNamespace("team-new")
		time.Sleep(time.Second)
		s.wantEvents("a new namespace")
		s.remove("team-000")
		time.Sleep(time.Second)
		s.wantEvents("a repair", plan.ReasonRestored)
		s.Relist()
		time.Sleep(time.Hour)
		s.wantEvents("a relist")
	})
}

// TestMirroredSpeaksOfItsContent: while one target is not in sync with it there is no event, and its copy is pending. A
// change during a fan-out begins anew.
func TestMirroredSpeaksOfItsContent(t *testing.T) {
	cluster(t, teams(50, "team-"), func(t *testing.T, s scene) {
		s.slowly(5 * time.Millisecond)
		s.write(source(plantest.Data("key", "old")))
		time.Sleep(time.Minute)
		s.wantEvents("at first", plan.ReasonMirrored)
		s.delay(func(c apitest.Call) time.Duration {
			if c.Namespace == "team-007" {
				return 20 * time.Second
			}
			return 5 * time.Millisecond
		})
		wantPending := func(n float64) {
			t.Helper()
			if pending, synced := s.value("mirror_copies", "pending"), s.value("mirror_copies", "synced"); pending != n ||
				synced != 50-n {
				t.Errorf("got %v copies pending and %v in sync, want %v and %v", pending, synced, n, 50-n)
			}
		}
		s.edit("platform", plantest.Data("key", "new"))
		synctest.Wait()
		wantPending(50)
		time.Sleep(10 * time.Second)
		wantPending(1)
		s.edit("platform", plantest.Data("key", "newer"))
		time.Sleep(11 * time.Second) // the first write has ended
		s.wantEvents("while one target is not in sync")

		if n := s.value("mirror_propagation_seconds"); n != 1 {
			t.Errorf("got %v changes that reached all targets, want that of the start", n)
		}
		time.Sleep(time.Minute)
		s.wantEvents("at the end", plan.ReasonMirrored)
		wantPending(0)
		if n := s.value("mirror_propagation_seconds"); n != 2 {
			t.Errorf("got %v changes that reached all targets, want one more", n)
		}
	})
}

// TestC11EventsOfAProblem: it is reported when it begins or changes, and not again when the API server was away.
// Mirrored tells that it is over.
func TestC11EventsOfAProblem(t *testing.T) {
	objects := append(teams(3, "team-"), source(), theirs(), plantest.ConfigMap("team-001", "settings"))
	cluster(t, objects, func(t *testing.T, s scene) {
		time.Sleep(time.Minute)
		s.wantEvents("two foreign objects", plan.ReasonForeign, plan.ReasonMirrored)
		for range 3 {
			s.refuse(on(errAway, anyCall))
			time.Sleep(5 * time.Minute)
			s.refuse(on[error](nil))
			time.Sleep(5 * time.Minute)
		}
		s.wantEvents("the API server was away three times")
		s.remove("team-000")
		time.Sleep(time.Minute)
		if got := s.notesOf(plan.ReasonForeign); len(got) != 1 || !strings.Contains(got[0], "namespace team-001:") {
			t.Errorf("got %q, want one about the other namespace", got)
		}
		s.wantEvents("one is over", plan.ReasonForeign, plan.ReasonMirrored)
		s.remove("team-001")
		time.Sleep(time.Minute)
		s.wantEvents("all is over", plan.ReasonMirrored)
	})
}

// TestC03SupersededEvent: the event on the losing source names the winner, and another one says that it takes over.
func TestC03SupersededEvent(t *testing.T) {
	cluster(t, append(teams(2, "team-"), plantest.Namespace("shared"), source()), func(t *testing.T, s scene) {
		time.Sleep(time.Minute)
		s.wantEvents("alone", plan.ReasonMirrored)
		s.write(plantest.Source("shared", "settings", plantest.Data("key", "shared")))
		time.Sleep(time.Hour)
		if got := s.notesOf(plan.ReasonSuperseded); len(got) != 1 || !strings.Contains(got[0], "platform/settings") {
			t.Errorf("got %q, want one that names the winner", got)
		}
		s.wantEvents("beside another", plan.ReasonSuperseded, plan.ReasonMirrored)
		s.remove("platform")
		time.Sleep(5 * time.Second)
		if got := s.notesOf(plan.ReasonMirrored); len(got) != 1 || !strings.HasSuffix(got[0],
			" to 2 namespaces; took over 2 copies of platform/settings") {
			t.Errorf("got %q, want one that names the source whose copies it took over", got)
		}
		s.wantEvents("it takes over", plan.ReasonMirrored)
		if n := s.value("mirror_copies", "superseded"); n != 0 {
			t.Errorf("got %v superseded, want none", n)
		}
	})
}

// TestMirroredTellsWhichContentHasArrived: three edits, the third one back to the first content. Each event has the
// checksum of its content, and the numbers of namespaces, in its text and its annotations.
func TestMirroredTellsWhichContentHasArrived(t *testing.T) {
	cluster(t, append(teams(3, "team-"), plantest.ConfigMap("team-001", "settings")), func(t *testing.T, s scene) {
		for _, content := range []string{"A", "B", "A"} {
			cm := source(plantest.Data("key", content))
			s.write(cm)
			time.Sleep(time.Minute)
			want := parsed(cm)
			got := map[string]string{}
			s.diary.mu.Lock()
			maps.Copy(got, s.annotations)
			s.diary.mu.Unlock()
			text := fmt.Sprintf("Synced %.12s to 2 namespaces; 1 is blocked (see Foreign)", want.Checksum[len("sha256:"):])
			if s.said(plan.ReasonMirrored) != text {
				t.Errorf("%s: got event %q, want %q", content, s.said(plan.ReasonMirrored), text)
			}
			for key, value := range map[string]string{"checksum": want.Checksum, "payload": want.Payload(),
				"instance": "default",
				"synced":   "2", "held": "0", "blocked": "1", "expiring": "0"} {
				if got["mirror-controller.github.io/"+key] != value {
					t.Errorf("%s: got annotations %v, want %s=%s", content, got, key, value)
				}
			}
		}
		if n := s.reported(plan.ReasonMirrored); n != 3 {
			t.Errorf("got %d events, want one for each content", n)
		}
	})
}

// TestC11TheNewestCauseIsReported: a target stays rejected, and for another reason: the event says the new one.
func TestC11TheNewestCauseIsReported(t *testing.T) {
	cluster(t, append(teams(2, "team-"), source()), func(t *testing.T, s scene) {
		for _, cause := range []string{"exceeded quota", "denied by a webhook"} {
			s.refuse(on(rejected(cause), creates, updates))
			if s.reported(plan.ReasonWriteFailed) == 0 {
				s.edit("platform", plantest.Data("key", "new"))
			}
			s.within(2*time.Minute, "event about "+cause, func() bool {
				return strings.Contains(s.said(plan.ReasonWriteFailed), cause)
			})
			time.Sleep(5 * time.Minute) // until all that is due is reported
		}
	})
}

// TestC65SourcesGoneBeforeATakeover: each of two sources of one name was deleted while no controller ran. The deletion
// of the copies of each is announced, within a grace that is shorter than the spacing of events.
func TestC65SourcesGoneBeforeATakeover(t *testing.T) {
	objects := append(teams(2, "team-"), plantest.Namespace("shared"))
	for i, owner := range []string{"platform", "shared"} {
		objects = append(objects, plantest.Copy(teamRules(), plantest.Source(owner, "settings"), fmt.Sprintf("team-%03d", i)))
	}
	alone(t, having(objects...), func(o *Options) { o.DeletionGrace = 3 * time.Second }, func(t *testing.T, s scene) {
		time.Sleep(time.Minute)
		s.wantNone("team-000")
		s.wantNone("team-001")
		if got := s.notesOf(plan.ReasonExpiring); len(got) != 2 {
			t.Errorf("got announcements %q, want one for the copy of each source", got)
		}
	})
}
