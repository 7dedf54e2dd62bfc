package mirror

// A change in stages: held targets stay as they are.

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/mirror-controller/mirror-controller/mirror/apitest"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
	"github.com/mirror-controller/mirror-controller/mirror/plan/plantest"
)

var (
	paused  = plantest.Annotation(plan.PausedAnnotation, plan.PausedValue)
	rollout = plantest.Annotation(plan.RolloutAnnotation, "tier=canary")
)

// runStaged runs a controller with the source platform/settings, the canary team-c, and the targets team-000 to
// team-002.
func runStaged(t *testing.T, f func(*testing.T, scene)) {
	t.Helper()
	objects := append(teams(3, "team-"), source(), plantest.Namespace("team-c", "tier", "canary"))
	edit := func(o *Options) { o.DeletionGrace, o.ResyncPeriod = time.Minute, 10*time.Minute }
	runSceneWith(t, objects, edit, func(t *testing.T, s scene) {
		time.Sleep(time.Minute)
		f(t, s)
	})
}

// heldCopies returns the ConfigMaps settings of the held targets, in words.
func (s scene) heldCopies() (all []string) {
	for _, cm := range s.ConfigMaps.All() {
		if strings.HasPrefix(cm.Namespace, "team-0") {
			all = append(all, fmt.Sprint(cm))
		}
	}
	slices.Sort(all)
	return all
}

// TestC62Held: each row is something that happens while targets are held. They stay as they are, byte for byte, and
// nobody reads or writes there; when the hold ends, they are brought in sync.
func TestC62Held(t *testing.T) {
	narrow := plantest.Annotation(plan.PrefixAnnotation, "team-c")
	for name, happens := range map[string]func(scene){
		"the data changes ten times": func(s scene) {
			for i := range 10 {
				s.edit("platform", plantest.Data("key", fmt.Sprint(i)))
				time.Sleep(time.Second)
			}
			s.edit("platform", plantest.Data("key", "changed"))
		},
		"nothing but time":         func(s scene) { time.Sleep(time.Hour) }, // six resyncs
		"a watch begins anew":      func(s scene) { s.ConfigMaps.Expire(); s.Namespaces.Expire() },
		"the source is narrowed":   func(s scene) { s.edit("platform", narrow) },
		"a namespace opts out":     func(s scene) { s.setNamespace(plantest.Namespace("team-000", "mirror", "false")) },
		"a namespace comes":        func(s scene) { s.addNamespace("team-new") },
		"the selector is replaced": func(s scene) { s.edit("platform", paused) },
	} {
		t.Run(name, func(t *testing.T) {
			runStaged(t, func(t *testing.T, s scene) {
				s.edit("platform", rollout, plantest.Data("key", "changed"))
				time.Sleep(time.Minute)
				s.wantCopy("team-c", "changed")
				before, calls := s.heldCopies(), s.Calls()
				happens(s)
				time.Sleep(time.Minute)
				if got := s.heldCopies(); !slices.Equal(got, before) {
					t.Errorf("got %q, want them as before: %q", got, before)
				}
				for c, n := range s.Calls() {
					if c.Resource == "configmaps" && strings.HasPrefix(c.Namespace, "team-0") && n > calls[c] {
						t.Errorf("got %d × %v at a held target", n-calls[c], c)
					}
				}
				s.wantNone("team-new")
				if got := s.metric("mirror_copies", "held"); got < 3 {
					t.Errorf("got %v held, want at least 3", got)
				}
				s.edit("platform", plantest.Without(plan.RolloutAnnotation), plantest.Without(plan.PausedAnnotation),
					plantest.Without(plan.PrefixAnnotation))
				s.setNamespace(plantest.Namespace("team-000"))
				time.Sleep(time.Minute)
				for _, namespace := range []string{"team-000", "team-001", "team-002", "team-c"} {
					s.wantCopy(namespace, "changed")
				}
				if got := s.metric("mirror_copies", "held"); got != 0 {
					t.Errorf("got %v held in the end, want 0", got)
				}
			})
		})
	}
}

