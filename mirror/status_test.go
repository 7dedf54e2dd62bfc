package mirror

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/mirror-controller/mirror-controller/mirror/internal/outcome"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
	"github.com/mirror-controller/mirror-controller/mirror/plan/plantest"
)

// inLock locks the status of the name settings until f has returned.
func inLock(s *status, f func(*nameStatus)) {
	n := s.lock("settings")
	defer n.unlock()
	f(n)
}

// TestDecided is the table of what a decision records, for a fan-out and for a reconcile.
func TestDecided(t *testing.T) {
	now := time.Unix(5000, 0)
	blue, other := parsed(sourceIn("platform")), parsed(sourceIn("base"))
	update, nothing := plan.Change{Op: plan.OpUpdate, Source: blue}, plan.Change{Source: blue, State: plan.StateSynced}
	remove, frozen := plan.Change{Op: plan.OpDelete, CopyOf: other.Key}, plan.Change{CopyOf: other.Key, State: plan.StateFrozen}
	of := func(state plan.State) record {
		shown := state
		if state == plan.StateSynced || state == plan.StatePending {
			shown = plan.StateNone
		}
		return record{basics: basics{state, other.Key, contentOf(blue), true},
			retry: retry{outcome: outcome.Rejected, state: shown, owner: other.Key, notBefore: now, note: "no"}}
	}
	fought := record{repairs: freeRepairs, repairedAt: now}
	for name, tc := range map[string]struct {
		rec   record
		c     plan.Change
		step  step
		state plan.State
		owner key
		wait  time.Duration
	}{
		"a new target":              {record{}, update, stepAct, plan.StatePending, blue.Key, 0},
		"a drifted copy":            {of(plan.StateSynced), update, stepAct, plan.StatePending, blue.Key, 0},
		"a copy to delete":          {record{}, remove, stepAct, plan.StateExpiring, other.Key, 0},
		"a problem stays one":       {of(plan.StateForeign), remove, stepAct, plan.StateForeign, other.Key, 0},
		"of another source":         {of(plan.StateForeign), update, stepAct, plan.StatePending, blue.Key, 0},
		"in sync":                   {of(plan.StateRejected), nothing, stepNone, plan.StateSynced, blue.Key, 0},
		"in sync, and a fight":      {fought, nothing, stepNone, plan.StateFight, blue.Key, firstHold + calm},
		"frozen, and a fight":       {fought, frozen, stepNone, plan.StateFrozen, other.Key, 0},
		"no longer a target":        {of(plan.StateRejected), plan.Change{}, stepNone, plan.StateNone, key{}, 0},
		"our write did it":          {of(plan.StatePending), update, stepDone, plan.StateSynced, blue.Key, 0},
		"our deletion did it":       {of(plan.StatePending), remove, stepDone, plan.StateNone, key{}, 0},
		"our write is to be seen":   {of(plan.StateSynced), update, stepAwait, plan.StatePending, blue.Key, 0},
		"a grace":                   {of(plan.StateSynced), remove, stepExpire, plan.StateExpiring, other.Key, 0},
		"it waits for the next try": {of(plan.StateRejected), update, stepWait, plan.StateRejected, blue.Key, 0},
		"a fight":                   {of(plan.StateSynced), update, stepHold, plan.StateFight, blue.Key, 0},
	} {
		t.Run(name, func(t *testing.T) {
			tc.c.Key = settings("team-a")
			x := &decision{view: plan.NewView([]*plan.Source{blue, other}), change: tc.c, record: tc.rec, step: tc.step,
				target: plan.Target{Key: tc.c.Key, Namespace: plantest.Namespace("team-a")}}
			inLock(newStatus(), func(n *nameStatus) {
				n.decided(x, now)
				got, queued := n.record("team-a", "team-a"), tc.step == stepAct
				if got.state != tc.state || got.countsFor != tc.owner || x.wait != tc.wait {
					t.Errorf("got %v of %v, after %v, want %v of %v, after %v", got.state, got.countsFor, x.wait, tc.state, tc.owner, tc.wait)
				}
				if got.queued != queued || (n.queued > 0) != queued {
					t.Errorf("got it queued %v, and %d in all, want %v", got.queued, n.queued, queued)
				}
				if tc.step == stepNone && got.retry != (retry{}) {
					t.Errorf("got %+v, want no failure known", got)
				}
			})
		})
	}
}

// TestFanoutsHaveAGap: a fan-out of a name waits until a gap after the begin of the last one is over.
func TestFanoutsHaveAGap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inLock(newStatus(), func(n *nameStatus) {
			const ms = time.Millisecond
			for _, step := range []struct{ after, want time.Duration }{
				{0, 0}, {30 * ms, 70 * ms}, {69 * ms, ms}, {ms, 0}, {ms, 99 * ms}, {time.Hour, 0},
			} {
				time.Sleep(step.after)
				if got := n.beginFanout(); got != step.want {
					t.Errorf("got a wait of %v, want %v", got, step.want)
				}
			}
		})
	})
}

