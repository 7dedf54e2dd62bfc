package mirror

import (
	"slices"
	"strconv"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/mirror-controller/mirror-controller/mirror/apitest"
	"github.com/mirror-controller/mirror-controller/mirror/internal/outcome"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
	"github.com/mirror-controller/mirror-controller/mirror/plan/plantest"
)

var configMapResource = schema.GroupResource{Resource: "configmaps"}

// TestOwnWriteLeft is the table of whether the cache shows our own last write.
func TestOwnWriteLeft(t *testing.T) {
	now := time.Unix(5000, 0)
	have := plantest.ConfigMap("team-a", "settings")
	other := plantest.ConfigMap("team-a", "settings", func(cm *corev1.ConfigMap) { cm.UID = "other" })
	for name, tc := range map[string]struct {
		own     ownWrite
		have    *corev1.ConfigMap
		version string
		want    time.Duration
	}{
		"no write":                            {ownWrite{version: "41"}, nil, "9", 0},
		"the cache is behind":                 {ownWrite{version: "41", at: now}, nil, "9", maxOwn}, // as numbers, not as words
		"the cache is there":                  {ownWrite{version: "41", at: now}, nil, "41", 0},
		"the cache is ahead":                  {ownWrite{version: "41", at: now}, nil, "100", 0},
		"client-go does not know":             {ownWrite{version: "41", at: now}, nil, "", 0},
		"a version that does not come":        {ownWrite{version: "41", at: now.Add(-maxOwn)}, nil, "9", 0},
		"just before":                         {ownWrite{version: "41", at: now.Add(1 - maxOwn)}, nil, "9", 1},
		"deleted, and there":                  {ownWrite{deleted: have.UID, at: now}, have, "9", maxOwn},
		"deleted, and gone":                   {ownWrite{deleted: have.UID, at: now}, nil, "9", 0},
		"deleted, and another one there":      {ownWrite{deleted: have.UID, at: now}, other, "9", 0},
		"deleted, and held by finalizers":     {ownWrite{deleted: have.UID, at: now}, plantest.ConfigMap("team-a", "settings", plantest.Deleting), "9", 0},
		"re-created, and the old one there":   {ownWrite{deleted: have.UID, version: "41", at: now}, have, "9", maxOwn},
		"re-created, and the new one not yet": {ownWrite{deleted: have.UID, version: "41", at: now}, nil, "9", maxOwn},
		"an object without a UID":             {ownWrite{version: "41", at: now}, &corev1.ConfigMap{}, "41", 0},
	} {
		if got := tc.own.left(tc.have, tc.version, now); got != tc.want {
			t.Errorf("%s: got %v left, want %v", name, got, tc.want)
		}
	}
}

