package mirror

import (
	"testing"
	"time"

	"github.com/mirror-controller/mirror-controller/mirror/internal/outcome"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
	"github.com/mirror-controller/mirror-controller/mirror/plan/plantest"
)

// TestWaitsGrowAlthoughReasonsTakeTurns goes through failures of one target. A problem stays one until it is known to
// be over.
func TestWaitsGrowAlthoughReasonsTakeTurns(t *testing.T) {
	const ms, s = time.Millisecond, time.Second
	c := plan.Change{Op: plan.OpCreate, Source: parsed(sourceIn("platform"))}
	synced := content{checksum: "before"}
	tried := triggerOf(plan.Target{Have: plantest.ConfigMap("team-a", "settings")}, c)
	now, rec := time.Unix(5000, 0), record{basics: basics{content: synced}}
	for i, tc := range []struct {
		outcome outcome.Outcome
		result  plan.State
		wait    time.Duration
		state   plan.State
		content content
		note    string
	}{
		{outcome.Transient, plan.StatePending, 50 * ms, plan.StatePending, synced, ""},
		{outcome.Transient, plan.StatePending, 100 * ms, plan.StatePending, synced, ""},
		{outcome.Rejected, plan.StateRejected, 4 * s, plan.StateRejected, synced, "why"},
		{outcome.Transient, plan.StatePending, 400 * ms, plan.StateRejected, synced, "why"},
		{outcome.Foreign, plan.StateForeign, 16 * s, plan.StateForeign, content{}, ""},
		{outcome.Rejected, plan.StateRejected, 32 * s, plan.StateRejected, content{}, "why"},
		{outcome.Transient, plan.StatePending, 3200 * ms, plan.StateRejected, content{}, "why"},
	} {
		before := rec
		now = now.Add(time.Hour)
		wait := rec.failed(&result{change: c, outcome: tc.outcome, state: tc.result, note: tc.note,
			began: now.Add(-time.Second)}, tried, now)
		if wait != tc.wait || !rec.retry.notBefore.Equal(now.Add(wait)) || rec.retry.tried != tried {
			t.Errorf("failure %d: got a retry after %v, at %v, want %v", i, wait, rec.retry.notBefore, tc.wait)
		}
		state, owner := rec.status(stepWait, c, now)
		if state != tc.state || owner != c.Source.Key || rec.content != tc.content || rec.retry.note != tc.note {
			t.Errorf("failure %d: got %v of %v, %+v, %q, want %v, %+v, %q", i, state, owner, rec.content, rec.retry.note,
				tc.state, tc.content, tc.note)
		}
		if began := before.retry.outcome != tc.outcome; rec.retry.since.Equal(now.Add(-time.Second)) != began {
			t.Errorf("failure %d: got the first one of this reason at %v", i, rec.retry.since)
		}
	}
	other := plan.Change{Op: plan.OpCreate, Source: parsed(sourceIn("base"))}
	for s, want := range map[step]plan.State{stepWait: plan.StateRejected, stepAct: plan.StatePending} {
		if got, _ := rec.status(s, other, now); got != want {
			t.Errorf("step %d of another source: got %v, want %v", s, got, want)
		}
	}
	if rec.rest(plan.StateSynced, synced, now); !rec.isPlain() {
		t.Errorf("at rest: got %+v, want no retry", rec)
	}
}