// TestReportable: the sources of a name are reported when nothing is queued, or when targets have been queued for long.
func TestReportable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inLock(newStatus(), func(n *nameStatus) {
			queue := func(namespace string, queued bool) {
				n.set(namespace, "uid", record{basics: basics{state: plan.StatePending, countsFor: settings("platform"), queued: queued}})
			}
			changed, reported := func() { n.dirty = true }, func() { reporterOf(t, n.status).collect(n, &plan.View{}, nil) }
			for i, step := range []struct {
				do   func()
				want bool
			}{
				{func() {}, false},
				{changed, true},
				{reported, false},
				{func() { changed(); queue("team-a", true) }, false},
				{func() { time.Sleep(reportAfter - 1); queue("team-b", true) }, false},
				{func() { queue("team-a", true) }, false}, // it was queued before
				{func() { time.Sleep(time.Nanosecond) }, true},
				{func() { reported(); changed() }, false},
				{func() { time.Sleep(reportAfter) }, true},
				{func() { reported(); changed(); queue("team-a", false) }, false},
				{func() { queue("team-b", false) }, true},
				{func() { time.Sleep(time.Hour); queue("team-a", true) }, false},
			} {
				if step.do(); (n.dirty && n.reportableIn() == 0) != step.want {
					t.Errorf("step %d: got reportable %v, want %v", i, !step.want, step.want)
				}
			}
		})
	})
}

// TestANewNamespaceHasNoHistory: the record of its predecessor does not count, not even a shared one.
func TestANewNamespaceHasNoHistory(t *testing.T) {
	synced := basics{state: plan.StateSynced, countsFor: settings("platform"), content: content{checksum: "blue"}}
	for name, rec := range map[string]record{
		"a failure": {basics: synced, retry: retry{outcome: outcome.Rejected, failures: 7, notBefore: time.Now().Add(time.Hour)}},
		"a fight":   {basics: synced, repairs: 12, repairedAt: time.Now()},
		"in sync":   {basics: synced},
		"nothing":   {},
	} {
		inLock(newStatus(), func(n *nameStatus) {
			n.set("team-a", "old", rec)
			n.appear("team-a", "new")
			got := n.record("team-a", "new")
			if got.appeared.IsZero() {
				t.Errorf("%s: got no time at which the namespace appeared", name)
			}
			if got.basics != (basics{}) || got.retry != (retry{}) || got.repairs != 0 {
				t.Errorf("%s: got %+v, want nothing but the namespace's time", name, got)
			}
			n.set("team-a", "new", record{basics: synced, repairs: 1})
			if n.appear("team-a", "new"); n.record("team-a", "new").repairs != 1 {
				t.Errorf("%s: got a record lost that is newer than the event", name)
			}
			if got := n.record("team-a", "old"); got.repairs != 0 {
				t.Errorf("%s: got the record of another namespace", name)
			}
		})
	}
}

// TestEqualRecordsAreShared: ten thousand targets in sync share one record, and a target without anything has none.
func TestEqualRecordsAreShared(t *testing.T) {
	s := newStatus()
	synced := record{basics: basics{state: plan.StateSynced, countsFor: settings("platform"), content: content{checksum: "blue"}}}
	inLock(s, func(n *nameStatus) {
		n.set("team-a", "a", synced)
		n.set("team-b", "b", synced)
		n.set("team-c", "c", record{basics: synced.basics, repairs: 1})
		n.set("team-d", "d", record{})
		n.set("team-e", "e", record{basics: synced.basics, unclaimed: unclaimed{uid: "e"}})
		if at := n.targets; at["team-a"] != at["team-b"] || at["team-a"] == at["team-c"] || at["team-a"] == at["team-e"] {
			t.Errorf("got %v, want a and b with one record, and c and e with their own", at)
		}
	})
	if got := slices.Sorted(slices.Values(s.namespaces("settings"))); !slices.Equal(got, []string{"team-a", "team-b", "team-c", "team-e"}) {
		t.Errorf("got records for %v", got)
	}
	inLock(s, func(n *nameStatus) {
		if n.beginFanout(); len(n.shared) > 0 {
			t.Error("got records kept to be shared by targets of former contents")
		}
	})
	if got := s.namespaces("other"); len(got) > 0 || len(s.names) != 1 {
		t.Errorf("got records for %v, and %d names, want nothing of a name that is not known", got, len(s.names))
	}
}

