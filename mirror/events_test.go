package mirror

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mirror-controller/mirror-controller/mirror/apitest"
	"github.com/mirror-controller/mirror-controller/mirror/internal/report"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
	"github.com/mirror-controller/mirror-controller/mirror/plan/plantest"
)

// wantEvents fails the test unless these events were recorded since the last call, by their reasons: those about one
// source after another.
func (s scene) wantEvents(what string, want ...string) {
	s.t.Helper()
	synctest.Wait()
	s.diary.mu.Lock()
	defer s.diary.mu.Unlock()
	slices.SortStableFunc(s.events, func(a, b Event) int {
		return strings.Compare(a.Regarding.String(), b.Regarding.String())
	})
	var reasons []string
	for _, e := range s.events {
		reasons = append(reasons, e.Reason)
		if e.Annotations[plan.InstanceAnnotation] != "default" {
			s.t.Errorf("%s: got an event with annotations %v, want the instance in them", what, e.Annotations)
		}
	}
	if !slices.Equal(reasons, want) {
		s.t.Errorf("%s: got events %v, want %q", what, s.events, want)
	}
	s.events = nil
}

// TestEventsOfASource: Mirrored comes after each change of the source and of its counts, and not for each target, nor
// where nothing has changed. Case C42.
func TestEventsOfASource(t *testing.T) {
	inScene(teams(3, "team-"), func(t *testing.T, s scene) {
		s.write(source())
		time.Sleep(time.Second)
		s.wantMirrored("3 namespaces")
		s.wantEvents("created", plan.ReasonMirrored)
		for _, step := range []struct {
			what string
			do   func()
			want []string
		}{
			{"changed", func() { s.edit("platform", data("other")) }, []string{plan.ReasonMirrored}},
			{"changed in nothing that is copied", func() { s.edit("platform", plantest.Label("theirs", "x")) },
				[]string{plan.ReasonMirrored}},
			{"a new namespace", func() { s.addNamespace("team-new") }, []string{plan.ReasonMirrored}},
			{"a repair", func() { s.remove("team-000") }, []string{plan.ReasonRestored}},
			{"a namespace that is no target", func() { s.addNamespace("elsewhere") }, nil},
		} {
			time.Sleep(time.Minute)
			step.do()
			time.Sleep(time.Second)
			s.wantEvents(step.what, step.want...)
		}
		time.Sleep(time.Minute)
		s.wantEvents("a minute later")
	})(t)
}

// TestMirroredSpeaksOfItsContent: while one target is not in sync with it there is no event, and its copy is pending. A
// change during a fan-out begins anew.
func TestMirroredSpeaksOfItsContent(t *testing.T) {
	inScene(teams(50, "team-"), func(t *testing.T, s scene) {
		s.slowDown(5 * time.Millisecond)
		s.write(source(data("old")))
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
			s.wantMetric(n, "mirror_copies", "pending")
			s.wantMetric(50-n, "mirror_copies", "synced")
		}
		s.edit("platform", data("new"))
		wantPending(50)
		time.Sleep(25 * time.Second) // shorter calls were cut, and this one goes on to its end
		wantPending(1)
		s.edit("platform", data("newer"))
		s.Hook(func(h *apitest.Hooks) { h.Lags = func(string) time.Duration { return time.Second } })
		s.within(20*time.Second, "end of the first write", func() bool { return s.countCopies("team-007", "new") == 1 })
		time.Sleep(12 * time.Second) // a report is due meanwhile
		s.wantEvents("while one target is not in sync")
		s.wantMetric(1, "mirror_propagation_seconds") // the change at the start reached all targets
		time.Sleep(time.Minute)
		s.wantEvents("at the end", plan.ReasonMirrored)
		wantPending(0)
		s.wantMetric(2, "mirror_propagation_seconds")
	})(t)
}

// TestC11EventsOfAProblem: it is reported when it begins or changes, and not again when the API server was away.
// Mirrored tells that it is over.
func TestC11EventsOfAProblem(t *testing.T) {
	objects := append(teams(3, "team-"), source(), foreignObject(), plantest.ConfigMap("team-001", "settings"))
	inScene(objects, func(t *testing.T, s scene) {
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
		s.wantNote(plan.ReasonForeign, "namespace team-001:")
		s.wantEvents("one is over", plan.ReasonForeign, plan.ReasonMirrored)
		s.remove("team-001")
		time.Sleep(time.Minute)
		s.wantEvents("all is over", plan.ReasonMirrored)
		s.edit("platform", data("new"))
		time.Sleep(time.Second)
		s.wantMirrored("3 namespaces")
	})(t)
}

