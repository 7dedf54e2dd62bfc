package mirror

// A line of the log announces each deletion before it, whatever becomes of the
// events.

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mirror-controller/mirror-controller/mirror/apitest"
	"github.com/mirror-controller/mirror-controller/mirror/internal/outcome"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
	"github.com/mirror-controller/mirror-controller/mirror/plan/plantest"
)

// silentDeletions returns a function that returns the deletions, from now on,
// that no line of the log had announced when they began.
func (s scene) silentDeletions() func() []string {
	var mu sync.Mutex
	var silent []string
	s.beforeCall(func(c apitest.Call) {
		if c.Verb != "delete" || s.isAnnounced(c.Namespace) {
			return
		}
		mu.Lock()
		defer mu.Unlock()
		silent = append(silent, fmt.Sprint(c.Namespace, " at ", time.Now().Format(time.TimeOnly)))
	})
	return func() []string {
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		return silent
	}
}

// countAnnouncements returns the number of lines of the log that announce deletions.
func (s scene) countAnnouncements() int {
	return strings.Count(s.log(), fmt.Sprintf("reason=%q", plan.ReasonExpiring))
}

// isAnnounced reports whether a line of the log has announced the deletion of
// the copy in a namespace.
func (s scene) isAnnounced(namespace string) bool {
	for line := range strings.Lines(s.log()) {
		isExpiring := strings.Contains(line, fmt.Sprintf("reason=%q", plan.ReasonExpiring))
		if isExpiring && strings.Contains(line, namespace) {
			return true
		}
	}
	return false
}

// TestC84LineBehindAnEventOfItsSource: an event about the source is on its
// way for seconds, as behind a webhook that is slow. A namespace opts out
// meanwhile.
func TestC84LineBehindAnEventOfItsSource(t *testing.T) {
	for _, takes := range []time.Duration{3 * time.Second, 10 * time.Second} {
		t.Run(takes.String(), withGrace(time.Second, func(t *testing.T, s scene) {
			silent := s.silentDeletions()
			s.onEvent(func(Event) error { time.Sleep(takes); return nil })
			s.edit("platform", data("new")) // Mirrored follows
			time.Sleep(500 * time.Millisecond)
			s.optOut("team-000")
			time.Sleep(5 * time.Minute)
			s.wantNone("team-000")
			if all := silent(); len(all) > 0 {
				t.Errorf("got deletions without a line before: %v", all)
			}
			if !s.isAnnounced("team-000") {
				t.Errorf("got no line about the deletion at all")
			}
		}))
	}
}

// TestC84LineBehindOtherSources: each event takes ten seconds, as behind a
// webhook that times out and is ignored. 200 sources change, and after them a
// source is narrowed by a typing error. Their events take longer than the
// grace.
func TestC84LineBehindOtherSources(t *testing.T) {
	t.Parallel()
	const others = 200
	objects := append(teams(3, "team-"), source())
	for i := range others {
		objects = append(objects, plantest.Source("platform", fmt.Sprintf("other-%03d", i)))
	}
	edit := func(o *Options) { o.DeletionGrace = 5 * time.Minute }
	inSceneWith(objects, edit, func(t *testing.T, s scene) {
		time.Sleep(time.Minute)
		s.wantCopies(3, "team-", "value")
		silent := s.silentDeletions()
		s.onEvent(func(Event) error { time.Sleep(10 * time.Second); return nil })
		for i := range others {
			other := s.at(key{Namespace: "platform", Name: fmt.Sprintf("other-%03d", i)})
			s.check(s.update(other, data("new")))
		}
		time.Sleep(time.Second)
		s.edit("platform", prefixes("tema-"))
		time.Sleep(20 * time.Minute)
		s.wantCopies(0, "team-", "value")
		if all := silent(); len(all) > 0 {
			t.Errorf("got deletions without a line before: %v", all)
		}
	})(t)
}