// TestDirty: a name is dirty if there may be something to report, and only then.
func TestDirty(t *testing.T) {
	base := settings("platform")
	of := func(state plan.State) record { return record{basics: basics{state: state, countsFor: base}} }
	for name, tc := range map[string]struct {
		before, after record
		want          bool
	}{
		"arrived":                     {of(plan.StatePending), of(plan.StateSynced), true},
		"gone":                        {of(plan.StatePending), record{}, true},
		"a new problem":               {of(plan.StateSynced), of(plan.StateRejected), true},
		"no longer a problem":         {of(plan.StateFight), of(plan.StateSynced), true},
		"another problem":             {of(plan.StateForeign), of(plan.StateRejected), true},
		"the problem of another":      {of(plan.StateOutOfScope), record{basics: basics{state: plan.StateOutOfScope, countsFor: settings("base")}}, true},
		"as before":                   {of(plan.StateRejected), of(plan.StateRejected), false},
		"still pending":               {of(plan.StatePending), of(plan.StatePending), false},
		"to be written":               {of(plan.StateSynced), of(plan.StatePending), false},
		"in sync, and in sync":        {of(plan.StateSynced), of(plan.StateSynced), false},
		"in sync with another source": {of(plan.StateSynced), record{basics: basics{state: plan.StateSynced, countsFor: settings("base")}}, true},
	} {
		inLock(newStatus(), func(n *nameStatus) {
			n.set("team-a", "a", tc.before)
			n.dirty = false
			for range 2 { // the second time nothing is new, but nothing was reported either
				if n.set("team-a", "a", tc.after); n.dirty != tc.want {
					t.Errorf("%s: got something to report %v, want %v", name, n.dirty, tc.want)
				}
			}
		})
	}
}

// TestObserve: an event that only shows our own last write reconciles nothing, and ends the wait for it.
func TestObserve(t *testing.T) {
	ours := plantest.ConfigMap("team-a", "settings", withVersion("41"))
	theirs := plantest.ConfigMap("team-a", "settings", withVersion("42"), func(cm *corev1.ConfigMap) { cm.UID = "other" })
	at, synced, pending := time.Unix(5000, 0), basics{state: plan.StateSynced}, basics{state: plan.StatePending}
	wrote, deleted, both := ownWrite{version: "41", at: at}, ownWrite{deleted: ours.UID, at: at}, ownWrite{version: "41", deleted: theirs.UID, at: at}
	for name, tc := range map[string]struct {
		rec       *record
		cm        *corev1.ConfigMap
		deleted   bool
		reconcile bool
		left      ownWrite
	}{
		"nothing known":                      {nil, ours, false, true, ownWrite{}},
		"no write":                           {&record{repairs: 1}, ours, false, true, ownWrite{}},
		"no write, of an object without UID": {&record{repairs: 1}, &corev1.ConfigMap{}, false, true, ownWrite{}},
		"its deletion":                       {&record{repairs: 1}, &corev1.ConfigMap{}, true, true, ownWrite{}},
		"our write":                          {&record{basics: synced, own: wrote}, ours, false, false, ownWrite{}},
		"our write, and more to do":          {&record{basics: pending, own: wrote}, ours, false, true, ownWrite{}},
		"their write":                        {&record{own: wrote}, theirs, false, true, wrote},
		"a deletion of what we wrote":        {&record{own: wrote}, ours, true, true, wrote},
		"our deletion":                       {&record{own: deleted}, ours, true, false, ownWrite{}},
		"our deletion, and more to do":       {&record{basics: pending, own: deleted}, ours, true, true, ownWrite{}},
		"a write of what we deleted":         {&record{own: deleted}, ours, false, true, deleted},
		"a deletion of theirs":               {&record{own: deleted}, theirs, true, true, deleted},
		"a deletion of what is not known":    {&record{own: deleted}, nil, true, true, deleted},
		"the first part of a re-creation":    {&record{own: both}, theirs, true, false, wrote},
		"the second part of a re-creation":   {&record{basics: synced, own: both}, ours, false, false, ownWrite{}},
		"our write, wanted by nobody now":    {&record{own: wrote}, ours, false, true, ownWrite{}},
	} {
		t.Run(name, func(t *testing.T) {
			inLock(newStatus(), func(n *nameStatus) {
				if tc.rec != nil {
					n.set("team-a", "uid", *tc.rec)
				}
				before := n.record("team-a", "uid").own
				n.calls["team-a"] = &meanwhile{}
				if got := n.observe("team-a", tc.cm, tc.deleted); !got || n.record("team-a", "uid").own != before {
					t.Errorf("with a call on its way: got it to be reconciled %v, with %+v, want true, and the record left alone", got, n.record("team-a", "uid").own)
				}
				delete(n.calls, "team-a")
				if got := n.observe("team-a", tc.cm, tc.deleted); got != tc.reconcile {
					t.Errorf("got it to be reconciled %v, want %v", got, tc.reconcile)
				}
				if got := n.record("team-a", "uid").own; got != tc.left {
					t.Errorf("got %+v awaited, want %+v", got, tc.left)
				}
			})
		})
	}
}