// TestWrote is the table of what a write leaves in the record, and of what is next.
func TestWrote(t *testing.T) {
	now := time.Unix(5000, 0)
	blue, have := parsed(sourceIn("platform")), plantest.ConfigMap("team-a", "settings")
	made := plantest.ConfigMap("team-a", "settings", withVersion("41"))
	create, update := plan.Change{Op: plan.OpCreate, Source: blue}, plan.Change{Op: plan.OpUpdate, Source: blue, Have: have}
	recreate, remove := plan.Change{Op: plan.OpRecreate, Source: blue, Have: have}, plan.Change{Op: plan.OpDelete, Have: have}
	same := basics{content: contentOf(blue)}
	long := now.Add(-calm - 2*maxHold)
	for name, tc := range map[string]struct {
		rec     record
		res     result
		own     ownWrite
		content content
		repairs int
		step    step
		wait    time.Duration
	}{
		"create":   {record{}, result{change: create, made: made}, ownWrite{version: "41", at: now}, contentOf(blue), 0, stepDone, 0},
		"update":   {record{}, result{change: update, made: made}, ownWrite{version: "41", at: now}, contentOf(blue), 0, stepDone, 0},
		"recreate": {record{}, result{change: recreate, made: made}, ownWrite{version: "41", deleted: have.UID, at: now}, contentOf(blue), 0, stepDone, 0},
		"delete": {record{basics: same, repairs: 3, unclaimed: unclaimed{uid: have.UID}}, result{change: remove},
			ownWrite{deleted: have.UID, at: now}, content{}, 0, stepDone, 0},
		"other content ends a fight": {record{repairs: 20, repairedAt: now}, result{change: update, made: made},
			ownWrite{version: "41", at: now}, contentOf(blue), 0, stepDone, 0},
		"a repair": {record{basics: same, repairs: 3, repairedAt: now}, result{change: update, made: made, repair: true},
			ownWrite{version: "41", at: now}, contentOf(blue), 4, stepDone, 0},
		"a repair after a long time": {record{basics: same, repairs: 20, repairedAt: long}, result{change: update, made: made, repair: true},
			ownWrite{version: "41", at: now}, contentOf(blue), 1, stepDone, 0},
		"a repair in a fight": {record{basics: same, repairs: 9, repairedAt: now.Add(-time.Second)}, result{change: update, made: made, repair: true},
			ownWrite{version: "41", at: now}, contentOf(blue), 10, stepDone, firstHold + calm},
		"altered": {record{basics: same}, result{change: update, made: made, repair: true, altered: true, after: time.Millisecond},
			ownWrite{version: "41", altered: true, at: now}, contentOf(blue), 1, stepAwait, time.Millisecond},
		"altered in a fight": {record{basics: same, repairs: 10, repairedAt: now}, result{change: update, made: made, repair: true, altered: true, after: time.Millisecond},
			ownWrite{version: "41", altered: true, at: now}, contentOf(blue), 11, stepAwait, 2 * firstHold},
	} {
		tc.rec.appeared, tc.rec.retry = now, retry{failures: 3}
		if tc.res.state = stateOfWrite(tc.res.change); tc.res.altered {
			tc.res.state = plan.StatePending
		}
		step, wait := tc.rec.wrote(&tc.res, now)
		if step != tc.step || wait != tc.wait {
			t.Errorf("%s: got step %d after %v, want %d after %v", name, step, wait, tc.step, tc.wait)
		}
		got := tc.rec
		if got.own != tc.own || got.content != tc.content || got.repairs != tc.repairs {
			t.Errorf("%s: got %+v, %+v and %d repairs, want %+v, %+v and %d", name, got.own, got.content, got.repairs, tc.own, tc.content, tc.repairs)
		}
		if got.retry != (retry{}) || got.unclaimed != (unclaimed{}) || !got.appeared.IsZero() {
			t.Errorf("%s: got %+v, want no failure, no loss and no new namespace known", name, got)
		}
	}
}

// TestFailed goes through failures of one target: reasons take turns, and the waits grow all the same. A problem
// stays one until it is known to be over.
func TestFailed(t *testing.T) {
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
		wait := rec.failed(&result{change: c, outcome: tc.outcome, state: tc.result, note: tc.note, began: now.Add(-time.Second)}, tried, now)
		if wait != tc.wait || !rec.retry.notBefore.Equal(now.Add(wait)) || rec.retry.tried != tried {
			t.Errorf("failure %d: got a retry after %v, at %v, want %v", i, wait, rec.retry.notBefore, tc.wait)
		}
		state, owner := rec.status(stepWait, c, now)
		if state != tc.state || owner != c.Source.Key || rec.content != tc.content || rec.retry.note != tc.note {
			t.Errorf("failure %d: got %v of %v, %+v, %q, want %v, %+v, %q", i, state, owner, rec.content, rec.retry.note, tc.state, tc.content, tc.note)
		}
		if began := before.retry.outcome != tc.outcome; rec.retry.since.Equal(now.Add(-time.Second)) != began {
			t.Errorf("failure %d: got the first one of this reason at %v", i, rec.retry.since)
		}
	}
}