// TestC62Grace: a hold ends a grace, and after the hold a grace begins anew, which is announced.
func TestC62Grace(t *testing.T) {
	runStaged(t, func(t *testing.T, s scene) {
		narrow := plantest.Annotation(plan.PrefixAnnotation, "team-c")
		s.edit("platform", narrow)
		time.Sleep(50 * time.Second)
		s.edit("platform", paused)
		time.Sleep(time.Hour)
		if n := s.countCopies("team-0", "value"); n != 3 {
			t.Fatalf("got %d copies after a hold of an hour, want 3", n)
		}
		s.edit("platform", plantest.Without(plan.PausedAnnotation))
		time.Sleep(50 * time.Second)
		if n := s.countCopies("team-0", "value"); n != 3 {
			t.Errorf("got %d copies 50 s after the hold, want 3: the grace is a minute", n)
		}
		if n := s.countEvents(plan.ReasonExpiring); n != 2 {
			t.Errorf("got %d announcements, want one before the hold and one after it", n)
		}
		time.Sleep(20 * time.Second)
		if n := s.countCopies("team-0", "value"); n != 0 {
			t.Errorf("got %d copies after the grace, want none", n)
		}
	})
}

// TestC62HiddenCopy: a copy that lost its label is found by a live read, and its source, which does not select the
// target any more, holds it. The other source hears of that, also while the API server is away.
func TestC62HiddenCopy(t *testing.T) {
	first := sourceIn("platform", paused, plantest.Annotation(plan.PrefixAnnotation, "team-z"))
	hidden := copyOf(first, "team-a", plantest.Without(plan.DefaultLabel))
	objects := []runtime.Object{plantest.Namespace("team-a"), plantest.Namespace("team-b"),
		first, sourceIn("team-b"), hidden}
	runScene(t, objects, func(t *testing.T, s scene) {
		for _, refuses := range []error{nil, errAway} {
			s.refuse(on(refuses, apitest.Call{Namespace: "team-a"}))
			time.Sleep(3 * time.Minute)
			if n := s.metric("mirror_copies", "foreign"); n != 1 || s.get("team-a").Labels[plan.DefaultLabel] != "" {
				t.Errorf("API server away: %v: got %v copies foreign, and %v, want 1, and the copy as it was",
					refuses != nil, n, s.get("team-a"))
			}
		}
		if got := s.lastEvent(plan.ReasonForeign); got.Regarding != settings("team-b") ||
			!strings.Contains(got.Note, "platform/settings") {
			t.Errorf("got event %v, want one on the other source that names the holder", got)
		}
	})
}

// eventsAbout returns the events about the source in a namespace, each as its reason and its note.
func (s scene) eventsAbout(namespace string) (all []string) {
	s.t.Helper()
	synctest.Wait()
	s.diary.mu.Lock()
	defer s.diary.mu.Unlock()
	for _, e := range s.events {
		if e.Regarding.Namespace == namespace {
			all = append(all, e.Reason+": "+e.Note)
		}
	}
	return all
}

// stops are the ways in which a source stops its copies.
var stops = map[string]plantest.Option{
	"paused": paused,
	"staged": plantest.Annotation(plan.RolloutAnnotation, "tier=canary"),
	"frozen": plantest.Annotation(plan.PrefixAnnotation, "Team-"),
}

