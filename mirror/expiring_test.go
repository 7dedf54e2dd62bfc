package mirror

// Nothing is deleted in a hurry, nothing happens silently, and copies that the flags rule out stay as they are, unless
// --prune is set.

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/mirror-controller/mirror-controller/mirror/apitest"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
	"github.com/mirror-controller/mirror-controller/mirror/plan/plantest"
)

// withGrace returns a test that runs a controller with a deletion grace, the source platform/settings, and the targets
// team-000 to team-002, which have had their copies for a minute.
func withGrace(grace time.Duration, f func(*testing.T, scene)) func(*testing.T) {
	edit := func(o *Options) { o.DeletionGrace = grace }
	return inSceneWith(append(teams(3, "team-"), source()), edit, func(t *testing.T, s scene) {
		time.Sleep(time.Minute)
		f(t, s)
	})
}

// copyUIDs returns the UIDs of the ConfigMaps settings in team-*, by namespace.
func (s scene) copyUIDs() map[string]types.UID {
	uids := map[string]types.UID{}
	for _, cm := range s.ConfigMaps.All() {
		if strings.HasPrefix(cm.Namespace, "team-") {
			uids[cm.Namespace] = cm.UID
		}
	}
	return uids
}

// TestC52Expiring: each way by which copies lose their source is said, before the copies are deleted if the grace is
// long, and the advice keeps them.
func TestC52Expiring(t *testing.T) {
	edit := func(edits ...plantest.Option) func(scene) { return func(s scene) { s.edit("platform", edits...) } }
	for name, tc := range map[string]struct {
		lose, keep func(scene)
		expiring   float64  // copies
		want       []string // parts of the event
	}{
		"deleted": {func(s scene) { s.remove("platform") }, func(s scene) { s.write(source()) }, 3,
			[]string{"3 copies in 3 namespaces (team-000, team-001, team-002)",
				"the source is deleted, or has lost its label mirror=true", "create the source again"}},
		"unlabelled": {edit(unlabelled), edit(plantest.Label("mirror", "true")), 3,
			[]string{"3 copies", "has lost its label mirror=true", "label it again"}},
		"narrowed by a typing error": {edit(prefixes("tema-")), edit(noRules...), 3,
			[]string{"3 copies", plan.PrefixAnnotation + `="tema-" rules the namespace out`, "correct the annotation"}},
		"selector": {edit(selector("tier=gold")), edit(noRules...), 3,
			[]string{"3 copies", plan.SelectorAnnotation + `="tier=gold" does not match the namespace`,
				"correct the annotation namespace-selector, or the labels"}},
		"opted out": {func(s scene) { s.optOut("team-000") }, func(s scene) { s.setNamespace("team-000") }, 1,
			[]string{"1 copy in namespace team-000", "has the label mirror=false", "remove that label"}},
	} {
		t.Run(name, withGrace(5*time.Minute, func(t *testing.T, s scene) {
			before := s.copyUIDs()
			tc.lose(s)
			time.Sleep(reportDelay)
			s.wantNote(plan.ReasonExpiring, append(tc.want, "will be deleted from 2000-01-01 00:06:00 UTC on", "To keep ")...)
			s.wantLogged(`source="platform/settings" type="Warning" reason="Expiring"`)
			s.wantEventCount(1, plan.ReasonExpiring)
			s.wantMetric(tc.expiring, "mirror_copies", "expiring")
			writes := s.countWrites("")
			s.edit("team-000", data("edited"))
			time.Sleep(4 * time.Minute)
			s.wantWrites(writes, "") // nobody restores a copy that expires
			tc.keep(s)
			time.Sleep(time.Hour)
			if after := s.copyUIDs(); !maps.Equal(after, before) {
				t.Errorf("got copies %v, want those of before, %v", after, before)
			}
			s.wantEventCount(1, plan.ReasonExpiring)
			s.wantMetric(0, "mirror_copies", "expiring")
			tc.lose(s)
			time.Sleep(5*time.Minute - time.Second)
			s.wantCopies(3, "team-", "value")
			time.Sleep(10 * time.Second)
			s.wantNone("team-000")
		}))
	}
}

