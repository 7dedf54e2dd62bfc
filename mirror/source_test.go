package mirror

import (
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/mirror-controller/mirror-controller/mirror/plan/plantest"
)

// TestC15RecreatedWithinASecond, a hundred times at random moments: with the same data not one copy is written, with
// other data they are updated in place, and none is ever deleted.
func TestC15RecreatedWithinASecond(t *testing.T) {
	const targets, rounds = 3, 100
	random := rand.New(rand.NewPCG(15, 0))
	inScene(append(teams(targets, "team-"), source()), func(t *testing.T, s scene) {
		uid := s.get("team-000").UID
		for i := range rounds {
			s.remove("platform")
			time.Sleep(time.Duration(random.IntN(999)) * time.Millisecond)
			s.write(source(data([]string{"value", "other"}[i/(rounds/2)])))
			time.Sleep(time.Duration(random.IntN(5000)) * time.Millisecond)
		}
		s.wantCopy("team-000", "other")
		if n := s.CountAll("team-", "delete"); n > 0 || s.get("team-000").UID != uid {
			t.Errorf("got %d deletions, want none", n)
		}
		s.wantMetric(targets, "mirror_writes_total", "update", "success") // the data changed once
	})(t)
}

// TestC03NamesakeTakesOverInPlace, a hundred times: the winner goes, and the copy becomes that of the other source,
// without a deletion. The one that comes back is younger, and waits. Case C52.
func TestC03NamesakeTakesOverInPlace(t *testing.T) {
	src := func(namespace string) *corev1.ConfigMap {
		return plantest.Source(namespace, "settings", data(namespace))
	}
	objects := append(teams(1, "team-"), plantest.Namespace("shared"), src("platform"), src("shared"))
	inScene(objects, func(t *testing.T, s scene) {
		first := s.get("team-000")
		if first.Data["key"] != "platform" {
			t.Fatalf("got %v, want the copy of platform: of two sources of one age the smaller name wins", first)
		}
		for i := range 100 {
			goes, stays := "platform", "shared"
			if i%2 == 1 {
				goes, stays = stays, goes
			}
			if i%4 < 2 {
				s.remove(goes)
			} else {
				s.edit(goes, unlabelled)
			}
			time.Sleep(1500 * time.Millisecond)
			if cm := s.get("team-000"); cm == nil || cm.UID != first.UID || cm.Data["key"] != stays {
				t.Fatalf("round %d: got %v, want the same object with the data of %s", i, cm, stays)
			}
			s.remove(goes)
			s.write(src(goes))
			time.Sleep(time.Second)
			if n := s.CountAll("team-", "delete"); n > 0 || s.get("team-000").Data["key"] != stays {
				t.Fatalf("round %d: got %d deletions and %v, want the older source to keep the copy", i, n, s.get("team-000"))
			}
		}
	})(t)
}

// TestC04SourcesInTargets: each of two sources lies in a namespace that is a target of the other. Neither is
// overwritten, and the older one wins in the third namespace.
func TestC04SourcesInTargets(t *testing.T) {
	older := sourceIn("team-001", data("older"), plantest.CreatedAt(1))
	younger := sourceIn("team-000", data("younger"), plantest.CreatedAt(2))
	inScene(append(teams(3, "team-"), older, younger), func(t *testing.T, s scene) {
		wantValue := func(namespace, value string) {
			t.Helper()
			if got := s.get(namespace); got == nil || got.Data["key"] != value {
				t.Errorf("%s: got %v, want %q", namespace, got, value)
			}
		}
		for range 2 {
			time.Sleep(time.Minute)
			wantValue("team-000", "younger")
			wantValue("team-001", "older")
			wantValue("team-002", "older")
			s.wantWrites(1, "team-")
			s.edit("team-000", plantest.Annotation("theirs", "x"))
			s.edit("team-001", plantest.Annotation("theirs", "x"))
		}
		s.edit("team-001", data("new"))
		s.wantCopies(2, "team-", "new")
	})(t)
}

// TestC38EditsAllTheTime: a source that changes 100 times a second is compared with its targets ten times a second,
// its last target gets a state that is not old, and the last state is everywhere soon after the end.
func TestC38EditsAllTheTime(t *testing.T) {
	t.Parallel()
	const targets, edits = 100, 500
	inScene(append(teams(targets, "team-"), source(data("0"))), func(t *testing.T, s scene) {
		time.Sleep(time.Second)
		s.slowDown(5 * time.Millisecond)
		before := s.CountAll("team-", "update")
		for i := range edits {
			s.edit("platform", data(strconv.Itoa(i+1)))
			time.Sleep(10 * time.Millisecond)
			if i < 100 {
				continue
			}
			for _, ns := range teams(targets, "team-") {
				at := ns.(interface{ GetName() string }).GetName()
				if n, _ := strconv.Atoi(s.get(at).Data["key"]); n < i-60 {
					t.Fatalf("%s: got edit %d while edit %d is there, want it not older than 600 ms", at, n, i)
				}
			}
		}
		last := strconv.Itoa(edits)
		s.within(500*time.Millisecond, "last state everywhere",
			func() bool { return s.countCopies("team-", last) == targets })
		if n := (s.CountAll("team-", "update") - before) / targets; n > edits/10+11 {
			t.Errorf("got %d updates of each target for %d edits in 5 s, want ten a second", n, edits)
		}
	})(t)
}