// TestLastingAnswersAreRejections: errors that the API server answers for ten seconds count as a rejection. A webhook
// that it cannot call is one.
func TestLastingAnswersAreRejections(t *testing.T) {
	now := time.Unix(5000, 0)
	internal := apierrors.NewInternalError(errAway)
	ago := func(d time.Duration) time.Time { return now.Add(-d) }
	for name, tc := range map[string]struct {
		rec   retry
		err   error
		began time.Time
		want  bool
	}{
		"the first":                  {retry{}, internal, now, false},
		"the first, a long call":     {retry{}, internal, ago(transientLimit), true},
		"just before":                {retry{outcome: outcome.Transient, since: ago(transientLimit - 1)}, internal, now, false},
		"in time":                    {retry{outcome: outcome.Transient, since: ago(transientLimit)}, internal, now, true},
		"no answer":                  {retry{outcome: outcome.Transient, since: ago(transientLimit)}, errAway, now, false},
		"after a rejection":          {retry{outcome: outcome.Rejected, since: now}, internal, now, true},
		"away after a rejection":     {retry{outcome: outcome.Rejected, since: ago(time.Hour)}, errAway, now, false},
		"after another reason":       {retry{outcome: outcome.Foreign, since: ago(time.Hour)}, internal, now, false},
		"a long call after another":  {retry{outcome: outcome.Conflict, since: ago(time.Hour)}, internal, ago(transientLimit), true},
		"a server without time":      {retry{outcome: outcome.Transient, since: ago(transientLimit)}, apierrors.NewTooManyRequests("later", 1), now, false},
		"a long call, and a shorter": {retry{outcome: outcome.Transient, since: ago(time.Second)}, internal, ago(transientLimit), false},
	} {
		if got := tc.rec.lasts(&result{outcome: outcome.Transient, err: tc.err, began: tc.began}, now); got != tc.want {
			t.Errorf("%s: got a rejection %v, want %v", name, got, tc.want)
		}
	}
}

// TestNext is the table of what happens next at a target.
func TestNext(t *testing.T) {
	now := time.Unix(5000, 0)
	blue, green := parsed(sourceIn("platform")), parsed(sourceIn("platform", plantest.Data("key", "green")))
	have := plantest.ConfigMap("team-a", "settings")
	update, nothing := plan.Change{Op: plan.OpUpdate, Source: blue, Have: have}, plan.Change{Source: blue, Have: have, State: plan.StateSynced}
	remove := plan.Change{Op: plan.OpDelete, Have: have}
	of := func(s *plan.Source, r record) record {
		r.content = contentOf(s)
		r.retry.tried = trigger{content: r.content, have: have.ResourceVersion}
		return r
	}
	own, altered := ownWrite{version: "41", at: now}, ownWrite{version: "41", at: now, altered: true}
	later := now.Add(7 * time.Second)
	failed := record{retry: retry{outcome: outcome.Rejected, notBefore: later}}
	fighting := record{repairs: 13, repairedAt: now.Add(-time.Second)} // held for 8 seconds
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
		"our write does not come":            {of(green, record{own: ownWrite{version: "41", at: now.Add(-maxOwn)}}), update, stepAct, 0},
		"failed":                             {of(blue, failed), update, stepWait, 7 * time.Second},
		"failed with other content":          {of(green, failed), update, stepAct, 0},
		"failed, and the time has come":      {of(blue, record{retry: retry{outcome: outcome.Rejected, notBefore: now}}), update, stepAct, 0},
		"a fight about this content":         {of(blue, fighting), update, stepHold, 7 * time.Second},
		"a fight about other content":        {of(green, fighting), update, stepAct, 0},
		"a fight, and the time has come":     {of(blue, record{repairs: 13, repairedAt: now.Add(-8 * time.Second)}), update, stepAct, 0},
		"a fight, and a failure":             {of(blue, record{repairs: 13, repairedAt: now, retry: retry{outcome: outcome.Rejected, notBefore: later}}), update, stepWait, 7 * time.Second},
		"free repairs":                       {of(blue, record{repairs: freeRepairs - 1, repairedAt: now}), update, stepAct, 0},
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

// TestIsTriggered is the table of what ends a wait early.
func TestIsTriggered(t *testing.T) {
	tried := trigger{content{settings("platform"), "blue"}, "7", "1"}
	content2, source2 := trigger{content{settings("platform"), "green"}, "7", "1"}, trigger{content{settings("base"), "blue"}, "7", "1"}
	have2, gone, namespace2 := trigger{tried.content, "8", "1"}, trigger{tried.content, "", "1"}, trigger{tried.content, "7", "2"}
	inTheWay := retry{state: plan.StateForeign, outcome: outcome.Foreign}
	often := retry{state: plan.StateForeign, outcome: outcome.Foreign, failures: freeRepairs}
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
		"often: other content":            {record{retry: retry{outcome: outcome.Rejected, failures: freeRepairs}}, content2, true},
		"C47 often: another state":        {record{retry: retry{outcome: outcome.Rejected, failures: freeRepairs}}, have2, false},
		"C47 often: the namespace":        {record{retry: retry{outcome: outcome.Rejected, failures: freeRepairs}}, namespace2, false},
		"C12 often foreign: adopted":      {record{retry: often}, have2, true},
		"C47 often foreign: not there":    {record{retry: often}, gone, false},
	} {
		tc.rec.retry.tried = tried
		if got := tc.rec.isTriggered(tc.now); got != tc.want {
			t.Errorf("%s: got the end of the wait %v, want %v", name, got, tc.want)
		}
	}
}