// TestC52ClockThatIsSet does not shorten a grace: its begin keeps the reading of the monotonic clock, and so does the
// time by which each decision goes.
func TestC52ClockThatIsSet(t *testing.T) {
	c := stillController(t, copyOf(source(), "team-000")) // not in virtual time, which has no such reading
	wantMonotonic := func(what string, at func(*nameRecords) time.Time) {
		t.Helper()
		n := c.records.lock("settings")
		defer n.unlock()
		if at := at(n); at.IsZero() || at == at.Round(0) {
			t.Errorf("got %v as %s, want a monotonic reading", at, what)
		}
	}
	c.fanOut("settings")
	wantMonotonic("time of a decision", func(n *nameRecords) time.Time { return n.announceBy.Add(-announceWithin) })
	c.reporter.announce(t.Context())
	wantMonotonic("begin of a grace", func(n *nameRecords) time.Time { return n.byNamespace["team-000"].unclaimed.since })
}

// TestC52EditsAreNoClaim: a source that is edited all the time, and does not select the namespaces, keeps no copy
// there.
func TestC52EditsAreNoClaim(t *testing.T) {
	edit := func(o *Options) { o.DeletionGrace, o.ConcurrentWrites = time.Minute, 1 }
	inSceneWith(append(teams(30, "team-"), source()), edit, func(t *testing.T, s scene) {
		time.Sleep(time.Minute)
		s.wantCopies(30, "team-", "value")
		s.delay(func(c apitest.Call) time.Duration {
			return map[string]time.Duration{"get": 250 * time.Millisecond, "delete": 25 * time.Millisecond}[c.Verb]
		})
		s.edit("platform", prefixes("tema-"))
		for i := range 5 * 100 {
			s.edit("platform", plantest.Data("edit", fmt.Sprint(i)))
			time.Sleep(200 * time.Millisecond)
		}
		s.wantCopies(0, "team-", "value") // forty seconds after the grace: a read takes longer than an edit stands
	})(t)
}

// TestC65AnnouncementWaitsForNoQueue: an edit that narrows and changes the content queues hundreds of updates. The
// copies that expire are announced before these.
func TestC65AnnouncementWaitsForNoQueue(t *testing.T) {
	t.Parallel()
	edit := func(o *Options) { o.NamespacePrefixes, o.ConcurrentWrites = []string{"team-", "gone-"}, 1 }
	objects := slices.Concat(teams(500, "team-"), teams(1, "gone-"))
	inSceneWith(append(objects, source()), edit, func(t *testing.T, s scene) {
		time.Sleep(time.Minute)
		s.slowDown(20 * time.Millisecond)
		s.edit("platform", data("new"), prefixes("team-"))
		time.Sleep(2 * reportDelay)
		s.wantNote(plan.ReasonExpiring, "1 copy in namespace gone-000 will be deleted")
	})(t)
}

// TestC65AnnouncementDuringAFanOut: a fan-out that runs when an announcement is due holds it up, and for no longer than
// it takes, although a target hangs.
func TestC65AnnouncementDuringAFanOut(t *testing.T) {
	withGrace(9*time.Second, func(t *testing.T, s scene) {
		s.hang(func(c apitest.Call) bool { return c.IsWrite() && c.Namespace == "team-000" })
		s.edit("team-000", data("spoilt"))
		s.beginFanOut()
		s.optOut("team-002")
		time.Sleep(2 * reportDelay)
		s.wantMetric(1, "mirror_copies", "expiring")
		s.wantEventCount(0, plan.ReasonExpiring) // it may count a part of the copies
		if n := s.countAnnouncements(); n != 0 {
			t.Errorf("got %d lines during the fan-out, want none", n)
		}
		s.controller.queues.sources.Add("settings") // the end of this one ends both
		s.within(time.Second, "announcement", func() bool { return s.countEvents(plan.ReasonExpiring) > 0 })
	})(t)
}