// TestC03SupersededEvent: the event on the superseded source names the winner, and that on the winner counts the
// namespaces for which another source waits. The numbers follow a namespace that changes nothing else. Case C55.
func TestC03SupersededEvent(t *testing.T) {
	inScene(append(teams(2, "team-"), plantest.Namespace("shared"), source()), func(t *testing.T, s scene) {
		time.Sleep(time.Minute)
		s.wantEvents("alone", plan.ReasonMirrored)
		s.setNamespace("team-000", "tier", "gold")
		s.write(plantest.Source("shared", "settings", selector("tier=gold")))
		time.Sleep(time.Minute)
		s.wantNote(plan.ReasonSuperseded, "platform/settings")
		s.wantEvents("beside another", plan.ReasonMirrored, plan.ReasonSuperseded, plan.ReasonMirrored)
		s.setNamespace("team-001", "tier", "gold")
		time.Sleep(time.Minute)
		s.wantMetric(2, "mirror_copies", "superseded")
		s.wantEvents("in another namespace", plan.ReasonMirrored, plan.ReasonSuperseded, plan.ReasonMirrored)
		s.remove("platform")
		time.Sleep(5 * time.Second)
		s.wantEvents("it takes over", plan.ReasonMirrored)
		s.wantMetric(0, "mirror_copies", "superseded")
	})(t)
}

// TestC75MirroredNamesTheVersion: three edits, the third one back to the first content. Each event has the version of
// the source, and the numbers of namespaces by state, in its text and its annotations.
func TestC75MirroredNamesTheVersion(t *testing.T) {
	inScene(append(teams(3, "team-"), plantest.ConfigMap("team-001", "settings")), func(t *testing.T, s scene) {
		for _, content := range []string{"A", "B", "A"} {
			s.write(source(data(content)))
			time.Sleep(time.Minute)
			s.wantMirrored("2 namespaces; 1 is blocked (see Foreign)")
			want := map[string]string{}
			for _, pair := range []string{"version=" + s.version(), "instance=default", "synced=2", "held=0", "foreign=1",
				"superseded=0", "rejected=0", "fight=0", "out_of_scope=0", "expiring=0"} {
				key, value, _ := strings.Cut(pair, "=")
				want["mirror-controller.github.io/"+key] = value
			}
			if got := s.lastEvent(plan.ReasonMirrored).Annotations; !maps.Equal(got, want) {
				t.Errorf("%s: got annotations %v, want %v", content, got, want)
			}
		}
		s.wantEventCount(3, plan.ReasonMirrored)
	})(t)
}

// TestC75MirroredWaitsForAll: a source is widened, or a bad content is taken back while some targets have it. Mirrored
// names the present version only when all targets have the content of that version.
func TestC75MirroredWaitsForAll(t *testing.T) {
	t.Parallel()
	good := data("good")
	for name, tc := range map[string]struct {
		src  *corev1.ConfigMap
		edit func(scene)
	}{
		"widened": {source(good, prefixes("team-000")), func(s scene) { s.edit("platform", prefixes("team-")) }},
		"taken back": {source(good), func(s scene) {
			s.edit("platform", data("bad"))
			time.Sleep(10 * time.Second)
			s.edit("platform", good)
		}},
	} {
		objects, options := append(teams(300, "team-"), tc.src), func(o *Options) { o.ConcurrentWrites = 1 }
		t.Run(name, inSceneWith(objects, options, func(t *testing.T, s scene) {
			time.Sleep(time.Minute)
			s.slowDown(3 * reportAfter / 300) // it is reported meanwhile
			tc.edit(s)
			about := "version " + s.version()
			s.within(time.Minute, about, func() bool { return strings.Contains(s.lastNote(plan.ReasonMirrored), about) })
			s.wantMirrored("300 namespaces")
			s.wantCopies(300, "team-", "good")
		}))
	}
}

// TestEventsAreSentAgain: where the API server refuses an event, the newest text comes when it does no more, and the
// log has the text once.
func TestEventsAreSentAgain(t *testing.T) {
	inScene(teams(3, "team-"), func(t *testing.T, s scene) {
		s.onEvent(func(Event) error { return errAway })
		s.write(source())
		time.Sleep(time.Minute)
		s.edit("platform", data("other"))
		time.Sleep(time.Minute)
		s.wantEvents("while they are refused")
		s.onEvent(nil)
		time.Sleep(2 * time.Minute)
		s.wantMirrored("3 namespaces")
		s.wantEvents("when they are taken", plan.ReasonMirrored)
		if n := strings.Count(s.log(), `reason="Mirrored"`); n != 2 {
			t.Errorf("got %d lines, want one of each text", n)
		}
	})(t)
}