// TestC74SourceBehindKeepsNobodyOut: a tenant's source stops its copies. The source of the platform, which comes later
// and ranks first, gets all of them, and the tenant's source is superseded in each. When the platform's goes, nothing
// comes back to the tenant's content while it is stopped.
func TestC74SourceBehindKeepsNobodyOut(t *testing.T) {
	for name, stop := range stops {
		t.Run(name, func(t *testing.T) {
			objects := append(teams(3, "team-"), plantest.Namespace("team-owner", "mirror", "false"))
			runScene(t, objects, func(t *testing.T, s scene) {
				s.write(sourceIn("team-owner", plantest.Data("key", "tenant")))
				time.Sleep(time.Minute)
				s.edit("team-owner", stop, plantest.Data("key", "tenant's next"))
				time.Sleep(time.Minute)
				s.write(source(plantest.Data("key", "platform")))
				time.Sleep(time.Minute)
				if n := s.countCopies("team-0", "platform"); n != 3 {
					t.Errorf("got %d copies of the platform, want 3", n)
				}
				if got := s.eventsAbout("platform"); len(got) != 1 || !strings.HasSuffix(got[0], " to 3 namespaces") {
					t.Errorf("got events %q of the platform", got)
				}
				superseded := name != "frozen" // a malformed rule selects nothing
				if n := s.metric("mirror_copies", "superseded"); n == 3 != superseded || s.metric("mirror_copies", "held") != 0 {
					t.Errorf("got %v superseded and %v held", n, s.metric("mirror_copies", "held"))
				}
				s.remove("platform")
				time.Sleep(time.Minute)
				if n := s.countCopies("team-0", "tenant's next"); n != 0 {
					t.Errorf("got %d copies of a source that is stopped, want none", n)
				}
			})
		})
	}
}

// TestC74ForgedHold: a tenant edits a copy, and has its annotation name a source of their own that stops its copies.
// The copy is restored, and the next content arrives.
func TestC74ForgedHold(t *testing.T) {
	for name, stop := range stops {
		t.Run(name, func(t *testing.T) {
			objects := append(teams(3, "team-"), source(), plantest.Namespace("team-own", "mirror", "false"))
			runScene(t, objects, func(t *testing.T, s scene) {
				time.Sleep(time.Minute)
				s.write(sourceIn("team-own", stop))
				time.Sleep(time.Minute)
				s.edit("team-000", plantest.Annotation(plan.SourceAnnotation, "team-own/settings"), plantest.Data("key", "spoilt"))
				time.Sleep(time.Second)
				s.wantCopy("team-000", "value")
				s.wantRestored(s.get("team-000"))
				s.edit("platform", plantest.Data("key", "a new CA"))
				time.Sleep(time.Second)
				s.wantCopy("team-000", "a new CA")
			})
		})
	}
}

// TestC77CreateAfterALiveRead: a foreign object goes, and the live read that shows this takes long. Meanwhile the
// source stops, or changes. What is created then is what is wanted then.
func TestC77CreateAfterALiveRead(t *testing.T) {
	for name, stop := range map[string]func(scene){
		"paused":   func(s scene) { s.edit("platform", paused) },
		"deleted":  func(s scene) { s.remove("platform") },
		"narrowed": func(s scene) { s.edit("platform", plantest.Annotation(plan.PrefixAnnotation, "team-001")) },
		"opt-out":  func(s scene) { s.setNamespace(plantest.Namespace("team-000", "mirror", "false")) },
		"edited":   func(s scene) { s.edit("platform", plantest.Data("key", "good")) },
	} {
		t.Run(name, func(t *testing.T) {
			bad := source(plantest.Data("key", "bad"))
			runScene(t, append(teams(2, "team-"), bad, foreignObject()), func(t *testing.T, s scene) {
				s.delay(on(20*time.Second, request("get", "configmaps", "team-000")))
				time.Sleep(time.Hour)
				s.remove("team-000")
				began := s.Count("get", "configmaps", "team-000")
				for s.Count("get", "configmaps", "team-000") == began {
					time.Sleep(time.Second)
				}
				stop(s)
				time.Sleep(25 * time.Second)
				synctest.Wait()
				if cm := s.get("team-000"); cm != nil && cm.Data["key"] == "bad" {
					t.Errorf("got %v, created 20 s after the source has stopped that", cm)
				}
			})
		})
	}
}