// TestProblemBelongsToTheWinner: another source takes over a target that has rejected the writes of the former one.
func TestProblemBelongsToTheWinner(t *testing.T) {
	objects := append(teams(2, "team-"), source(), plantest.Namespace("base"))
	cluster(t, objects, func(t *testing.T, s scene) {
		var answer error = quota()
		s.refuse(func(c apitest.Call) error {
			if c.Namespace == "team-000" && c.IsWrite() {
				return answer
			}
			return nil
		})
		s.edit("platform", plantest.Data("key", "other"))
		s.remove("team-000")
		time.Sleep(time.Minute)
		s.write(sourceIn("base"))
		answer = apierrors.NewServiceUnavailable("no webhook")
		s.remove("platform")
		time.Sleep(5 * time.Second)
		if failed, pending := s.value("mirror_copies", "rejected"), s.value("mirror_copies", "pending"); failed != 0 || pending != 1 {
			t.Errorf("got %v failed and %v pending, want 0 and 1: no write of the new source was rejected", failed, pending)
		}
	})
}

// TestFailureThatIsOver: an object of ours that the watch does not show and that a finalizer holds is waited for.
// Creates that were rejected before do not count any more.
func TestFailureThatIsOver(t *testing.T) {
	cluster(t, append(teams(1, "team-"), source()), func(t *testing.T, s scene) {
		time.Sleep(time.Second)
		s.refuse(func(c apitest.Call) error {
			if c.Verb == "create" {
				return apierrors.NewInternalError(errAway)
			}
			return nil
		})
		s.edit("team-000", plantest.Finalizer, plantest.Without("mirror"))
		s.remove("team-000")
		time.Sleep(15 * time.Second)
		s.refuse(func(apitest.Call) error { return nil })
		time.Sleep(2 * time.Minute)
		if failed, pending := s.value("mirror_copies", "rejected"), s.value("mirror_copies", "pending"); failed != 0 || pending != 1 {
			t.Errorf("got %v failed and %v pending, want 0 and 1", failed, pending)
		}
	})
}

// TestRejectedDeletionIsTriedAfterAnEvent, and not when its backoff ends.
func TestRejectedDeletionIsTriedAfterAnEvent(t *testing.T) {
	cluster(t, append(teams(1, "team-"), source()), func(t *testing.T, s scene) {
		time.Sleep(time.Second)
		s.delay(func(apitest.Call) time.Duration { return 20 * time.Millisecond })
		s.refuse(func(c apitest.Call) error {
			if c.Verb == "delete" {
				return quota()
			}
			return nil
		})
		s.remove("platform")
		time.Sleep(90 * time.Second)
		s.refuse(func(apitest.Call) error { return nil })
		time.Sleep(time.Millisecond)
		s.edit("team-000", plantest.Annotation("touched", "yes"))
		s.within(100*time.Millisecond, "deletion", func() bool { return s.get("team-000") == nil })
	})
}