// TestEventsAreRepeated: what holds is sent again when a resync finds it older than half an hour.
func TestEventsAreRepeated(t *testing.T) {
	inSceneWith(append(teams(2, "team-"), source(), plantest.ConfigMap("team-001", "settings")),
		func(o *Options) { o.ResyncPeriod = 10 * time.Minute }, func(t *testing.T, s scene) {
			time.Sleep(25 * time.Minute)
			s.wantEvents("at first", plan.ReasonForeign, plan.ReasonMirrored)
			time.Sleep(10 * time.Minute)
			s.wantEvents("after the resync behind half an hour", plan.ReasonForeign, plan.ReasonMirrored)
			time.Sleep(20 * time.Minute)
			s.wantEvents("before the next half hour")
			s.edit("platform", data("new"))
			time.Sleep(time.Second)
			s.wantEvents("after an edit", plan.ReasonMirrored)
		})(t)
}

// TestC55NoTargetsIsNotRepeated with each resync, but after half an hour.
func TestC55NoTargetsIsNotRepeated(t *testing.T) {
	edit := func(o *Options) { o.ResyncPeriod = 10 * time.Minute }
	inSceneWith([]runtime.Object{source()}, edit, func(t *testing.T, s scene) {
		time.Sleep(25 * time.Minute)
		s.wantEvents("at first", plan.ReasonNoTargets)
		time.Sleep(10 * time.Minute)
		s.wantEvents("after half an hour", plan.ReasonNoTargets)
	})(t)
}

// TestC11TheNewestCauseIsReported: a target stays rejected, and for another reason: the event says the new one.
func TestC11TheNewestCauseIsReported(t *testing.T) {
	inScene(append(teams(2, "team-"), source()), func(t *testing.T, s scene) {
		for _, cause := range []string{"exceeded quota", "denied by a webhook"} {
			s.refuse(on(rejected(cause), creates, updates))
			if s.countEvents(plan.ReasonWriteFailed) == 0 {
				s.edit("platform", data("new"))
			}
			s.within(2*time.Minute, "event about "+cause, func() bool {
				return strings.Contains(s.lastNote(plan.ReasonWriteFailed), cause)
			})
			time.Sleep(5 * time.Minute) // until all that is due is reported
		}
	})(t)
}

// TestC65SourcesGoneBeforeATakeover: each of two sources of one name was deleted while no controller ran. The deletion
// of the copies of each is announced, within a grace that is shorter than the spacing of events. Case C14.
func TestC65SourcesGoneBeforeATakeover(t *testing.T) {
	objects := append(teams(2, "team-"), plantest.Namespace("shared"))
	for i, owner := range []string{"platform", "shared"} {
		objects = append(objects, plantest.Copy(teamRules(), plantest.Source(owner, "settings"), fmt.Sprintf("team-%03d", i)))
	}
	inSceneWith(objects, func(o *Options) { o.DeletionGrace = 3 * time.Second }, func(t *testing.T, s scene) {
		time.Sleep(time.Minute)
		s.wantNone("team-000")
		s.wantNone("team-001")
		s.wantEventCount(2, plan.ReasonExpiring) // one for the copy of each source
		s.wantLogged("2 copies in 2 namespaces (team-000/settings, team-001/settings) will be deleted",
			`source="gone before this process began to lead" type="Warning" reason="Expiring"`)
	})(t)
}

// TestForeignObjectsThatGo one after the other, or go out of sight without their label, while writes take some time:
// each event says what is in the way, and the last one what has become of all.
func TestForeignObjectsThatGo(t *testing.T) {
	t.Parallel()
	objects := append(teams(300, "team-"), source())
	for i := range 300 {
		objects = append(objects, plantest.ConfigMap(fmt.Sprintf("team-%03d", i), "settings", copyLabel))
	}
	edit := func(o *Options) { o.ConcurrentWrites = 1 }
	for name, tc := range map[string]struct {
		leave    func(scene, string)
		copies   int
		mirrored string
	}{
		"deleted": {func(s scene, ns string) { s.remove(ns) }, 300, "300 namespaces"},
		"unlabelled": {func(s scene, ns string) { s.edit(ns, unlabelled) }, 0,
			"0 namespaces; 300 are blocked (see Foreign)"},
	} {
		t.Run(name, inSceneWith(objects, edit, func(t *testing.T, s scene) {
			time.Sleep(time.Minute)
			s.wantNote(plan.ReasonForeign, "Not copied to 300 namespaces (team-000, ")
			s.slowDown(100 * time.Millisecond)
			for i := range 300 {
				tc.leave(s, fmt.Sprintf("team-%03d", i))
				time.Sleep(10 * time.Millisecond)
			}
			time.Sleep(time.Hour)
			s.wantCopies(tc.copies, "team-", "value")
			s.wantMirrored(tc.mirrored)
		}))
	}
}

