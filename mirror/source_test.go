package mirror

import (
	"maps"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/mirror-controller/mirror-controller/mirror/plan"
	"github.com/mirror-controller/mirror-controller/mirror/plan/plantest"
)

const malformed = "tier in ("

// TestSourceChanges has one source with a copy in team-a and team-b, and then one thing happens to it.
func TestSourceChanges(t *testing.T) {
	other, label := plantest.Data("key", "other"), plantest.Label("mirror", "true")
	edited := func(o plantest.Option) func(scene) { return func(s scene) { s.edit("platform", o) } }
	gone := func(s scene) { s.remove("platform") }
	replaced := func(s scene) { s.remove("platform"); s.write(source(plantest.Immutable, other)) }
	for name, tc := range map[string]struct {
		src  *corev1.ConfigMap
		act  func(scene)
		want string        // empty: no copy
		at   time.Duration // when that is so, and no earlier; 0 is at once
	}{
		"changed":                    {source(), edited(other), "other", 0},
		"written without a change":   {source(), edited(plantest.Label("theirs", "x")), "value", 0},
		"unlabelled":                 {source(), edited(plantest.Without("mirror")), "", time.Second},
		"labelled":                   {source(plantest.Without("mirror")), edited(label), "value", 0},
		"C15 deleted":                {source(), gone, "", time.Second},
		"C16 held by a finalizer":    {source(plantest.Finalizer), gone, "", time.Second},
		"C22 made immutable":         {source(), edited(plantest.Immutable), "value", 0},
		"C22 immutable and replaced": {source(plantest.Immutable), replaced, "other", 0},
	} {
		t.Run(name, func(t *testing.T) {
			cluster(t, append(teams(2, "team-"), tc.src), func(t *testing.T, s scene) {
				time.Sleep(time.Second) // no fan-out has just been
				before := s.get("team-000")
				tc.act(s)
				synctest.Wait()
				if tc.at > 0 {
					time.Sleep(tc.at - time.Millisecond)
					s.wantCopy("team-000", "value")
					time.Sleep(11 * time.Millisecond) // one of the two reads for both
				}
				synctest.Wait()
				for _, at := range []string{"team-000", "team-001"} {
					if tc.want == "" {
						s.wantNone(at)
						continue
					}
					s.wantCopy(at, tc.want)
					if src, cm := s.get("platform"), s.get(at); (src.Immutable == nil) != (cm.Immutable == nil) {
						t.Errorf("%s: got immutable %v, want it as in the source", at, cm.Immutable)
					}
				}
				if name == "written without a change" && s.get("team-000").ResourceVersion != before.ResourceVersion {
					t.Error("got a copy written that was in sync")
				}
			})
		})
	}
}

// TestWhileNoControllerRan: the start carries out the changes from before.
func TestWhileNoControllerRan(t *testing.T) {
	for name, tc := range map[string]struct {
		src  *corev1.ConfigMap // as it is now; nil: deleted
		want string
	}{
		"C14 deleted":    {nil, ""},
		"C14 unlabelled": {source(plantest.Without("mirror")), ""},
		"C14 narrowed":   {source(plantest.Annotation(plan.PrefixAnnotation, "team-b")), ""},
		"C14 changed":    {source(plantest.Data("key", "other")), "other"},
		"C18 nothing":    {source(), "value"},
	} {
		t.Run(name, func(t *testing.T) {
			objects := append(teams(1, "team-"), copyOf(source(), "team-000"))
			if tc.src != nil {
				objects = append(objects, tc.src)
			}
			cluster(t, objects, func(t *testing.T, s scene) {
				time.Sleep(2 * time.Second)
				if tc.want == "" {
					s.wantNone("team-000")
					return
				}
				s.wantCopy("team-000", tc.want)
				if n := s.CountAll("team-", "update"); tc.want == "value" && n > 0 {
					t.Error("got a copy written that was in sync")
				}
			})
		})
	}
}