// TestC84LineWhileEventsAreRefused: the API server refuses events, by a
// quota or for want of a permission. Namespaces opt out one after the other.
// The lines come as soon as if it took the events.
func TestC84LineWhileEventsAreRefused(t *testing.T) {
	for name, tc := range map[string]struct{ grace, between time.Duration }{
		"a grace of a second":      {time.Second, 1200 * time.Millisecond},
		"a grace of half a minute": {30 * time.Second, 31 * time.Second},
		"a grace of five minutes":  {5 * time.Minute, 125 * time.Second},
	} {
		edit := func(o *Options) { o.DeletionGrace = tc.grace }
		objects := append(teams(9, "team-"), source())
		t.Run(name, inSceneWith(objects, edit, func(t *testing.T, s scene) {
			time.Sleep(time.Minute)
			silent := s.silentDeletions()
			s.onEvent(func(Event) error { return rejected("events is forbidden") })
			for i := range 8 {
				s.optOut(fmt.Sprintf("team-%03d", i))
				time.Sleep(tc.between)
			}
			time.Sleep(time.Hour)
			s.wantCopies(1, "team-", "value")
			if all := silent(); len(all) > 0 {
				t.Errorf("got deletions without a line before: %v", all)
			}
		}))
	}
}

// TestC84LinesOfASource: eight namespaces opt out each second. The source has a line a
// second, which names them all.
func TestC84LinesOfASource(t *testing.T) {
	const optOuts = 40
	edit := func(o *Options) { o.DeletionGrace = 5 * time.Second }
	inSceneWith(append(teams(optOuts+1, "team-"), source()), edit, func(t *testing.T, s scene) {
		time.Sleep(time.Minute)
		silent := s.silentDeletions()
		for i := range optOuts {
			s.optOut(fmt.Sprintf("team-%03d", i))
			time.Sleep(time.Second / 8)
		}
		time.Sleep(time.Minute)
		s.wantCopies(1, "team-", "value")
		if n := s.countAnnouncements(); n == 0 || n > 7 {
			t.Errorf("got %d lines in five seconds, want one a second", n)
		}
		if all := silent(); len(all) > 0 {
			t.Errorf("got deletions without a line before: %v", all)
		}
	})(t)
}

// TestC84LineAfterAFanOut: the line about copies that a source has given up waits
// for the fan-out that finds them, and hardly longer.
func TestC84LineAfterAFanOut(t *testing.T) {
	withGrace(time.Minute, func(t *testing.T, s scene) {
		time.Sleep(time.Hour)
		s.edit("platform", prefixes("team-000"))
		time.Sleep(linesDelay)
		synctest.Wait()
		if !s.isAnnounced("team-001") || !s.isAnnounced("team-002") {
			t.Errorf("got no line about two copies at the end of the fan-out:\n%s", s.log())
		}
	})(t)
}

// TestC84LineNamesTen namespaces, and counts all, of each source apart.
func TestC84LineNamesTen(t *testing.T) {
	objects := append(teams(12, "team-"), source(), plantest.Source("platform", "other"))
	inSceneWith(objects, func(o *Options) { o.DeletionGrace = time.Minute }, func(t *testing.T, s scene) {
		time.Sleep(time.Hour)
		s.remove("platform")
		other := key{Namespace: "platform", Name: "other"}
		s.check(s.update(s.at(other), prefixes("team-00")))
		time.Sleep(time.Second)
		s.wantLogged(
			`INFO 12 copies in 12 namespaces (team-000, team-001, team-002, team-003, team-004, `+
				`team-005, team-006, team-007, team-008, team-009 and 2 more) will be deleted from 2000-01-01 01:01:`,
			`INFO 2 copies in 2 namespaces (team-010, team-011) will be deleted from 2000-01-01 01:01:`)
	})(t)
}

// TestC84CopiesThatALineCounts is the table of them, at a target of a source that no
// process has seen. The line says if the fan-out of one of its names still runs.
func TestC84CopiesThatALineCounts(t *testing.T) {
	expiring := standing{state: plan.StateExpiring, owner: settings("platform")}
	since := time.Unix(5000, 0)
	for name, tc := range map[string]struct {
		stands  standing
		known   unclaimed
		running bool // the fan-out
		want    string
	}{
		"new": {expiring, unclaimed{uid: "1"}, false,
			"1 copy in namespace team-a/settings will be deleted from " + clock(since.Add(time.Minute))},
		"new, while the fan-out runs": {expiring, unclaimed{uid: "1"}, true, "At least 1 copy in "},
		"for another reason": {expiring, unclaimed{uid: "1", since: since.Add(-time.Second)}, false,
			"1 copy in namespace team-a/settings will be deleted from " + clock(since.Add(59*time.Second))},
		"counted before":        {expiring, unclaimed{uid: "1", since: since, line: 1}, false, ""},
		"the grace has ended":   {expiring, unclaimed{}, false, ""},
		"our deletion is on it": {standing{}, unclaimed{uid: "1"}, false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			c := stillController(t)
			c.reporter.grace = time.Minute
			lines := map[key]*announcement{}
			for _, name := range []string{"settings", "other"} { // of which the other is complete
				n := c.records.lock(name)
				n.announceBy = since
				if name == "settings" {
					n.comparing = tc.running
					known := record{unclaimed: tc.known}
					known.standing = tc.stands
					n.set("team-a", known)
				} else {
					n.set("team-b", record{
						settled:   settled{standing: expiring},
						unclaimed: unclaimed{uid: "2", why: plan.Unclaimed{Rule: plan.ExcludedByOptOut}},
					})
				}
				c.reporter.countNew(n, lines, since)
				n.unlock()
			}
			line := lines[key{}]
			got := line.Text(c.rules, namedInLines, line.isIncomplete)
			isCounted := strings.Contains(got, "team-a/settings")
			if !strings.Contains(got, tc.want) || isCounted != (tc.want != "") {
				t.Errorf("got the line %q, want in it %q", got, tc.want)
			}
			if !strings.Contains(got, "team-b/other") || strings.Contains(got, "t least") != tc.running {
				t.Errorf("got the line %q, incomplete %v, want the other name in it", got, tc.running)
			}
		})
	}
}