// TestC83LongAnnotation: the event about an annotation of a kilobyte begins with what is wrong with it.
func TestC83LongAnnotation(t *testing.T) {
	var names []string
	for i := range 70 {
		names = append(names, fmt.Sprintf("team-project-%02d", i))
	}
	for key, tc := range map[string]struct{ value, want, cause string }{
		plan.RolloutAnnotation: {"kubernetes.io/metadata.name in (" + strings.Join(names, ","), "not a label selector",
			"found '', expected: ',' or ')'"},
		plan.PrefixAnnotation:   {strings.Join(names, ",") + ",Team-project-70", "lower-case letters", "Team-project-70"},
		plan.SelectorAnnotation: {"tier=" + strings.Repeat("x", 1000), "not a label selector", "no more than 63"},
	} {
		objects := append(teams(1, "team-"), source(plantest.Annotation(key, tc.value)))
		t.Run(key, inScene(objects, func(t *testing.T, s scene) {
			time.Sleep(time.Minute)
			got := s.lastNote(plan.ReasonInvalidAnnotation)
			if at := strings.Index(got, tc.want); at < 0 || at > 200 || !strings.Contains(got, tc.cause) {
				t.Errorf("got event %q, want in its beginning %q, and %q", got, tc.want, tc.cause)
			}
			s.edit("platform", plantest.Without(key))
			s.wantCopies(1, "team-", "value")
		}))
	}
}

// TestLinesComeBeforeEvents: the log has all that is reported, also where the API
// server answers no event.
func TestLinesComeBeforeEvents(t *testing.T) {
	inScene(append(teams(2, "team-"), foreignObject()), func(t *testing.T, s scene) {
		s.onEvent(func(Event) error { time.Sleep(requestTimeout); return errAway })
		s.write(source())
		time.Sleep(time.Minute)
		s.wantLogged(`reason="Foreign"`, `reason="Mirrored"`)
	})(t)
}

// TestReportWaitsForTheFirstFanOut: a process takes over, and a namespace that
// has a copy opts out before the first fan-out has met the source. The deletion is
// announced about that source, and not about one that no process has seen.
func TestReportWaitsForTheFirstFanOut(t *testing.T) {
	src := source(prefixes("none"))
	objects := []runtime.Object{plantest.Namespace("team-000"), src, copyOf(source(), "team-000")}
	inScene(objects, func(t *testing.T, s scene) {
		time.Sleep(time.Minute)
		s.wantNone("team-000")
		if got := s.lastEvent(plan.ReasonExpiring); got.UID != src.UID || got.Regarding != settings("platform") {
			t.Errorf("got %+v, want an announcement about the source", got)
		}
	})(t)
}

// TestRefusedEventsHoldUpNoOther: the API server refuses the events of one source. Those of another source of the name
// come at once.
func TestRefusedEventsHoldUpNoOther(t *testing.T) {
	inScene(append(teams(3, "team-"), plantest.Namespace("shared"), source()), func(t *testing.T, s scene) {
		var tries atomic.Int32
		s.onEvent(func(e Event) error {
			if e.Regarding.Namespace == "shared" {
				tries.Add(1)
				return rejected("exceeded quota: count/events")
			}
			return nil
		})
		time.Sleep(time.Minute)
		s.write(sourceIn("shared"))
		time.Sleep(10 * time.Minute)
		s.wantEvents("of the other source", plan.ReasonMirrored, plan.ReasonMirrored) // the second says that one waits
		if n := tries.Load(); n < 8 || n > 12 {
			t.Errorf("got %d tries in ten minutes, want five of each of two messages", n)
		}
		for range 5 {
			before, began := tries.Load(), time.Now()
			for tries.Load() == before && time.Since(began) < 10*time.Minute {
				time.Sleep(10 * time.Millisecond) // until the next try
			}
			s.edit("platform", data("new"))
			time.Sleep(time.Second)
			s.wantEvents("after an edit", plan.ReasonMirrored)
			s.edit("platform", data("newer"))
			time.Sleep(time.Minute)
			s.wantEvents("after the next one", plan.ReasonMirrored)
		}
		s.optOut("team-000")
		time.Sleep(500 * time.Millisecond)
		s.wantEvents("before a deletion", plan.ReasonExpiring, plan.ReasonMirrored)
	})(t)
}