// beginFanOut has a fan-out of settings begin, which takes until the end of the next one.
func (s scene) beginFanOut() {
	s.t.Helper()
	time.Sleep(fanOutGap)
	synctest.Wait()
	if _, wait := s.controller.beginFanOut("settings"); wait > 0 {
		s.t.Fatalf("got a fan-out that begins in %v, want it now", wait)
	}
}

// TestC65LineDuringALongFanOut: a line does not wait for a fan-out that takes longer than a second, and says that it
// does not count all copies.
func TestC65LineDuringALongFanOut(t *testing.T) {
	withGrace(time.Minute, func(t *testing.T, s scene) {
		s.beginFanOut()
		s.optOut("team-000")
		time.Sleep(announceWithin / 2)
		s.optOut("team-001") // does not postpone the line
		s.within(announceWithin/2+2*reportDelay, "line", func() bool { return s.countAnnouncements() == 1 })
		s.wantLogged("At least 2 copies in 2 namespaces (team-000, team-001) will be deleted")
		time.Sleep(announceWithin)
		s.wantEventCount(0, plan.ReasonExpiring) // a message counts all of them
		s.controller.queues.sources.Add("settings")
		s.within(time.Second, "event", func() bool { return s.countEvents(plan.ReasonExpiring) == 1 })
	})(t)
}

// TestC65AnnouncementIsTheFirstEvent: each event takes ten seconds, and several are due about one source. That about
// deletions goes before the others.
func TestC65AnnouncementIsTheFirstEvent(t *testing.T) {
	withGrace(5*time.Minute, func(t *testing.T, s scene) {
		var mu sync.Mutex
		var reasons []string
		s.onEvent(func(e Event) error {
			mu.Lock()
			reasons = append(reasons, e.Reason)
			mu.Unlock()
			time.Sleep(10 * time.Second)
			return nil
		})
		s.edit("platform", data("new"))
		time.Sleep(time.Second) // until the first event is on its way
		s.edit("team-001", disowned)
		s.optOut("team-002")
		time.Sleep(time.Minute)
		mu.Lock()
		defer mu.Unlock()
		want := []string{plan.ReasonMirrored, plan.ReasonExpiring, plan.ReasonForeign}
		if len(reasons) < len(want) || !slices.Equal(reasons[:len(want)], want) {
			t.Errorf("got events %v, want these first: %v", reasons, want)
		}
	})(t)
}

// TestC65LateEventOfOurCopy: a source goes before the watch shows the copies of it, which then expire at once and not a
// minute later.
func TestC65LateEventOfOurCopy(t *testing.T) {
	inScene(teams(2, "team-"), func(t *testing.T, s scene) {
		s.Hook(func(h *apitest.Hooks) { h.Lags = func(string) time.Duration { return 2 * time.Second } })
		s.slowDown(50 * time.Millisecond)
		s.write(source())
		time.Sleep(20 * time.Millisecond)
		s.remove("platform")
		time.Sleep(8 * time.Second)
		s.wantNone("team-000")
		s.wantNote(plan.ReasonExpiring, "will be deleted")
	})(t)
}

// TestC65RefusedDeletion is announced once, and reported no more after the first minute, however often it is tried
// again. A copy whose deletion goes without an answer is not announced again beside the next one.
func TestC65RefusedDeletion(t *testing.T) {
	t.Run("refused", withGrace(2*time.Second, func(t *testing.T, s scene) {
		s.slowDown(5 * time.Millisecond)
		s.refuse(on(rejected("exceeded quota"), deletes))
		s.edit("platform", prefixes("none"))
		time.Sleep(time.Minute)
		s.wantNote(plan.ReasonWriteFailed, "Out of sync in 3 namespaces ")
		first := s.countEvents(plan.ReasonWriteFailed)
		if first > 3 {
			t.Errorf("got %d events %s in a minute, want few", first, plan.ReasonWriteFailed)
		}
		time.Sleep(time.Hour)
		s.wantEventCount(1, plan.ReasonExpiring)
		s.wantEventCount(first, plan.ReasonWriteFailed)
	}))
	t.Run("no answer", withGrace(2*time.Second, func(t *testing.T, s scene) {
		s.refuse(on(errAway, deletes))
		for _, namespace := range []string{"team-000", "team-001"} {
			s.optOut(namespace)
			time.Sleep(time.Minute)
			s.wantNote(plan.ReasonExpiring, "1 copy in namespace "+namespace)
		}
	}))
}

