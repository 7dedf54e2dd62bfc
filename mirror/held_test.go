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

// staged runs a controller with the source platform/settings, the canary team-c, and the targets team-000 to team-002.
func staged(t *testing.T, f func(*testing.T, scene)) {
	t.Helper()
	objects := append(teams(3, "team-"), source(), plantest.Namespace("team-c", "tier", "canary"))
	edit := func(o *Options) { o.DeletionGrace, o.ResyncPeriod = time.Minute, 10*time.Minute }
	alone(t, having(objects...), edit, func(t *testing.T, s scene) {
		time.Sleep(time.Minute)
		f(t, s)
	})
}

// held returns the ConfigMaps settings of the held targets, in words.
func (s scene) held() (all []string) {
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
			staged(t, func(t *testing.T, s scene) {
				s.edit("platform", rollout, plantest.Data("key", "changed"))
				time.Sleep(time.Minute)
				s.wantCopy("team-c", "changed")
				before, calls := s.held(), s.Calls()
				happens(s)
				time.Sleep(time.Minute)
				if got := s.held(); !slices.Equal(got, before) {
					t.Errorf("got %q, want them as before: %q", got, before)
				}
				for c, n := range s.Calls() {
					if c.Resource == "configmaps" && strings.HasPrefix(c.Namespace, "team-0") && n > calls[c] {
						t.Errorf("got %d × %v at a held target", n-calls[c], c)
					}
				}
				s.wantNone("team-new")
				if got := s.value("mirror_copies", "held"); got < 3 {
					t.Errorf("got %v held, want at least 3", got)
				}
				s.edit("platform", plantest.Without(plan.RolloutAnnotation), plantest.Without(plan.PausedAnnotation),
					plantest.Without(plan.PrefixAnnotation))
				s.setNamespace(plantest.Namespace("team-000"))
				time.Sleep(time.Minute)
				for _, namespace := range []string{"team-000", "team-001", "team-002", "team-c"} {
					s.wantCopy(namespace, "changed")
				}
				if got := s.value("mirror_copies", "held"); got != 0 {
					t.Errorf("got %v held in the end, want 0", got)
				}
			})
		})
	}
}

// TestC62Grace: a hold ends a grace, and after the hold a grace begins anew, which is announced.
func TestC62Grace(t *testing.T) {
	staged(t, func(t *testing.T, s scene) {
		narrow := plantest.Annotation(plan.PrefixAnnotation, "team-c")
		s.edit("platform", narrow)
		time.Sleep(50 * time.Second)
		s.edit("platform", paused)
		time.Sleep(time.Hour)
		if n := s.copied("team-0", "value"); n != 3 {
			t.Fatalf("got %d copies after a hold of an hour, want 3", n)
		}
		s.edit("platform", plantest.Without(plan.PausedAnnotation))
		time.Sleep(50 * time.Second)
		if n := s.copied("team-0", "value"); n != 3 {
			t.Errorf("got %d copies 50 s after the hold, want 3: the grace is a minute", n)
		}
		if n := s.reported(plan.ReasonExpiring); n != 2 {
			t.Errorf("got %d announcements, want one before the hold and one after it", n)
		}
		time.Sleep(20 * time.Second)
		if n := s.copied("team-0", "value"); n != 0 {
			t.Errorf("got %d copies after the grace, want none", n)
		}
	})
}

// TestC62HiddenCopy: a copy that lost its label is found by a live read, and held by its source, which does not win the
// target. While the API server is away, that is still known.
func TestC62HiddenCopy(t *testing.T) {
	tenant := sourceIn("team-b", paused)
	hidden := copyOf(tenant, "team-a", plantest.Without(plan.DefaultLabel))
	objects := []runtime.Object{plantest.Namespace("team-a"), plantest.Namespace("team-b"), source(), tenant, hidden}
	cluster(t, objects, func(t *testing.T, s scene) {
		want := known{plan.StateHeld, settings("team-b")}
		expect := func(when string) {
			time.Sleep(3 * time.Minute)
			synctest.Wait()
			if got := s.controller.knows()[settings("team-a")]; got != want {
				t.Errorf("%s: got %v, want %v", when, got, want)
			}
		}
		expect("at a start")
		s.refuse(on(errLost, apitest.Call{Namespace: "team-a"}))
		expect("while the API server is away")
		if got := s.get("team-a"); got.Labels[plan.DefaultLabel] != "" {
			t.Errorf("got the copy written: %v", got)
		}
	})
}