// TestDueSourcesTakeTurns, one at a time in each namespace, and each once.
func TestDueSourcesTakeTurns(t *testing.T) {
	d := stillController(t).reporter.due
	for _, namespace := range []string{"a", "b"} {
		for _, name := range []string{"one", "two", "one", "three"} {
			d.add(key{Namespace: namespace, Name: name})
		}
	}
	var got []string
	for d.namespaces.Len() > 0 {
		namespace, _ := d.namespaces.Get()
		if len(got) == 0 {
			d.add(key{Namespace: namespace, Name: "one"}) // which waits already
		}
		source, ok := d.next(namespace)
		if !ok {
			source.Name = "none"
		}
		got = append(got, namespace+source.Name)
		d.namespaces.Done(namespace)
	}
	if want := "aone bone atwo btwo athree bthree"; strings.Join(got, " ") != want {
		t.Errorf("got turns of %v, want %v", got, want)
	}
	if len(d.byNamespace) > 0 {
		t.Errorf("got %v left", d.byNamespace)
	}
	d.add(settings("c"))
	namespace, _ := d.namespaces.Get()
	d.add(settings("c")) // in this very moment
	if source, ok := d.next(namespace); source != settings("c") || !ok {
		t.Errorf("got %v, %v, want the source", source, ok)
	}
	if source, ok := d.next(namespace); ok {
		t.Errorf("got %v, want none a second time", source)
	}
}

// TestNoMessageAboutAForgottenSource: it was due, and is forgotten meanwhile.
func TestNoMessageAboutAForgottenSource(t *testing.T) {
	if m := stillController(t).reporter.nextMessage(settings("gone"), time.Now()); m != nil {
		t.Errorf("got the message %q", m.Note)
	}
}

// TestNoMessageInAFanOut, nor before a line about deletions: it would count a part of
// the targets. The source is reported soon after.
func TestNoMessageInAFanOut(t *testing.T) {
	for name, tc := range map[string]struct {
		is  func(*nameRecords)
		due bool
	}{
		"nothing goes on":   {func(*nameRecords) {}, true},
		"a fan-out runs":    {func(n *nameRecords) { n.comparing = true }, false},
		"a line is due":     {func(n *nameRecords) { n.announceBy = time.Now() }, false},
		"no fan-out so far": {func(n *nameRecords) { n.view = nil }, false},
	} {
		t.Run(name, func(t *testing.T) {
			src := source()
			c := stillController(t, src)
			n := c.records.lock("settings")
			status := n.status(plan.KeyOf(src))
			status.sent.Begin(src.UID)
			status.counts[plan.StateSynced] = 1
			n.view = c.cache.View("settings")
			tc.is(n)
			n.unlock()
			now := time.Now()
			m := c.reporter.nextMessage(plan.KeyOf(src), now)
			if (m != nil) != tc.due {
				t.Errorf("got the message %v, want one %v", m, tc.due)
			}
			n = c.records.lock("settings")
			defer n.unlock()
			isSoon := n.reportAt.After(now) && n.reportAt.Before(now.Add(reportAfter))
			if isSoon == tc.due {
				t.Errorf("got a report at %v, want one soon %v", n.reportAt, !tc.due)
			}
		})
	}
}

// TestMessageAboutASourceThatIsGone: it is marked as one, and so is tried once.
func TestMessageAboutASourceThatIsGone(t *testing.T) {
	c := stillController(t, copyOf(source(), "team-a"), plantest.Namespace("team-a"))
	n := c.records.lock("settings")
	n.view = &plan.View{}
	n.status(settings("platform")).sent.Begin("1")
	n.set("team-a", record{
		settled:   settled{standing: standing{state: plan.StateExpiring, owner: settings("platform")}},
		unclaimed: unclaimed{uid: "1", why: plan.Unclaimed{Rule: plan.SourceGone}, since: time.Now()},
	})
	n.unlock()
	m := c.reporter.nextMessage(settings("platform"), time.Now())
	if m == nil || m.Reason != plan.ReasonExpiring || !m.isGone || m.uid != "1" {
		t.Errorf("got %+v, want an announcement about a source that is gone", m)
	}
}

