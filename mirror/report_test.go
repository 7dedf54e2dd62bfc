package mirror

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/mirror-controller/mirror-controller/mirror/internal/report"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
	"github.com/mirror-controller/mirror-controller/mirror/plan/plantest"
)

// TestSourceThatIsGoneIsForgotten when all its messages may be sent again: one that
// is created anew keeps to their spacing. One that is there is not forgotten.
func TestSourceThatIsGoneIsForgotten(t *testing.T) {
	now := time.Now()
	for name, tc := range map[string]struct {
		isThere   bool
		copies    int
		sent      time.Duration // before the report
		forgotten bool
		again     bool // it is reported again
	}{
		"a message was sent just now":      {false, 0, time.Second, false, true},
		"a message may be sent again":      {false, 0, report.Spacing, true, false},
		"a copy is left":                   {false, 1, report.Spacing, false, false},
		"it is there, and has no target":   {true, 0, report.Spacing, false, false},
		"a message was sent a moment less": {false, 0, report.Spacing - 1, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			c := stillController(t)
			n := c.records.lock("settings")
			defer n.unlock()
			k := settings("platform")
			status := n.status(k)
			status.sent.Begin("1")
			status.sent.Record(&report.Message{Reason: plan.ReasonMirrored}, now.Add(-tc.sent))
			s := &report.Summary{Rules: c.rules}
			s.Counts[plan.StateOutOfScope] = tc.copies
			if tc.isThere {
				s.Source = parsed(source())
			}
			c.reporter.queueIfDue(n, k, s, now)
			if isForgotten := n.sources[k] == nil; isForgotten != tc.forgotten {
				t.Errorf("got it forgotten %v, want %v", isForgotten, tc.forgotten)
			}
			if again := !n.reportAt.IsZero(); again != tc.again {
				t.Errorf("got another report %v, want %v", again, tc.again)
			}
		})
	}
}

// TestWhichCopiesAreReportedToExpire is the table of them: a line has begun their
// grace, and their namespace stays.
func TestWhichCopiesAreReportedToExpire(t *testing.T) {
	now := time.Now()
	begun := unclaimed{uid: "1", why: plan.Unclaimed{Rule: plan.SourceGone}, since: now, line: 1}
	unannounced := begun
	unannounced.since = time.Time{}
	due := begun
	due.since = now.Add(-time.Hour)
	for name, tc := range map[string]struct {
		namespace *corev1.Namespace
		state     plan.State
		known     unclaimed
		want      bool
	}{
		"the grace runs":               {plantest.Namespace("team-a"), plan.StateExpiring, begun, true},
		"no line has begun it":         {plantest.Namespace("team-a"), plan.StateExpiring, unannounced, false},
		"it is over":                   {plantest.Namespace("team-a"), plan.StateExpiring, due, false},
		"claimed meanwhile":            {plantest.Namespace("team-a"), plan.StateSynced, begun, false},
		"the namespace is terminating": {plantest.Terminating("team-a"), plan.StateExpiring, begun, false},
		"the namespace is gone":        {plantest.Namespace("other"), plan.StateExpiring, begun, false},
	} {
		t.Run(name, func(t *testing.T) {
			r := stillController(t, tc.namespace).reporter
			r.grace = time.Minute
			s := &report.Summary{Rules: r.rules}
			known := &record{unclaimed: tc.known}
			known.state = tc.state
			r.addTo(s, &sourceStatus{}, "team-a", known, now)
			all := s.Messages(now)
			if got := len(all) == 1 && all[0].Reason == plan.ReasonExpiring; got != tc.want {
				t.Errorf("got %v, want an announcement %v", all, tc.want)
			}
		})
	}
}