// TestC55NoTargets: a source that reaches no namespace says so, and why. A namespace more is no news.
func TestC55NoTargets(t *testing.T) {
	withGrace(time.Second, func(t *testing.T, s scene) {
		s.addNamespace("other")
		s.optOut("team-000")
		time.Sleep(time.Minute)
		s.wantEventCount(0, plan.ReasonNoTargets) // it has targets
		s.edit("platform", prefixes("team-000, tema-"))
		time.Sleep(time.Minute)
		s.wantNote(plan.ReasonNoTargets, "Version "+s.version()+" is not mirrored, because no namespace is a target: "+
			`each that the flags allow is excluded: the source's annotation `+
			`mirror-controller.github.io/namespace-prefix="team-000, tema-" rules the namespace out, `+
			"or the namespace has the label mirror=false. "+
			"To mirror the source, correct the annotation namespace-prefix, or remove that label.")
		s.addNamespace("team-003")
		time.Sleep(time.Minute)
		s.setNamespace("team-000")
		time.Sleep(time.Minute)
		s.wantCopy("team-000", "value")
		s.wantEventCount(2, plan.ReasonNoTargets) // while copies expire, and after that
		s.wantMirrored("1 namespace")
	})(t)
}

// TestC73NothingIsATarget: an event and the log say once that the flags allow no namespace. The log has the type of
// each event, so that a filter finds the warnings.
func TestC73NothingIsATarget(t *testing.T) {
	edit := func(o *Options) { o.NamespacePrefixes = []string{"teem-"} }
	inSceneWith(append(teams(2, "team-"), source()), edit, func(t *testing.T, s scene) {
		for i := range 10 {
			time.Sleep(time.Minute)
			s.addNamespace(fmt.Sprintf("team-new-%d", i))
		}
		time.Sleep(time.Hour)
		const why = "no namespace begins with teem-"
		s.wantEventCount(1, plan.ReasonNoTargets)
		s.wantNote(plan.ReasonNoTargets, why)
		s.wantLogged("No namespace is a target: "+why, `type="Warning" reason="NoTargets"`)
		s.addNamespace("teem-000")
		s.wantCopies(1, "teem-", "value")
	})(t)
}

// TestC52HangingTargetHidesNothing: while one target of a source hangs, copies of the source that expire are announced
// in time.
func TestC52HangingTargetHidesNothing(t *testing.T) {
	for name, lose := range map[string]func(scene){
		"an edit that hangs": func(s scene) { s.edit("platform", data("new"), prefixes("team-002")) },
		"a repair that hangs": func(s scene) {
			s.edit("team-002", data("edited"))
			time.Sleep(time.Second)
			s.optOut("team-000")
		},
	} {
		t.Run(name, withGrace(12*time.Second, func(t *testing.T, s scene) {
			s.hang(on(true, apitest.Call{Verb: "update", Namespace: "team-002"}))
			lose(s)
			time.Sleep(reportAfter + reportDelay)
			s.wantNote(plan.ReasonExpiring, "team-000", "will be deleted")
		}))
	}
}

