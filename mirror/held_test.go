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

var canary = rollout("tier=canary")

// staged returns a test that runs a controller with the source platform/settings, the canary team-c, and the targets
// team-000 to team-002.
func staged(f func(*testing.T, scene)) func(*testing.T) {
	objects := append(teams(3, "team-"), source(), plantest.Namespace("team-c", "tier", "canary"))
	edit := func(o *Options) { o.DeletionGrace, o.ResyncPeriod = time.Minute, 10*time.Minute }
	return inSceneWith(objects, edit, func(t *testing.T, s scene) {
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
	for name, happens := range map[string]func(scene){
		"the data changes ten times": func(s scene) {
			for i := range 10 {
				s.edit("platform", data(fmt.Sprint(i)))
				time.Sleep(time.Second)
			}
			s.edit("platform", data("changed"))
		},
		"nothing but time":         func(s scene) { time.Sleep(time.Hour) }, // six resyncs
		"a watch begins anew":      func(s scene) { s.ConfigMaps.Expire(); s.Namespaces.Expire() },
		"the source is narrowed":   func(s scene) { s.edit("platform", prefixes("team-c")) },
		"a namespace opts out":     func(s scene) { s.optOut("team-000") },
		"a namespace comes":        func(s scene) { s.addNamespace("team-new") },
		"the selector is replaced": func(s scene) { s.edit("platform", paused) },
	} {
		t.Run(name, staged(func(t *testing.T, s scene) {
			s.edit("platform", canary, data("changed"))
			time.Sleep(time.Minute)
			s.wantCopy("team-c", "changed")
			const all = "team-0"
			calls := func() int { return s.countWrites(all) + s.CountAll(all, "get") }
			before, called := s.heldCopies(), calls()
			happens(s)
			time.Sleep(time.Minute)
			if got := s.heldCopies(); !slices.Equal(got, before) || calls() != called {
				t.Errorf("got %d calls and %q, want none, and the copies as before: %q", calls()-called, got, before)
			}
			s.wantNone("team-new")
			if got := s.metric("mirror_copies", "held"); got < 3 {
				t.Errorf("got %v held, want at least 3", got)
			}
			s.edit("platform", slices.Concat(noHold, noRules)...)
			s.setNamespace("team-000")
			time.Sleep(time.Minute)
			s.wantCopies(3, all, "changed")
			s.wantCopy("team-c", "changed")
			s.wantMetric(0, "mirror_copies", "held")
		}))
	}
}

// TestC62Grace: a hold ends a grace, and after the hold a grace begins anew, which is announced.
func TestC62Grace(t *testing.T) {
	staged(func(t *testing.T, s scene) {
		s.edit("platform", prefixes("team-c"))
		time.Sleep(50 * time.Second)
		s.edit("platform", paused)
		time.Sleep(time.Hour)
		s.wantCopies(3, "team-0", "value")
		s.edit("platform", noHold...)
		time.Sleep(50 * time.Second) // the grace is a minute
		s.wantCopies(3, "team-0", "value")
		s.wantEventCount(2, plan.ReasonExpiring) // one before the hold and one after it
		time.Sleep(20 * time.Second)
		s.wantCopies(0, "team-0", "value")
	})(t)
}

// TestC62GraceBriefHold: a hold that comes and goes before a fan-out or a reconcile sees it ends a grace, too.
func TestC62GraceBriefHold(t *testing.T) {
	staged(func(t *testing.T, s scene) {
		s.optOut("team-000")
		time.Sleep(59 * time.Second)
		s.edit("platform", paused)
		s.edit("platform", noHold...)
		time.Sleep(59 * time.Second) // the grace is a minute
		s.wantCopies(3, "team-0", "value")
		time.Sleep(3 * time.Second)
		s.wantCopies(2, "team-0", "value")
	})(t)
}

// TestC62HiddenCopy: a copy that lost its label is found by a live read, and its source, which does not select the
// target any more, holds it. The other source hears of that, also while the API server is away.
func TestC62HiddenCopy(t *testing.T) {
	first := source(paused, prefixes("team-z"))
	objects := []runtime.Object{plantest.Namespace("team-a"), plantest.Namespace("team-b"), first, sourceIn("team-b"),
		copyOf(first, "team-a", unlabelled)}
	inScene(objects, func(t *testing.T, s scene) {
		for _, refuses := range []error{nil, errAway} {
			s.refuse(on(refuses, apitest.Call{Namespace: "team-a"}))
			time.Sleep(3 * time.Minute)
			s.wantMetric(1, "mirror_copies", "foreign")
			if cm := s.get("team-a"); cm.Labels[plan.DefaultLabel] != "" {
				t.Errorf("API server away: %v: got %v, want the copy as it was", refuses != nil, cm)
			}
		}
		s.wantNote(plan.ReasonForeign, "platform/settings")
		if about := s.lastEvent(plan.ReasonForeign).Regarding; about != settings("team-b") {
			t.Errorf("got an event on %v, want it on the other source", about)
		}
		s.addNamespace("team-c")
		s.wantCopies(1, "team-c", "value")
	})(t)
}

// stops are the ways in which a source stops its copies.
var stops = map[string]plantest.Option{"paused": paused, "staged": canary, "frozen": prefixes("Team-")}

// TestC74SourceBehindKeepsNobodyOut: a tenant's source stops its copies. The source of the platform, which comes later
// and ranks first, gets all of them, and the tenant's source is superseded in each. When the platform's goes, nothing
// comes back to the tenant's content while it is stopped.
func TestC74SourceBehindKeepsNobodyOut(t *testing.T) {
	objects := append(teams(3, "team-"), plantest.Namespace("team-owner", "mirror", "false"))
	for name, stop := range stops {
		t.Run(name, inScene(objects, func(t *testing.T, s scene) {
			s.write(sourceIn("team-owner", data("tenant")))
			time.Sleep(time.Minute)
			s.edit("team-owner", stop, data("tenant's next"))
			time.Sleep(time.Minute)
			s.write(source(data("platform")))
			time.Sleep(time.Minute)
			s.wantCopies(3, "team-0", "platform")
			ofOther := func(e Event) bool { return e.Regarding.Namespace != "platform" }
			got := slices.DeleteFunc(slices.Clone(s.events), ofOther)
			if len(got) != 1 || !strings.Contains(got[0].Note, " to 3 namespaces") {
				t.Errorf("got events %v of the platform", got)
			}
			superseded := map[bool]float64{true: 3}[name != "frozen"] // a malformed rule selects nothing
			s.wantMetric(superseded, "mirror_copies", "superseded")
			s.wantMetric(0, "mirror_copies", "held")
			s.remove("platform")
			time.Sleep(time.Minute)
			s.wantCopies(0, "team-0", "tenant's next")
		}))
	}
}

// TestC74ForgedHold: a tenant edits a copy, and has its annotation name a source of their own that stops its copies.
// The copy is restored, and the next content arrives.
func TestC74ForgedHold(t *testing.T) {
	objects := append(teams(3, "team-"), source(), plantest.Namespace("team-own", "mirror", "false"))
	for name, stop := range stops {
		t.Run(name, inScene(objects, func(t *testing.T, s scene) {
			time.Sleep(time.Minute)
			s.write(sourceIn("team-own", stop))
			time.Sleep(time.Minute)
			s.edit("team-000", plantest.Annotation(plan.SourceAnnotation, "team-own/settings"), data("spoilt"))
			time.Sleep(time.Second)
			s.wantCopy("team-000", "value")
			s.wantRestored()
			s.edit("platform", data("a new CA"))
			time.Sleep(time.Second)
			s.wantCopy("team-000", "a new CA")
		}))
	}
}

// TestC77CreateAfterALiveRead: a foreign object goes, and the live read that shows this takes long. Meanwhile the
// source stops, or changes. What is created then is what is wanted then.
func TestC77CreateAfterALiveRead(t *testing.T) {
	objects := append(teams(2, "team-"), source(data("bad")), foreignObject())
	for name, stop := range map[string]func(scene){
		"paused":   func(s scene) { s.edit("platform", paused) },
		"deleted":  func(s scene) { s.remove("platform") },
		"narrowed": func(s scene) { s.edit("platform", prefixes("team-001")) },
		"opt-out":  func(s scene) { s.optOut("team-000") },
		"edited":   func(s scene) { s.edit("platform", data("good")) },
	} {
		t.Run(name, inScene(objects, func(t *testing.T, s scene) {
			s.delay(on(20*time.Second, request("get", "configmaps", "team-000")))
			time.Sleep(time.Hour)
			s.remove("team-000")
			began := s.CountAll("team-000", "get")
			s.within(2*time.Minute, "read", func() bool { return s.CountAll("team-000", "get") > began })
			time.Sleep(5 * time.Second) // that read was cut, and the next one is on its way
			creates := s.CountAll("team-000", "create")
			stop(s)
			time.Sleep(20 * time.Second)
			synctest.Wait()
			creates = s.CountAll("team-000", "create") - creates
			wanted, cm := name == "edited", s.get("team-000")
			if (creates > 0) != wanted || wanted && (cm == nil || cm.Data["key"] != "good") {
				t.Errorf("got %d creates, and %v, after the source has stopped that", creates, cm)
			}
			if wanted {
				s.wantCopies(2, "team-", "good")
			}
		}))
	}
}
