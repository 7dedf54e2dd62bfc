package mirror

// The newest event about a source is about what holds.

import (
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/mirror-controller/mirror-controller/mirror/plan"
	"github.com/mirror-controller/mirror-controller/mirror/plan/plantest"
)

// wantNewest fails the test unless the newest event about platform/settings has
// this reason.
func (s scene) wantNewest(reason string) {
	s.t.Helper()
	synctest.Wait()
	s.diary.mu.Lock()
	defer s.diary.mu.Unlock()
	var newest Event
	for _, e := range s.events {
		if e.Regarding == settings("platform") {
			newest = e
		}
	}
	if newest.Reason != reason {
		s.t.Errorf("got %s as the newest event, want %s: %s", newest.Reason, reason, newest.Note)
	}
}

// TestC86NewestEventAfterExpiring: two namespaces opt out, the second three
// seconds after the first, and no target is left. The announcement of the
// second deletion waits for the spacing of its reason, and comes after
// NoTargets. When the copies are deleted NoTargets is the newest event again.
func TestC86NewestEventAfterExpiring(t *testing.T) {
	edit := func(o *Options) { o.DeletionGrace = time.Minute }
	inSceneWith(append(teams(2, "team-"), source()), edit, func(t *testing.T, s scene) {
		time.Sleep(time.Minute)
		s.wantCopies(2, "team-", "value")
		s.optOut("team-000")
		time.Sleep(3 * time.Second)
		s.optOut("team-001")
		time.Sleep(10 * time.Minute)
		s.wantNone("team-000")
		s.wantNone("team-001")
		s.wantNewest(plan.ReasonNoTargets)
	})(t)
}

// TestC86NewestEventAfterOutOfScope: a source has no target, and a copy that is
// out of scope. Somebody deletes that copy.
func TestC86NewestEventAfterOutOfScope(t *testing.T) {
	edit := func(o *Options) { o.NamespaceSelector = "tier=gold" }
	objects := []runtime.Object{plantest.Namespace("team-000"), source()}
	inSceneWith(objects, edit, func(t *testing.T, s scene) {
		time.Sleep(time.Minute)
		s.write(copyOf(source(), "team-000"))
		time.Sleep(time.Minute)
		s.wantNote(plan.ReasonOutOfScope, "Copies in namespace team-000")
		s.wantNote(plan.ReasonNoTargets, "; 1 copy is out of scope (see OutOfScope).")
		s.remove("team-000")
		time.Sleep(10 * time.Minute)
		s.wantNewest(plan.ReasonNoTargets)
		s.wantNote(plan.ReasonNoTargets, "start the controller with other flags.")
		s.setNamespace("team-000", "tier", "gold")
		s.wantCopy("team-000", "value")
	})(t)
}

// TestC86NoTargetsFollowsANewNamespace: a source with a selector comes before its
// namespace, and NoTargets advises to create such a namespace. It is created,
// and another rule excludes it.
func TestC86NoTargetsFollowsANewNamespace(t *testing.T) {
	for name, tc := range map[string]struct {
		labels []string
		want   string // the rule
	}{
		"lacks a label": {nil, plan.SelectorAnnotation + `="tier=gold"`},
		"opts out":      {[]string{plan.DefaultLabel, plan.OptOutValue}, "label mirror=false"},
	} {
		objects := []runtime.Object{source(selector("tier=gold"))}
		t.Run(name, inScene(objects, func(t *testing.T, s scene) {
			time.Sleep(time.Minute)
			s.wantNote(plan.ReasonNoTargets, "create such a namespace")
			s.addNamespace("team-000", tc.labels...)
			time.Sleep(time.Minute)
			s.wantNote(plan.ReasonNoTargets, tc.want)
			s.addNamespace("team-001", "tier", "gold")
			s.wantCopy("team-001", "value")
		}))
	}
}