// TestC65Remedy: all namespaces opt out and in again, while one slow worker makes new copies. Nothing more is
// announced.
func TestC65Remedy(t *testing.T) {
	t.Parallel()
	objects := append(teams(200, "team-"), source(), plantest.Source("platform", "other"))
	edit := func(o *Options) { o.DeletionGrace, o.ConcurrentWrites = 5*time.Minute, 1 }
	for name, byRelist := range map[string]bool{"by a relist": true, "one by one": false} {
		t.Run(name, inSceneWith(objects, edit, func(t *testing.T, s scene) {
			time.Sleep(time.Minute)
			for i := range 200 {
				s.optOut(fmt.Sprintf("team-%03d", i))
			}
			time.Sleep(time.Minute)
			s.wantNote(plan.ReasonExpiring, "200 copies in 200 namespaces")
			s.slowDown(90 * time.Millisecond)
			before := s.countEvents(plan.ReasonExpiring)
			s.addNamespace("team-new") // two copies to make
			synctest.Wait()
			s.lose(func(resource, _ string) bool { return byRelist && resource == "namespaces" })
			for i := range 200 {
				s.setNamespace(fmt.Sprintf("team-%03d", i))
				time.Sleep(10 * time.Millisecond)
			}
			s.lose(func(string, string) bool { return false })
			for i := range 100 {
				s.addNamespace(fmt.Sprintf("team-new-%d", i)) // the worker is busy when the relist comes
			}
			s.Namespaces.Expire()
			time.Sleep(2 * time.Minute)
			s.wantEventCount(before, plan.ReasonExpiring)
			s.wantMetric(2*(200+1+100), "mirror_copies", "synced")
		}))
	}
}

// TestC47ForgedSourcesOfCopies: a tenant has five ConfigMaps with the marks of copies, and has their source annotations
// name another namespace ten times a second. Announcements about sources that do not exist stay few, and a true one
// comes in time.
func TestC47ForgedSourcesOfCopies(t *testing.T) {
	const forged = 5
	edit := func(o *Options) { o.DeletionGrace = 5 * time.Minute }
	inSceneWith(append(teams(200, "team-"), source()), edit, func(t *testing.T, s scene) {
		time.Sleep(time.Minute)
		events, lines := s.countEvents(plan.ReasonExpiring), s.countAnnouncements()
		for n := range 150 { // fifteen seconds
			for i := range forged {
				of := plantest.Source(fmt.Sprintf("team-%03d", n), fmt.Sprintf("forged-%d", i))
				s.write(copyOf(of, "team-199"))
			}
			time.Sleep(100 * time.Millisecond)
		}
		if n := s.countEvents(plan.ReasonExpiring) - events; n == 0 || n > 3*forged {
			t.Errorf("got %d announcements, want one in ten seconds for each name", n)
		}
		if n := s.countAnnouncements() - lines; n == 0 || n > 2 {
			t.Errorf("got %d lines, want one that all names share", n)
		}
		s.optOut("team-000")
		s.within(time.Second, "announcement of a copy of platform/settings", func() bool {
			return slices.ContainsFunc(s.eventsOf(plan.ReasonExpiring),
				func(e Event) bool { return strings.HasPrefix(e.Note, "1 copy in namespace team-000 ") })
		})
	})(t)
}

// TestExpiringEndsWithItsCopies: while copies wait for their deletion beyond the grace, Mirrored counts them. The last
// Mirrored does not.
func TestExpiringEndsWithItsCopies(t *testing.T) {
	withGrace(time.Minute, func(t *testing.T, s scene) {
		s.refuse(on(errAway, deletes))
		s.edit("platform", prefixes("team-000"))
		time.Sleep(2 * time.Minute)
		s.edit("platform", data("new"))
		time.Sleep(time.Minute)
		s.wantMirrored("1 namespace; 2 copies expire (see Expiring)")
		s.refuse(on[error](nil))
		time.Sleep(2 * time.Minute)
		s.wantMirrored("1 namespace")
	})(t)
}

// TestC65EachReasonHasItsTime: one namespace opts out, and later all copies lose their source. Each reason that holds
// has one sentence, with the time of its first copy.
func TestC65EachReasonHasItsTime(t *testing.T) {
	const from = " will be deleted from 2000-01-01 00:"
	for name, tc := range map[string]struct {
		lose func(scene)
		want []string
	}{
		"the source is narrowed": {func(s scene) { s.edit("platform", prefixes("tema-")) },
			[]string{"1 copy in namespace team-000" + from + "06:00 UTC on",
				"2 copies in 2 namespaces (team-001, team-002)" + from + "10:00 UTC on"}},
		"the source goes": {func(s scene) { s.remove("platform") },
			[]string{"3 copies in 3 namespaces (team-000, team-001, team-002)" + from +
				"06:00 UTC on, the last from 2000-01-01 00:10:00 UTC on: the source is deleted"}},
		"the source goes, and selects no namespace when it returns": {func(s scene) {
			s.remove("platform")
			time.Sleep(15 * time.Second)
			s.write(source(prefixes("tema-")))
		}, []string{"3 copies in 3 namespaces (team-000, team-001, team-002)" + from +
			"06:00 UTC on, the last from 2000-01-01 00:10:00 UTC on: the source's annotation"}},
	} {
		t.Run(name, withGrace(5*time.Minute, func(t *testing.T, s scene) {
			s.optOut("team-000")
			time.Sleep(4 * time.Minute)
			tc.lose(s)
			time.Sleep(15 * time.Second)
			s.wantNote(plan.ReasonExpiring, tc.want...)
		}))
	}
}