// TestReasonsTakeTurns: a webhook rejects what the cache has right, and in between the cache is late. A client that
// touches the copy all the time does not have it written in a circle.
func TestReasonsTakeTurns(t *testing.T) {
	cluster(t, append(teams(1, "team-"), source()), func(t *testing.T, s scene) {
		time.Sleep(time.Second)
		updates := 0
		s.refuse(func(c apitest.Call) error {
			if c.Verb != "update" {
				return nil
			}
			if updates++; updates%2 == 0 {
				return apierrors.NewConflict(configMapResource, "settings", errAway)
			}
			return quota()
		})
		s.edit("team-000", plantest.Data("key", "edited"))
		for i := range 600 {
			time.Sleep(100 * time.Millisecond)
			s.edit("team-000", plantest.Annotation("touched", strconv.Itoa(i)))
		}
		if updates > 30 {
			t.Errorf("got %d updates within a minute, want at most 30", updates)
		}
	})
}

// TestAFightBeginsAndEnds damages a copy ten times, leaves it alone, and damages it again.
func TestAFightBeginsAndEnds(t *testing.T) {
	const gap = 10 * time.Minute // as rarely as a GitOps tool
	now, c := time.Unix(5000, 0), content{checksum: "blue"}
	rec := record{}
	var fights []bool
	for range 12 {
		now = now.Add(gap)
		rec.repairs, rec.repairedAt = rec.repairs+1, now
		rec.rest(plan.StateSynced, c, now)
		fights = append(fights, rec.fight(now) > 0)
	}
	if want := append(make([]bool, freeRepairs-1), true, true, true); !slices.Equal(fights, want) {
		t.Errorf("got fights %v, want %v", fights, want)
	}
	if got := rec.fight(now); got != hold(12)+calm {
		t.Errorf("got a fight for %v more, want %v", got, hold(12)+calm)
	}
	now = now.Add(hold(12) + calm)
	if got := rec.fight(now); got != 0 {
		t.Errorf("at its end: got a fight for %v more, want none", got)
	}
	rec.rest(plan.StateSynced, c, now)
	if rec.repairs != 12 {
		t.Errorf("got %d repairs known at the end of calm, want 12", rec.repairs)
	}
	if rec.rest(plan.StateSynced, c, now.Add(1)); rec.repairs != 0 || !rec.repairedAt.IsZero() || !rec.isPlain() {
		t.Errorf("got %d repairs known after it, want none", rec.repairs)
	}
}

// TestRest: a target at rest has no retry. Only a copy that is or was in sync has content.
func TestRest(t *testing.T) {
	blue, green := content{checksum: "blue"}, content{checksum: "green"}
	for state, want := range map[plan.State]content{
		plan.StateNone: {}, plan.StateSynced: blue, plan.StatePending: green, plan.StateFrozen: {}, plan.StateForeign: {},
	} {
		now := time.Unix(5000, 0)
		rec := record{basics: basics{content: green}, retry: retry{outcome: outcome.Conflict, failures: 3, since: now, notBefore: now}, appeared: now}
		if rec.rest(state, blue, now); rec.content != want || !rec.isPlain() {
			t.Errorf("%v: got %+v, want content %+v and nothing else", state, rec, want)
		}
		rec.retry = retry{outcome: outcome.Rejected, failures: 3}
		if rec.rest(state, blue, now); (rec.retry.failures == 3) != (state == plan.StateForeign) {
			t.Errorf("%v: got %+v, want the rejection known while a foreign object is there, which may be our own create", state, rec.retry)
		}
	}
}