// TestNoEventWhereTheNamespaceIsGone, unless it is the cache that is behind.
func TestNoEventWhereTheNamespaceIsGone(t *testing.T) {
	for name, tc := range map[string]struct {
		namespace *corev1.Namespace
		isGone    bool // the source
		sent      bool
	}{
		"both are there":               {plantest.Namespace("platform"), false, true},
		"the source is gone":           {plantest.Namespace("platform"), true, true},
		"both are gone":                {plantest.Namespace("other"), true, false},
		"the namespace is yet to come": {plantest.Namespace("other"), false, true},
		"the namespace is terminating": {plantest.Terminating("platform"), false, false},
	} {
		t.Run(name, func(t *testing.T) {
			c := stillController(t, tc.namespace)
			sent := &diary{}
			c.reporter.events = sent
			news := report.Message{
				Type:        corev1.EventTypeWarning,
				Reason:      "News",
				Note:        "It is so",
				Annotations: map[string]string{"version": "7"},
			}
			m := &message{Message: &news, about: settings("platform"), uid: "1", isGone: tc.isGone}
			if err := c.reporter.send(t.Context(), m); err != nil {
				t.Error(err)
			}
			var want []Event
			if tc.sent {
				want = []Event{{settings("platform"), "1", news.Type, news.Reason, news.Note, news.Annotations}}
			}
			if !reflect.DeepEqual(sent.events, want) {
				t.Errorf("got sent %v, want %v", sent.events, want)
			}
		})
	}
}

// TestWhatASendLeaves is the table of what is known after an event was sent, or was
// refused. One about a source that is gone counts as sent then, and one about a
// source that was created again counts for nothing.
func TestWhatASendLeaves(t *testing.T) {
	now := time.Now()
	summary := &report.Summary{Source: parsed(source()), Rules: teamRules()}
	summary.Counts[plan.StateSynced] = 1
	mirrored := summary.Messages(now)
	gone := &report.Summary{Rules: teamRules()}
	gone.Expire(plan.Unclaimed{Rule: plan.SourceGone}, "team-a", now.Add(time.Hour), false)
	expiring := gone.Messages(now) // it is new, and is due again
	for name, tc := range map[string]struct {
		all      []report.Message // one
		uid      types.UID
		isGone   bool
		err      error
		after    time.Duration
		again    bool
		reported int // lines
	}{
		"sent":              {mirrored, "1", false, nil, time.Minute, false, 3},
		"refused":           {mirrored, "1", false, errAway, time.Minute, true, 3},
		"of a former one":   {mirrored, "0", false, nil, report.Spacing, true, 3},
		"an announcement":   {expiring, "1", false, nil, report.Spacing, true, 5},
		"one, refused":      {expiring, "1", false, rejected("quota"), report.Spacing, false, 3},
		"refused, and gone": {expiring, "1", true, rejected("quota"), report.Spacing, true, 5},
	} {
		t.Run(name, func(t *testing.T) {
			c := stillController(t)
			n := c.records.lock("settings")
			status := n.status(settings("platform"))
			status.sent.Begin("1")
			status.reported = 3
			n.unlock()
			c.reporter.recordSent(&message{
				Message: &tc.all[0],
				about:   settings("platform"),
				uid:     tc.uid,
				sent:    &status.sent,
				isGone:  tc.isGone,
				status:  status,
				lines:   5,
			}, tc.err)
			again, _ := status.sent.Next(tc.all, time.Now().Add(tc.after))
			if (again != nil) != tc.again || status.reported != tc.reported {
				t.Errorf("got it again %v, and %d lines reported, want it again %v, and %d",
					again, status.reported, tc.again, tc.reported)
			}
		})
	}
}

// TestRefusals is the table of what the answer to an event says. Case C84.
func TestRefusals(t *testing.T) {
	for name, tc := range map[string]struct {
		err  error
		want report.Refusal
	}{
		"429, in half a minute": {apierrors.NewTooManyRequests("later", 30), report.Refusal{RetryAfter: 30 * time.Second}},
		"429":                   {apierrors.NewTooManyRequestsError("later"), report.Refusal{}},
		"403":                   {rejected("quota"), report.Refusal{Doubles: true}},
		"no answer":             {errAway, report.Refusal{}},
	} {
		t.Run(name, func(t *testing.T) {
			if got := refusalOf(tc.err); got != tc.want {
				t.Errorf("got %+v, want %+v", got, tc.want)
			}
		})
	}
}