// TestNextStepAtATarget is the table of the steps.
func TestNextStepAtATarget(t *testing.T) {
	now := time.Unix(5000, 0)
	blue, green := parsed(sourceIn("platform")), parsed(sourceIn("platform", plantest.Data("key", "green")))
	have := plantest.ConfigMap("team-a", "settings")
	update := plan.Change{Op: plan.OpUpdate, Source: blue, Have: have}
	nothing := plan.Change{Source: blue, Have: have, State: plan.StateSynced}
	remove := plan.Change{Op: plan.OpDelete, Have: have}
	of := func(s *plan.Source, r record) record {
		r.content = contentOf(s)
		r.retry.tried = trigger{content: r.content, have: have.ResourceVersion}
		return r
	}
	own, altered := ownWrite{version: "41", at: now}, ownWrite{version: "41", at: now, altered: true}
	later := now.Add(7 * time.Second)
	failed := record{retry: retry{outcome: outcome.Rejected, notBefore: later}}
	due := record{retry: retry{outcome: outcome.Rejected, notBefore: now}}
	both := record{repairs: 13, repairedAt: now, retry: failed.retry}
	free, lost := record{repairs: freeRepairs - 1, repairedAt: now},
		record{own: ownWrite{version: "41", at: now.Add(-maxOwn)}}
	// held for 8 seconds
	fought := func(ago time.Duration) record { return record{repairs: 13, repairedAt: now.Add(-ago)} }
	for name, tc := range map[string]struct {
		rec  record
		c    plan.Change
		step step
		wait time.Duration
	}{
		"nothing known":                      {record{}, update, stepAct, 0},
		"nothing to do":                      {of(blue, record{}), nothing, stepNone, 0},
		"nothing to do, whatever happened":   {of(blue, failed), nothing, stepNone, 0},
		"our write is not there yet":         {of(blue, record{own: own}), update, stepDone, maxOwn},
		"nor there to compare":               {of(blue, record{own: own}), nothing, stepDone, maxOwn},
		"our write was altered":              {of(blue, record{own: altered}), update, stepAwait, maxOwn},
		"our write has other content by now": {of(green, record{own: own}), update, stepAwait, maxOwn},
		"a deletion is not there yet":        {of(nil, record{own: own}), remove, stepDone, maxOwn},
		"our write does not come":            {of(green, lost), update, stepAct, 0},
		"failed":                             {of(blue, failed), update, stepWait, 7 * time.Second},
		"failed with other content":          {of(green, failed), update, stepAct, 0},
		"failed, and the time has come":      {of(blue, due), update, stepAct, 0},
		"a fight about this content":         {of(blue, fought(time.Second)), update, stepHold, 7 * time.Second},
		"a fight about other content":        {of(green, fought(time.Second)), update, stepAct, 0},
		"a fight, and the time has come":     {of(blue, fought(8*time.Second)), update, stepAct, 0},
		"a fight, and a failure":             {of(blue, both), update, stepWait, 7 * time.Second},
		"free repairs":                       {of(blue, free), update, stepAct, 0},
		"a deletion that failed":             {of(nil, failed), remove, stepWait, 7 * time.Second},
		"a deletion after another failure":   {of(blue, failed), remove, stepAct, 0},
	} {
		got, wait := tc.rec.next(plan.Target{Have: have}, tc.c, "9", 0, now)
		if got != tc.step || wait != tc.wait {
			t.Errorf("%s: got step %d after %v, want %d after %v", name, got, wait, tc.step, tc.wait)
		}
		if got != stepDone && got != stepAwait && tc.rec.own != (ownWrite{}) {
			t.Errorf("%s: got %+v still awaited", name, tc.rec.own)
		}
	}
}

// TestWhatEndsAWaitEarly is the table of triggers.
func TestWhatEndsAWaitEarly(t *testing.T) {
	blue := content{settings("platform"), "blue"}
	tried := trigger{blue, "7", "1"}
	content2 := trigger{content{settings("platform"), "green"}, "7", "1"}
	source2 := trigger{content{settings("base"), "blue"}, "7", "1"}
	have2, gone, namespace2 := trigger{blue, "8", "1"}, trigger{blue, "", "1"}, trigger{blue, "7", "2"}
	inTheWay := retry{state: plan.StateForeign, outcome: outcome.Foreign}
	often := retry{state: plan.StateForeign, outcome: outcome.Foreign, failures: freeRepairs}
	refused := retry{outcome: outcome.Rejected, failures: freeRepairs}
	for name, tc := range map[string]struct {
		rec  record
		now  trigger
		want bool
	}{
		"nothing":                         {record{}, tried, false},
		"other content":                   {record{}, content2, true},
		"equal content of another source": {record{}, source2, true},
		"another state":                   {record{}, have2, true},
		"gone":                            {record{}, gone, true},
		"the namespace":                   {record{}, namespace2, true},
		"foreign: other content":          {record{retry: inTheWay}, content2, false},
		"foreign: another state":          {record{retry: inTheWay}, have2, true},
		"often: other content":            {record{retry: refused}, content2, true},
		"C47 often: another state":        {record{retry: refused}, have2, false},
		"C47 often: the namespace":        {record{retry: refused}, namespace2, false},
		"C12 often foreign: adopted":      {record{retry: often}, have2, true},
		"C47 often foreign: not there":    {record{retry: often}, gone, false},
	} {
		tc.rec.retry.tried = tried
		if got := tc.rec.isTriggered(tc.now); got != tc.want {
			t.Errorf("%s: got the end of the wait %v, want %v", name, got, tc.want)
		}
	}
}

// TestEqualRecordsAreShared: all targets in sync with a source have one record, and former contents leave none.
func TestEqualRecordsAreShared(t *testing.T) {
	cluster(t, append(teams(100, "team-"), source()), func(t *testing.T, s scene) {
		for _, content := range []string{"one", "two", "three"} {
			s.edit("platform", plantest.Data("key", content))
			time.Sleep(time.Minute)
			n := s.controller.status.lock("settings")
			records := map[*record]bool{}
			for _, r := range n.targets {
				records[r] = true
			}
			if len(records) != 1 || len(n.targets) != 100 || len(n.shared) > 2 {
				t.Errorf("%s: got %d records of %d targets, and %d kept to be shared", content, len(records),
					len(n.targets), len(n.shared))
			}
			n.unlock()
		}
	})
}