// TestC17NarrowedFlags starts a controller whose flags have a typing error: nothing is deleted or rewritten, and each
// source's ConfigMap has one Warning. With --prune the same copies go after the grace. Cases C14 and C56.
func TestC17NarrowedFlags(t *testing.T) {
	t.Parallel()
	for why, narrow := range map[string]func(*Options){
		"--namespace-prefix does not allow the namespace":   func(o *Options) { o.NamespacePrefixes = []string{"tema-"} },
		"--exclude-namespace names the namespace":           func(o *Options) { o.ExcludeNamespaces = []string{"team-*"} },
		"--source-namespace does not allow the source":      func(o *Options) { o.SourceNamespaces = []string{"platfrom"} },
		"--namespace-selector does not match the namespace": func(o *Options) { o.NamespaceSelector = "tier" },
	} {
		for _, n := range []int{3, 300} {
			objects := append(teams(n, "team-"), source(), copyOf(source(), "team-000", data("edited")))
			for i := 1; i < n; i++ {
				objects = append(objects, copyOf(source(), fmt.Sprintf("team-%03d", i)))
			}
			for _, prune := range []bool{false, true} {
				edit := func(o *Options) {
					narrow(o)
					o.Prune, o.DeletionGrace, o.ResyncPeriod = prune, time.Minute, 2*time.Hour
				}
				name := fmt.Sprintf("%s, %d copies, prune %v", why, n, prune)
				t.Run(name, inSceneWith(objects, edit, func(t *testing.T, s scene) {
					time.Sleep(59 * time.Second)
					s.wantWrites(0, "") // within the grace
					time.Sleep(time.Hour)
					if prune {
						s.wantNone("team-000")
						return
					}
					s.wantWrites(0, "")
					s.wantNote(plan.ReasonOutOfScope, fmt.Sprintf("Copies in %d namespaces (team-000", n), why)
					s.wantEventCount(1, plan.ReasonOutOfScope)
					s.wantMetric(float64(n), "mirror_copies", "out_of_scope")
				}))
			}
		}
	}
}

// TestC65ScopeComesBack: 300 namespaces lose the label of --namespace-selector, and get it back one after the other.
// Their copies stay. No event says of a copy in scope that it is not, or it would list nothing.
func TestC65ScopeComesBack(t *testing.T) {
	t.Parallel()
	edit := func(o *Options) { o.NamespaceSelector, o.ConcurrentWrites = "tier=gold", 1 }
	inSceneWith(append(teams(300, "team-"), source()), edit, func(t *testing.T, s scene) {
		s.slowDown(50 * time.Millisecond) // copies in scope again wait for their update
		value := ""
		for i, step := range [][]string{{"tier", "gold"}, nil, {"tier", "gold"}} {
			if step != nil {
				value = fmt.Sprint(i)
				s.edit("platform", data(value))
			}
			for i := range 300 {
				s.setNamespace(fmt.Sprintf("team-%03d", i), step...)
			}
			time.Sleep(time.Minute)
			state := map[bool]string{true: "out_of_scope", false: "synced"}[step == nil]
			s.wantMetric(300, "mirror_copies", state)
			s.wantCopies(300, "team-", value)
		}
		s.wantEventCount(1, plan.ReasonOutOfScope) // while they have no label
	})(t)
}