// TestPropagationOfASecondSource: a report that comes between the creation of a second source of a name and the fan-out
// that meets it does not lose the time of that change.
func TestPropagationOfASecondSource(t *testing.T) {
	objects := []runtime.Object{
		plantest.Namespace("platform-b"), plantest.Namespace("team-a"), plantest.Namespace("team-b"),
		source(prefixes("team-a")),
	}
	inScene(objects, func(t *testing.T, s scene) {
		s.slowDown(5 * time.Millisecond)
		time.Sleep(time.Minute)
		before := s.metric("mirror_propagation_seconds")
		s.optOut("team-a") // so a report is due in 100 ms
		time.Sleep(20 * time.Millisecond)
		s.edit("platform", plantest.Label("a", "b")) // a fan-out, and the next one has to wait
		time.Sleep(30 * time.Millisecond)
		s.write(sourceIn("platform-b", prefixes("team-b")))
		time.Sleep(time.Minute)
		s.wantCopies(1, "team-b", "value")
		if got := s.metric("mirror_propagation_seconds") - before; got != 1 {
			s.t.Errorf("got %v observations, want 1", got)
		}
	})(t)
}

// TestPropagationIsObserved is the table of the changes of a source whose time to
// the last copy is observed, once.
func TestPropagationIsObserved(t *testing.T) {
	const s = time.Second
	changed := time.Unix(5000, 0)
	for name, tc := range map[string]struct {
		fanOut, written time.Duration // after the change
		pending         int
		observed        int
		known           bool // the change
	}{
		"all targets were written":    {s, 5 * s, 0, 1, false},
		"written at once":             {s, 0, 0, 1, false},
		"a target is pending":         {s, 5 * s, 1, 0, true},
		"no fan-out has begun since":  {-s, 5 * s, 0, 0, true},
		"no target had to be written": {s, -s, 0, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			sc := byHand(t, nil, func(*Options) {})
			t.Cleanup(sc.controller.stopWriting)
			n := sc.controller.records.lock("settings")
			defer n.unlock()
			n.fanOutAt = changed.Add(tc.fanOut)
			status := n.status(settings("platform"))
			status.changeAt = changed
			status.writeAt = changed.Add(tc.written)
			summary := &report.Summary{}
			summary.Counts[plan.StatePending] = tc.pending
			for range 2 {
				sc.controller.reporter.propagated(n, status, summary)
			}
			if got := sc.metric("mirror_propagation_seconds"); int(got) != tc.observed {
				t.Errorf("got %v observations, want %d", got, tc.observed)
			}
			if known := !status.changeAt.IsZero(); known != tc.known {
				t.Errorf("got a change that is to be observed %v, want %v", known, tc.known)
			}
		})
	}
}

// TestNoPropagationOfASourceThatIsGone: its last change has not reached all targets.
func TestNoPropagationOfASourceThatIsGone(t *testing.T) {
	sc := byHand(t, nil, func(*Options) {})
	t.Cleanup(sc.controller.stopWriting)
	n := sc.controller.records.lock("settings")
	defer n.unlock()
	k := settings("platform")
	status := n.status(k)
	status.sent.Begin("1")
	now := time.Now()
	status.changeAt = now.Add(-time.Minute)
	status.writeAt = now.Add(-time.Second)
	n.fanOutAt = now
	sc.controller.reporter.queueIfDue(n, k, &report.Summary{Rules: teamRules()}, now)
	if got := sc.metric("mirror_propagation_seconds"); got != 0 {
		t.Errorf("got %v observations", got)
	}
}

// TestFanOutsAreApart by a tenth of a second, and queue what is out of sync alone.
func TestFanOutsAreApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := source()
		c := stillController(t, src, copyOf(src, "team-a"), plantest.Namespace("team-b"))
		defer c.stopReporting()
		began := time.Now()
		for _, step := range []struct {
			at     time.Duration
			names  string // whose fan-out is due
			copies string
		}{
			{0, "", "team-b/settings"},
			{fanOutGap - 1, "", ""},
			{fanOutGap, "settings", "team-b/settings"},
		} {
			time.Sleep(time.Until(began.Add(step.at)))
			synctest.Wait()
			c.fanOut("settings")
			names, keys := c.added(t)
			if strings.Join(names, " ") != step.names || strings.Join(keys, " ") != step.copies {
				t.Errorf("after %v: got %q due, and %q queued, want %q and %q",
					step.at, names, keys, step.names, step.copies)
			}
		}
	})
}

