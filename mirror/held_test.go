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
				s.wantMetric(0, "mirror_copies", "held")
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
		s.wantCopies(3, "team-0", "value")
		s.edit("platform", plantest.Without(plan.PausedAnnotation))
		time.Sleep(50 * time.Second) // the grace is a minute
		s.wantCopies(3, "team-0", "value")
		s.wantEventCount(2, plan.ReasonExpiring) // one before the hold and one after it
		time.Sleep(20 * time.Second)
		s.wantCopies(0, "team-0", "value")
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
			s.wantMetric(1, "mirror_copies", "foreign")
			if cm := s.get("team-a"); cm.Labels[plan.DefaultLabel] != "" {
				t.Errorf("API server away: %v: got %v, want the copy as it was", refuses != nil, cm)
			}
		}
		if got := s.lastEvent(plan.ReasonForeign); got.Regarding != settings("team-b") ||
			!strings.Contains(got.Note, "platform/settings") {
			t.Errorf("got event %v, want one on the other source that names the holder", got)
		}
	})
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
		objects := append(teams(3, "team-"), plantest.Namespace("team-owner", "mirror", "false"))
		runSubscene(t, name, objects, func(t *testing.T, s scene) {
			s.write(sourceIn("team-owner", plantest.Data("key", "tenant")))
			time.Sleep(time.Minute)
			s.edit("team-owner", stop, plantest.Data("key", "tenant's next"))
			time.Sleep(time.Minute)
			s.write(source(plantest.Data("key", "platform")))
			time.Sleep(time.Minute)
			s.wantCopies(3, "team-0", "platform")
			got := s.eventsThat(func(e Event) bool { return e.Regarding.Namespace == "platform" })
			if len(got) != 1 || !strings.HasSuffix(got[0].Note, " to 3 namespaces") {
				t.Errorf("got events %v of the platform", got)
			}
			superseded := map[bool]float64{true: 3}[name != "frozen"] // a malformed rule selects nothing
			s.wantMetric(superseded, "mirror_copies", "superseded")
			s.wantMetric(0, "mirror_copies", "held")
			s.remove("platform")
			time.Sleep(time.Minute)
			s.wantCopies(0, "team-0", "tenant's next")
		})
	}
}

// TestC74ForgedHold: a tenant edits a copy, and has its annotation name a source of their own that stops its copies.
// The copy is restored, and the next content arrives.
func TestC74ForgedHold(t *testing.T) {
	for name, stop := range stops {
		objects := append(teams(3, "team-"), source(), plantest.Namespace("team-own", "mirror", "false"))
		runSubscene(t, name, objects, func(t *testing.T, s scene) {
			time.Sleep(time.Minute)
			s.write(sourceIn("team-own", stop))
			time.Sleep(time.Minute)
			s.edit("team-000", plantest.Annotation(plan.SourceAnnotation, "team-own/settings"), plantest.Data("key", "spoilt"))
			time.Sleep(time.Second)
			s.wantCopy("team-000", "value")
			s.wantRestored()
			s.edit("platform", plantest.Data("key", "a new CA"))
			time.Sleep(time.Second)
			s.wantCopy("team-000", "a new CA")
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
		bad := source(plantest.Data("key", "bad"))
		runSubscene(t, name, append(teams(2, "team-"), bad, foreignObject()), func(t *testing.T, s scene) {
			s.delay(on(20*time.Second, request("get", "configmaps", "team-000")))
			time.Sleep(time.Hour)
			s.remove("team-000")
			began := s.Count("get", "configmaps", "team-000")
			s.within(2*time.Minute, "read", func() bool { return s.Count("get", "configmaps", "team-000") > began })
			stop(s)
			time.Sleep(25 * time.Second)
			synctest.Wait()
			if cm := s.get("team-000"); cm != nil && cm.Data["key"] == "bad" {
				t.Errorf("got %v, created 20 s after the source has stopped that", cm)
			}
		})
	}
}