// TestC15RecreatedWithinASecond, a hundred times at random moments: with the same data not one copy is written, with
// other data they are updated in place, and none is ever deleted.
func TestC15RecreatedWithinASecond(t *testing.T) {
	const targets, rounds = 3, 100
	random := rand.New(rand.NewPCG(15, 0))
	cluster(t, append(teams(targets, "team-"), source()), func(t *testing.T, s scene) {
		uid := s.get("team-000").UID
		for i := range rounds {
			s.remove("platform")
			time.Sleep(time.Duration(random.IntN(999)) * time.Millisecond)
			s.write(source(plantest.Data("key", []string{"value", "other"}[i/(rounds/2)])))
			time.Sleep(time.Duration(random.IntN(5000)) * time.Millisecond)
		}
		s.wantCopy("team-000", "other")
		if n := s.CountAll("team-", "delete"); n > 0 || s.get("team-000").UID != uid {
			t.Errorf("got %d deletions, want none", n)
		}
		if n := s.value("mirror_writes_total", "update", "success"); n != targets {
			t.Errorf("got %v updates, want %d: the data changed once", n, targets)
		}
	})
}

// TestC03NamesakeTakesOverInPlace, a hundred times: the winner goes, and the copy becomes that of the other source,
// without a deletion. The one that comes back is younger, and waits.
func TestC03NamesakeTakesOverInPlace(t *testing.T) {
	src := func(namespace string) *corev1.ConfigMap {
		return plantest.Source(namespace, "settings", plantest.Data("key", namespace))
	}
	objects := append(teams(1, "team-"), plantest.Namespace("shared"), src("platform"), src("shared"))
	cluster(t, objects, func(t *testing.T, s scene) {
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
				s.edit(goes, plantest.Without("mirror"))
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
		for _, at := range []string{"platform", "shared"} {
			if s.get(at).Labels["mirror"] != "true" {
				t.Errorf("C04: the source in %s was overwritten", at)
			}
		}
	})
}

// TestC31Freeze: nothing happens for a source with a malformed annotation, until that is fixed, or the source goes.
func TestC31Freeze(t *testing.T) {
	freeze := plantest.Annotation(plan.SelectorAnnotation, malformed)
	for name, tc := range map[string]struct {
		ends func(scene)
		want string
	}{
		"fixed":      {func(s scene) { s.edit("platform", plantest.Without(plan.SelectorAnnotation)) }, "other"},
		"deleted":    {func(s scene) { s.remove("platform") }, ""},
		"unlabelled": {func(s scene) { s.edit("platform", plantest.Without("mirror")) }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			cluster(t, append(teams(2, "team-"), source()), func(t *testing.T, s scene) {
				s.edit("platform", freeze, plantest.Data("key", "other"))
				synctest.Wait()
				s.addNamespace("team-new")
				s.edit("team-001", plantest.Data("key", "spoilt"))
				time.Sleep(time.Hour)
				s.wantCopy("team-000", "value")
				s.wantCopy("team-001", "spoilt")
				s.wantNone("team-new")
				if n := s.reported(plan.ReasonInvalidAnnotation); n != 1 || s.reported(plan.ReasonNoTargets) > 0 {
					t.Errorf("got events %q, want one about the annotation", s.all())
				}
				tc.ends(s)
				time.Sleep(2 * time.Second)
				for _, at := range []string{"team-000", "team-001", "team-new"} {
					if tc.want == "" {
						s.wantNone(at)
					} else {
						s.wantCopy(at, tc.want)
					}
				}
			})
		})
	}
}

// TestC40NothingHappens: no request but those of the watches, with a resync every minute.
func TestC40NothingHappens(t *testing.T) {
	objects := append(teams(20, "team-"), source(), plantest.Source("platform", "other"))
	alone(t, having(objects...), func(o *Options) { o.ResyncPeriod = time.Minute }, func(t *testing.T, s scene) {
		before := s.Calls()
		time.Sleep(24 * time.Hour)
		if after := s.Calls(); !maps.Equal(before, after) {
			t.Errorf("got requests in a quiet day: %v, then %v", before, after)
		}
	})
}

// TestC42Relist: no copy counts as drifted, and none is written.
func TestC42Relist(t *testing.T) {
	forged := plantest.Annotation("mirror-controller.github.io/checksum", "sha256:forged")
	objects := append(teams(3, "team-"), source(), runtime.Object(copyOf(source(), "team-001", forged)))
	cluster(t, objects, func(t *testing.T, s scene) {
		before := s.CountAll("", "create", "update", "delete")
		for range 10 {
			s.Relist()
			time.Sleep(time.Minute)
		}
		if n := s.CountAll("", "create", "update", "delete") - before; n > 0 {
			t.Errorf("got %d writes after a relist, want none", n)
		}
		s.wantCopy("team-001", "value")
	})
}