// TestFanOutVisitsWhatIsKnown: an object was in the way that no watch shows, and the
// source has gone. Nothing is left.
func TestFanOutVisitsWhatIsKnown(t *testing.T) {
	c := stillController(t, plantest.Namespace("team-a"))
	n := c.records.lock("settings")
	inTheWay := standing{state: plan.StateForeign, owner: settings("platform"), note: "theirs"}
	n.set("team-a", record{settled: settled{standing: inTheWay}})
	n.unlock()
	c.fanOut("settings")
	n = c.records.lock("settings")
	defer n.unlock()
	if known := n.byNamespace["team-a"]; known != nil {
		t.Errorf("got %+v, want nothing known", known)
	}
}

// TestFanOutForgetsWhatExcludes: a rule that excludes nothing any more is reported
// until then, and no longer.
func TestFanOutForgetsWhatExcludes(t *testing.T) {
	src := source()
	c := stillController(t, src)
	n := c.records.lock("settings")
	status := n.status(plan.KeyOf(src))
	status.excluded = []plan.Exclusion{plan.ExcludedByOptOut}
	n.unlock()
	c.fanOut("settings")
	n = c.records.lock("settings")
	defer n.unlock()
	if len(status.excluded) > 0 {
		t.Errorf("got %v known, want it found anew", status.excluded)
	}
}

// TestReportOfARunningFanOut: it waits for the end, or it would count a part of the
// targets.
func TestReportOfARunningFanOut(t *testing.T) {
	inScene([]runtime.Object{plantest.Namespace("team-a")}, func(t *testing.T, s scene) {
		c := s.controller
		n := c.records.lock("settings")
		n.comparing = true
		n.status(settings("platform")).sent.Begin("1")
		n.unlock()
		c.reporter.report(t.Context(), "settings")
		time.Sleep(time.Minute)
		n = c.records.lock("settings")
		if n.sources[settings("platform")] == nil || n.reportAt.IsZero() {
			t.Error("got a report in a fan-out, want it to wait for the end")
		}
		n.comparing = false
		n.unlock()
		time.Sleep(time.Minute)
		n = c.records.lock("settings")
		defer n.unlock()
		if len(n.sources) > 0 {
			t.Error("got no report after the fan-out, want the source forgotten, which is gone")
		}
	})(t)
}

// TestWhenANameIsReported is the table of the next report after a change: soon, or
// while a target is pending in ten seconds, and never later than was said before.
func TestWhenANameIsReported(t *testing.T) {
	const ms = time.Millisecond
	for name, tc := range map[string]struct {
		pending int
		before  time.Duration // when a report is due already; 0: none is
		want    time.Duration
	}{
		"nothing is pending":        {0, 0, 100 * ms},
		"a target is pending":       {1, 0, 10 * time.Second},
		"one is due sooner":         {1, time.Second, time.Second},
		"one is due later":          {0, time.Second, 100 * ms},
		"one is due at that time":   {0, 100 * ms, 100 * ms},
		"one is due, and one waits": {2, time.Minute, 10 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := stillController(t)
				defer c.stopReporting()
				n := c.records.lock("settings")
				defer n.unlock()
				now := time.Now()
				n.pending = tc.pending
				if tc.before > 0 {
					n.reportIn(tc.before)
				}
				n.reportSoon()
				if got := n.reportAt.Sub(now); got != tc.want {
					t.Errorf("got a report in %v, want %v", got, tc.want)
				}
			})
		})
	}
}