// clock returns a time as lines have it.
func clock(at time.Time) string { return at.UTC().Format(time.DateTime) }

// TestC84GraceOfCountedCopies: while a line is written, a copy is claimed or is to be
// deleted for another reason. Its grace does not begin.
func TestC84GraceOfCountedCopies(t *testing.T) {
	have := copyOf(source(), "team-000")
	counted := unclaimed{uid: have.UID}
	for name, tc := range map[string]struct {
		now    unclaimed
		begins bool
	}{
		"as it was counted": {counted, true},
		"claimed":           {unclaimed{}, false},
		"another object":    {unclaimed{uid: "another"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			c := stillController(t, have)
			n := c.records.lock("settings")
			defer n.unlock()
			n.set("team-000", record{unclaimed: tc.now})
			c.reporter.beginGraces(n, map[string]unclaimed{"team-000": counted})
			known := n.byNamespace["team-000"]
			if begins := known != nil && !known.unclaimed.since.IsZero(); begins != tc.begins {
				t.Errorf("got a grace that begins: %v, want %v", begins, tc.begins)
			}
		})
	}
}

// TestC84LateClaim: the answer to a live read shows a claim. It begins a grace anew
// that has begun before, and no other: a line does that.
func TestC84LateClaim(t *testing.T) {
	began := time.Unix(5000, 0)
	for name, tc := range map[string]struct{ since, want time.Time }{
		"begun before":  {began.Add(-time.Second), began},
		"begun later":   {began.Add(time.Second), began.Add(time.Second)},
		"not begun yet": {time.Time{}, time.Time{}},
	} {
		t.Run(name, func(t *testing.T) {
			have := copyOf(source(), "team-000")
			c := stillController(t, have)
			n := c.records.lock("settings")
			defer n.unlock()
			known := record{unclaimed: unclaimed{uid: have.UID, since: tc.since}}
			change := plan.Change{Op: plan.OpDelete, Key: plan.KeyOf(have), Have: have}
			res := &result{change: change, outcome: outcome.Claimed, claimedAt: began}
			c.reconciler.recordResult(n, &known, &attempt{}, res, began.Add(time.Minute))
			if got := known.unclaimed.since; !got.Equal(tc.want) {
				t.Errorf("got a grace since %v, want %v", got, tc.want)
			}
		})
	}
}

// TestC86RecreatedDuringASend: an event about a source takes long, and the source
// is created again meanwhile. The new one has its own events, which keep to the
// spacing of those before.
func TestC86RecreatedDuringASend(t *testing.T) {
	inScene(append(teams(2, "team-"), foreignObject()), func(t *testing.T, s scene) {
		s.onEvent(func(Event) error { time.Sleep(8 * time.Second); return nil })
		s.write(source())
		time.Sleep(2 * time.Second)
		s.remove("platform")
		s.write(source())
		time.Sleep(18 * time.Second)
		s.wantEventCount(1, plan.ReasonForeign) // the next one begins ten seconds after the end of the first
		time.Sleep(5 * time.Minute)
		uid := s.get("platform").UID
		for _, reason := range []string{plan.ReasonForeign, plan.ReasonMirrored} {
			if got := s.lastEvent(reason); got.UID != uid {
				t.Errorf("got %+v, want an event %s about the new source, %s", got, reason, uid)
			}
		}
	})(t)
}
