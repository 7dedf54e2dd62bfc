package mirror

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mirror-controller/mirror-controller/mirror/internal/outcome"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
	"github.com/mirror-controller/mirror-controller/mirror/plan/plantest"
)

// epoch is the time at which targets are judged.
var epoch = time.Unix(5000, 0)

// with returns the record of a target that was in sync with this content.
func (r record) with(s *plan.Source) record {
	r.content = contentOf(s)
	return r
}

// failing returns the record of a target whose last try, for this content at
// resourceVersion 7, had this outcome.
func failing(s *plan.Source, o outcome.Outcome, failures int, in time.Duration, shown standing) record {
	return record{retry: retry{
		outcome:   o,
		failures:  failures,
		notBefore: epoch.Add(in),
		standing:  shown,
		content:   contentOf(s),
		have:      "7",
	}}
}

// decided decides about a target with this record, and returns how it stands,
// whether to act, and how long to wait.
func (r *record) decided(f *facts) (standing, bool, time.Duration) {
	r.observe(f)
	c := r.firstCondition(f)
	if c.rests {
		r.rest(f)
	}
	return r.next(c, f)
}

// TestDecideAtATarget is the table of the decisions: act, look again after a time, or nothing, and how the target
// stands.
func TestDecideAtATarget(t *testing.T) {
	const s, grace = time.Second, 10 * time.Second
	blue, green := parsed(sourceIn("platform")), parsed(sourceIn("platform", data("green")))
	base := settings("base")
	have := plantest.ConfigMap("team-a", "settings")
	of := func(op plan.Op, source *plan.Source, state plan.State) plan.Change {
		return plan.Change{Op: op, Source: source, Have: have, State: state, Owner: blue.Key}
	}
	update, nothing := of(plan.OpUpdate, blue, plan.StatePending), of(plan.OpNone, blue, plan.StateSynced)
	remove, held := of(plan.OpDelete, nil, plan.StateExpiring), of(plan.OpNone, nil, plan.StateHeld)
	foreign := of(plan.OpNone, blue, plan.StateForeign)
	foreign.Note, foreign.Adoptable = "theirs", true
	refused := standing{state: plan.StateRejected, owner: blue.Key, note: "quota"}
	elsewhere := refused
	elsewhere.owner = base
	inTheWay := standing{plan.StateForeign, blue.Key, "theirs", true}
	wrote := func(s *plan.Source, ago time.Duration) record {
		return record{lastWrite: ownWrite{version: "41", at: epoch.Add(-ago)}}.with(s)
	}
	deleted := record{lastWrite: ownWrite{deleted: have.UID, at: epoch}}
	twice := failing(blue, outcome.Rejected, 2, 7*s, refused)
	refusedBefore := twice
	refusedBefore.unclaimed = unclaimed{uid: have.UID, since: epoch.Add(-grace)}
	due, fixed := twice, failing(green, outcome.Rejected, 2, 7*s, refused)
	due.retry.notBefore = epoch
	byOther, met := failing(green, outcome.Rejected, 2, 7*s, elsewhere), failing(green, outcome.Foreign, 1, 7*s, inTheWay)
	metBefore := met
	metBefore.retry.standing.owner = base
	once := failing(blue, outcome.Conflict, 1, 7*s, standing{})
	altered := failing(blue, outcome.Rejected, 1, 7*s, refused)
	altered.retry.altered.uid, altered.retry.altered.note = have.UID, "quota"
	fought := func(s *plan.Source, inRow int, ago time.Duration) record {
		return record{repairs: repairs{inRow: inRow, last: epoch.Add(-ago)}}.with(s)
	}
	both := fought(blue, 12, 0)
	both.retry = failing(blue, outcome.Rejected, 1, 9*s, standing{}).retry
	unclaimedFor := func(d time.Duration) record {
		return record{unclaimed: unclaimed{uid: have.UID, since: epoch.Add(-d)}}
	}
	wroteBefore := record{lastWrite: ownWrite{at: epoch.Add(-updateGap + 70)}}.with(blue)
	wroteBefore.unclaimed = unclaimed{uid: have.UID, since: epoch.Add(-grace)}
	late := failing(nil, outcome.Conflict, 1, 7*s, standing{})
	late.unclaimed = unclaimed{uid: have.UID, since: epoch.Add(-grace)}
	for name, tc := range map[string]struct {
		known record
		c     plan.Change
		act   bool
		wait  time.Duration
		want  plan.State
		note  string
	}{
		"nothing known":                       {record{}, update, true, 0, plan.StatePending, ""},
		"in sync":                             {record{}, nothing, false, 0, plan.StateSynced, ""},
		"in sync, while a call is on its way": {record{busy: true}, nothing, false, 0, plan.StatePending, ""},
		"held, while a call is on its way":    {record{busy: true}, held, false, 0, plan.StateHeld, ""},
		"in sync after all":                   {twice, nothing, false, 0, plan.StateSynced, ""},
		"held":                                {twice, held, false, 0, plan.StateHeld, ""},
		"foreign":                             {record{}.with(blue), foreign, false, 0, plan.StateForeign, "theirs"},
		"foreign by admission":                {altered, foreign, false, 0, plan.StateRejected, "quota"},
		"no copy is wanted":                   {record{}.with(blue), plan.Change{}, false, 0, plan.StateNone, ""},

		"our write is unseen":                  {wrote(blue, s), update, false, maxAwait - s, plan.StateSynced, ""},
		"our write is unseen, in sync":         {wrote(blue, s), nothing, false, maxAwait - s, plan.StateSynced, ""},
		"our write is unseen, other content":   {wrote(green, s), update, false, maxAwait - s, plan.StatePending, ""},
		"our write is unseen, in sync before":  {wrote(green, s), nothing, false, maxAwait - s, plan.StatePending, ""},
		"our write is unseen, and not wanted":  {wrote(blue, s), remove, false, maxAwait - s, plan.StateExpiring, ""},
		"our write is unseen for 59 seconds":   {wrote(blue, maxAwait-s), update, false, s, plan.StateSynced, ""},
		"our write is unseen for a minute":     {wrote(blue, maxAwait), update, true, 0, plan.StatePending, ""},
		"our deletion is unseen":               {deleted, remove, false, maxAwait, plan.StateNone, ""},
		"our deletion is unseen, wanted again": {deleted, update, false, maxAwait, plan.StatePending, ""},
		"changed 30 ms after our write": {
			record{lastWrite: ownWrite{at: epoch.Add(-updateGap + 70)}}.with(green), update, false,
			70, plan.StatePending, ""},
		"edited 30 ms after our write": {record{lastWrite: ownWrite{at: epoch.Add(-updateGap + 70)}}.with(blue), update, true,
			0, plan.StatePending, ""},

		"expired 30 ms after our write": {wroteBefore, remove, true, 0, plan.StateExpiring, ""},

		"failed":                           {once, update, false, 7 * s, plan.StatePending, ""},
		"refused":                          {twice, update, false, 7 * s, plan.StateRejected, "quota"},
		"refused, and due":                 {due, update, true, 0, plan.StateRejected, "quota"},
		"refused another content":          {fixed, update, true, 0, plan.StateRejected, "quota"},
		"refused another source":           {byOther, update, true, 0, plan.StatePending, ""},
		"found foreign":                    {met, update, false, 7 * s, plan.StateForeign, "theirs"},
		"found foreign for another source": {metBefore, update, false, 7 * s, plan.StateForeign, "theirs"},

		"expires":           {unclaimedFor(3 * s), remove, false, 7 * s, plan.StateExpiring, ""},
		"not announced yet": {record{unclaimed: unclaimed{uid: have.UID}}, remove, false, 0, plan.StateExpiring, ""},
		"the grace is over": {unclaimedFor(grace), remove, true, 0, plan.StateExpiring, ""},
		"a deletion failed": {late, remove, false, 7 * s, plan.StateExpiring, ""},
		"refused before":    {refusedBefore, remove, true, 0, plan.StateExpiring, ""},

		"a ninth repair":             {fought(blue, 8, 0), update, true, 0, plan.StatePending, ""},
		"a tenth repair":             {fought(blue, 9, 0), update, false, s, plan.StateFight, ""},
		"a change after nine":        {fought(green, 9, 0), update, true, 0, plan.StatePending, ""},
		"an eleventh":                {fought(blue, 10, 0), update, false, 2 * s, plan.StateFight, ""},
		"a fifteenth":                {fought(blue, 14, s), update, false, 31 * s, plan.StateFight, ""},
		"after the sixteenth":        {fought(blue, 16, 0), update, false, time.Minute, plan.StateFight, ""},
		"after a thousand":           {fought(blue, 1000, 0), update, false, time.Minute, plan.StateFight, ""},
		"a repair that is due":       {fought(blue, 12, 8*s), update, true, 0, plan.StateFight, ""},
		"a fight, and other content": {fought(green, 13, 0), update, true, 0, plan.StateFight, ""},
		"a fight, and a failure":     {both, update, false, 9 * s, plan.StateFight, ""},
		"in sync after nine":         {fought(blue, 9, 0), nothing, false, 0, plan.StateSynced, ""},
		"in sync after ten":          {fought(blue, 10, 0), nothing, false, 2*s + calm, plan.StateFight, ""},
		"a fight that may be over":   {fought(blue, 12, s), nothing, false, 7*s + calm, plan.StateFight, ""},
		"a fight until now":          {fought(blue, 12, 8*s+calm), nothing, false, 1, plan.StateFight, ""},
		"a fight that is over":       {fought(blue, 12, 8*s+calm+1), nothing, false, 0, plan.StateSynced, ""},
		"repairs long ago":           {fought(blue, 12, 8*s+calm+1), update, true, 0, plan.StatePending, ""},
	} {
		t.Run(name, func(t *testing.T) {
			known := tc.known
			f := &facts{have: have, change: tc.c, version: "9", grace: grace, now: epoch}
			got, act, wait := known.decided(f)
			want := standing{state: tc.want, owner: blue.Key, note: tc.note, adoptable: got.adoptable}
			if tc.want == plan.StateNone {
				want.owner = key{}
			}
			if act != tc.act || wait != tc.wait || got != want {
				t.Errorf("got act %v, wait %v, %+v, want %v, %v, %+v", act, wait, got, tc.act, tc.wait, want)
			}
			if (tc.want == plan.StateNone || tc.c.State == plan.StateForeign) && known.content != (content{}) {
				t.Errorf("got the content %+v, want none", known.content)
			}
		})
	}
}

// TestWhatRestLeaves is the table of what is known when nothing is to be done: a
// target in sync leaves what records share. What admission made of our own write
// stays known while it is there.
func TestWhatRestLeaves(t *testing.T) {
	blue := parsed(sourceIn("platform"))
	have := plantest.ConfigMap("team-a", "settings")
	tried := failing(blue, outcome.Rejected, 2, time.Second, standing{state: plan.StateRejected})
	tried.namespaceUID = "1"
	tried.lastWrite = ownWrite{version: "8", at: epoch}
	byAdmission := tried
	byAdmission.retry.altered = altered{uid: have.UID, note: "altered"}
	before := tried
	before.retry.altered = altered{uid: "before", note: "altered"}
	busy := tried
	busy.busy = true
	nothing := record{settled: settled{}, namespaceUID: "1"}
	stillAltered := nothing
	stillAltered.retry.altered = byAdmission.retry.altered
	inCall := nothing
	inCall.busy = true
	for name, tc := range map[string]struct {
		known record
		state plan.State
		want  record
	}{
		"in sync":                     {tried, plan.StateSynced, nothing.with(blue)},
		"in sync, altered before":     {byAdmission, plan.StateSynced, nothing.with(blue)},
		"held":                        {tried.with(blue), plan.StateHeld, nothing},
		"held, altered by admission":  {byAdmission, plan.StateHeld, stillAltered},
		"held, another was altered":   {before, plan.StateHeld, nothing},
		"no copy is wanted":           {tried.with(blue), plan.StateNone, nothing},
		"no copy is wanted in a call": {busy.with(blue), plan.StateNone, inCall},
	} {
		t.Run(name, func(t *testing.T) {
			known := tc.known
			known.rest(&facts{have: have, change: plan.Change{Source: blue, State: tc.state}})
			if known != tc.want {
				t.Errorf("got %+v, want %+v", known, tc.want)
			}
			isDone := tc.state != plan.StateHeld
			known.state = tc.state
			if known.isDone() != isDone {
				t.Errorf("got done %v, want %v", known.isDone(), isDone)
			}
		})
	}
}

// TestObserveClaim is the table of what is recorded of a copy that no source
// claims.
func TestObserveClaim(t *testing.T) {
	have := plantest.ConfigMap("team-a", "settings")
	other := plantest.ConfigMap("team-a", "settings")
	other.UID = "other"
	gone := plan.Unclaimed{Rule: plan.SourceGone}
	excluded := plan.Unclaimed{Rule: plan.ExcludedByOptOut}
	before := unclaimed{uid: have.UID, since: epoch.Add(-time.Minute), why: gone, line: 3}
	remove := func(have *corev1.ConfigMap, why plan.Unclaimed) plan.Change {
		return plan.Change{Op: plan.OpDelete, Have: have, Why: why}
	}
	for name, tc := range map[string]struct {
		known unclaimed
		c     plan.Change
		want  unclaimed
	}{
		"for the first time": {unclaimed{}, remove(have, gone), unclaimed{uid: have.UID, why: gone}},
		"again":              {before, remove(have, gone), before},
		"another object":     {before, remove(other, gone), unclaimed{uid: "other", why: gone}},
		"for another reason": {before, remove(have, excluded), unclaimed{uid: have.UID, since: before.since, why: excluded}},
		"claimed":            {before, plan.Change{Op: plan.OpNone, Have: have, State: plan.StateSynced}, unclaimed{}},
		"held":               {before, plan.Change{Op: plan.OpNone, Have: have, State: plan.StateHeld}, unclaimed{}},
	} {
		t.Run(name, func(t *testing.T) {
			known := record{unclaimed: tc.known}
			known.observe(&facts{have: have, change: tc.c, now: epoch})
			if known.unclaimed != tc.want {
				t.Errorf("got %+v, want %+v", known.unclaimed, tc.want)
			}
		})
	}
}

// TestWhatEndsAWaitEarly is the table of what ends the wait for the next try, after a try of blue at resourceVersion 7.
func TestWhatEndsAWaitEarly(t *testing.T) {
	blue, green := parsed(sourceIn("platform")), parsed(sourceIn("platform", data("green")))
	base := parsed(sourceIn("base")) // its content is that of blue
	inTheWay := standing{state: plan.StateForeign}
	refused := failing(blue, outcome.Rejected, 1, 0, standing{})
	foreign := failing(blue, outcome.Foreign, 1, 0, inTheWay)
	nine, often, oftenForeign := refused, refused, foreign
	nine.retry.failures = 9
	often.retry.failures, oftenForeign.retry.failures = 10, 10
	stored := refused
	stored.retry.stored = "8"
	for name, tc := range map[string]struct {
		known record
		now   *plan.Source
		have  string // the resourceVersion; empty: nothing is there
		want  bool
	}{
		"nothing":                         {refused, blue, "7", false},
		"other content":                   {refused, green, "7", true},
		"equal content of another source": {refused, base, "7", true},
		"no content":                      {refused, nil, "7", true},
		"edited":                          {refused, blue, "8", true},
		"gone":                            {refused, blue, "", true},
		"foreign: other content":          {foreign, green, "7", false},
		"foreign: edited":                 {foreign, blue, "8", true},
		"stored by the try":               {stored, blue, "8", false},
		"stored, and edited":              {stored, blue, "9", true},
		"nine times: edited":              {nine, blue, "8", true},
		"often: other content":            {often, green, "7", true},
		"C47 often: edited":               {often, blue, "8", false},
		"C12 often foreign: adopted":      {oftenForeign, blue, "8", true},
		"C47 often foreign: not there":    {oftenForeign, blue, "", false},
	} {
		t.Run(name, func(t *testing.T) {
			f := &facts{change: plan.Change{Source: tc.now}}
			if tc.have != "" {
				f.have = plantest.ConfigMap("team-a", "settings", withVersion(tc.have))
			}
			if got := tc.known.isTriggered(f); got != tc.want {
				t.Errorf("got the end of the wait %v, want %v", got, tc.want)
			}
		})
	}
}

// TestFailuresOfATarget goes through failures in a row. Their waits double, although reasons take turns. The second
// refusal rejects, or one that took long. No answer says nothing about the target. Case C72.
func TestFailuresOfATarget(t *testing.T) {
	const ms, s = time.Millisecond, time.Second
	blue := parsed(sourceIn("platform"))
	refusal := errors.New("quota")
	rejected, none := standing{state: plan.StateRejected, owner: blue.Key, note: "why"}, standing{}
	foreign := standing{plan.StateForeign, blue.Key, "why", true}
	type failure struct {
		outcome outcome.Outcome
		err     error
		took    time.Duration
		wait    time.Duration
		shown   standing
	}
	for name, failures := range map[string][]failure{
		"no answer": {{outcome.Unavailable, errAway, s, 50 * ms, none}, {outcome.Unavailable, errAway, s, 100 * ms, none}},
		"two refusals": {{outcome.Rejected, refusal, s, 1 * s, none}, {outcome.Rejected, refusal, s, 2 * s, rejected},
			{outcome.Unavailable, errAway, s, 200 * ms, rejected}, {outcome.Foreign, nil, s, 8 * s, foreign},
			{outcome.Unavailable, errAway, s, 800 * ms, foreign}, {outcome.Conflict, refusal, s, 1600 * ms, none}},
		"refusals around no answer": {
			{outcome.Rejected, refusal, s, 1 * s, none}, {outcome.Rejected, refusal, s, 2 * s, rejected},
			{outcome.Unavailable, errAway, s, 200 * ms, rejected}, {outcome.Rejected, refusal, s, 8 * s, rejected}},
		"a refusal that passes": {{outcome.Rejected, refusal, s, 1 * s, none},
			{outcome.Conflict, refusal, s, 100 * ms, none}},
		"a refusal in 10 s":      {{outcome.Rejected, refusal, 10 * s, 1 * s, rejected}},
		"the whole timeout":      {{outcome.Rejected, context.DeadlineExceeded, s, 1 * s, rejected}},
		"altered":                {{outcome.Rejected, outcome.ErrAltered, s, 1 * s, rejected}},
		"a foreign object, gone": {{outcome.Foreign, nil, s, 1 * s, foreign}, {outcome.Conflict, refusal, s, 100 * ms, none}},
	} {
		t.Run(name, func(t *testing.T) {
			now := epoch
			known := record{}.with(blue)
			inSync := known.content
			have := plantest.ConfigMap("team-a", "settings")
			for i, f := range failures {
				now = now.Add(time.Hour)
				known.failed(&result{
					change:    plan.Change{Op: plan.OpUpdate, Source: blue, Owner: blue.Key},
					outcome:   f.outcome,
					err:       f.err,
					note:      "why",
					adoptable: true,
					began:     now.Add(-f.took),
				}, have, time.Time{}, now)
				want := retry{
					outcome:   f.outcome,
					failures:  i + 1,
					notBefore: now.Add(f.wait),
					standing:  f.shown,
					content:   contentOf(blue),
					have:      "7",
				}
				if known.retry != want {
					t.Errorf("failure %d: got %+v, want %+v", i+1, known.retry, want)
				}
				if f.outcome == outcome.Foreign {
					inSync = content{}
				}
				if known.content != inSync {
					t.Errorf("failure %d: got in sync with %+v, want %+v", i+1, known.content, inSync)
				}
			}
		})
	}
	known := failing(blue, outcome.Rejected, 2, 0, rejected)
	ofAnother := plan.Change{Owner: settings("base")}
	known.failed(&result{change: ofAnother, outcome: outcome.Unavailable, err: errAway}, nil, time.Time{}, epoch)
	if known.retry.standing != none {
		t.Errorf("no answer about another source: got %+v, want nothing known", known.retry.standing)
	}
}

// TestBusyForAMinute is the table of tries whose answers were retryable, 409 in each
// but the one in the middle. The last one rejects if a minute has passed, and some
// write was carried out meanwhile. Case C85.
func TestBusyForAMinute(t *testing.T) {
	const s = time.Second
	blue := parsed(sourceIn("platform"))
	conflict := apierrors.NewConflict(corev1.Resource("configmaps"), "settings", errAway)
	for name, tc := range map[string]struct {
		middle  error
		last    time.Duration
		written time.Duration // some write elsewhere
		want    plan.State
	}{
		"a minute":                         {conflict, time.Minute, 30 * s, plan.StateRejected},
		"less":                             {conflict, time.Minute - 1, 30 * s, plan.StateNone},
		"no write was carried out":         {conflict, time.Minute, -s, plan.StateNone},
		"another answer in the middle":     {errors.New("quota"), time.Minute, 30 * s, plan.StateNone},
		"a try that came to no call there": {nil, time.Minute, 30 * s, plan.StateRejected},
	} {
		t.Run(name, func(t *testing.T) {
			known := record{}
			for _, try := range []struct {
				after time.Duration
				err   error
			}{{0, conflict}, {20 * s, tc.middle}, {tc.last, conflict}} {
				now := epoch.Add(try.after)
				known.failed(&result{
					change:  plan.Change{Op: plan.OpUpdate, Source: blue, Owner: blue.Key},
					outcome: outcome.Conflict,
					err:     try.err,
					began:   now,
				}, nil, epoch.Add(tc.written), now)
			}
			if got := known.retry.standing.state; got != tc.want {
				t.Errorf("got state %v, want %v", got, tc.want)
			}
		})
	}
}

// TestAlteredStaysRejected: while the object is there that admission made of our own write, the reason is admission,
// and nobody is advised to hand it over. Another object is in the way, and so is this one while it is being deleted.
// Case C68.
func TestAlteredStaysRejected(t *testing.T) {
	blue := parsed(sourceIn("platform"))
	known := record{}
	known.failed(&result{
		change:  plan.Change{Op: plan.OpCreate, Source: blue, Owner: blue.Key},
		outcome: outcome.Rejected,
		err:     outcome.ErrAltered,
		note:    "altered",
		stored:  plantest.ConfigMap("team-a", "settings"),
		began:   epoch,
	}, nil, time.Time{}, epoch)
	own := plantest.ConfigMap("team-a", "settings")
	if known.isTriggered(&facts{have: own, change: plan.Change{Source: blue}}) {
		t.Error("got the end of the wait by the event of our own write")
	}
	foreign := plan.Change{Source: blue, Owner: blue.Key, State: plan.StateForeign, Note: "theirs", Adoptable: true}
	inTheWay := standing{plan.StateForeign, blue.Key, "theirs", true}
	byAdmission := standing{state: plan.StateRejected, owner: blue.Key, note: "altered"}
	for name, tc := range map[string]struct {
		change plantest.Option
		want   standing
	}{
		"the same":      {func(*corev1.ConfigMap) {}, byAdmission},
		"being deleted": {plantest.Deleting, inTheWay},
		"another":       {func(cm *corev1.ConfigMap) { cm.UID = "other" }, inTheWay},
	} {
		t.Run(name, func(t *testing.T) {
			own := known
			have := plantest.ConfigMap("team-a", "settings", tc.change)
			got, _, _ := own.decided(&facts{have: have, change: foreign, version: "9", now: epoch.Add(time.Hour)})
			if got != tc.want {
				t.Errorf("got %+v, want %+v", got, tc.want)
			}
		})
	}
}

// TestAlteredIsCreatedAgainForOtherContent: admission made an object of our own
// write immutable. Other content brings a re-creation, also if the first try of
// that failed.
func TestAlteredIsCreatedAgainForOtherContent(t *testing.T) {
	blue, green := parsed(sourceIn("platform")), parsed(sourceIn("platform", data("green")))
	have := plantest.ConfigMap("team-a", "settings")
	recreate := func(s *plan.Source) plan.Change {
		return plan.Change{Op: plan.OpRecreate, Source: s, Have: have, State: plan.StatePending, Owner: s.Key}
	}
	known := record{}
	known.failed(&result{
		change:  recreate(blue),
		outcome: outcome.Rejected,
		err:     outcome.ErrAltered,
		stored:  have,
		began:   epoch,
	}, nil, time.Time{}, epoch)
	afterAConflict := known
	conflict := &result{change: recreate(green), outcome: outcome.Conflict, err: errAway, began: epoch}
	afterAConflict.failed(conflict, have, time.Time{}, epoch)
	for name, tc := range map[string]struct {
		known record
		s     *plan.Source
		act   bool
	}{
		"the same content":                {known, blue, false},
		"other content":                   {known, green, true},
		"other content, after a conflict": {afterAConflict, green, true},
	} {
		t.Run(name, func(t *testing.T) {
			own := tc.known
			later := &facts{have: have, change: recreate(tc.s), version: "9", now: epoch.Add(time.Hour)}
			if stands, act, _ := own.decided(later); act != tc.act {
				t.Errorf("got act %v, %+v, want %v", act, stands, tc.act)
			}
		})
	}
}

// TestWhatAWriteLeaves is the table of what is known after a change was carried
// out.
func TestWhatAWriteLeaves(t *testing.T) {
	blue, green := parsed(sourceIn("platform")), parsed(sourceIn("platform", data("green")))
	have := plantest.ConfigMap("team-a", "settings")
	stored := plantest.ConfigMap("team-a", "settings", withVersion("41"))
	fought := record{repairs: repairs{3, epoch.Add(-time.Hour)}}.with(blue)
	wrote := record{lastWrite: ownWrite{version: "41", at: epoch}}
	repaired := wrote.with(blue)
	repaired.repairs = repairs{4, epoch}
	notRepaired := wrote.with(blue)
	notRepaired.repairs = fought.repairs
	for name, tc := range map[string]struct {
		known, want record
		res         result
	}{
		"a creation": {failing(blue, outcome.Rejected, 3, 0, standing{}), wrote.with(blue),
			result{change: plan.Change{Op: plan.OpCreate, Source: blue}, stored: stored}},
		"a re-creation": {record{}, record{lastWrite: ownWrite{"41", have.UID, epoch}}.with(blue),
			result{change: plan.Change{Op: plan.OpRecreate, Source: blue, Have: have}, stored: stored}},
		"a deletion": {record{}.with(blue), record{lastWrite: ownWrite{"", have.UID, epoch}},
			result{change: plan.Change{Op: plan.OpDelete, Have: have}}},
		"a repair": {fought, repaired,
			result{change: plan.Change{Op: plan.OpUpdate, Source: blue, Have: have}, stored: stored, isRepair: true}},
		"other content": {fought, wrote.with(green),
			result{change: plan.Change{Op: plan.OpUpdate, Source: green, Have: have}, stored: stored}},
		"the same content": {fought, notRepaired,
			result{change: plan.Change{Op: plan.OpUpdate, Source: blue, Have: have}, stored: stored}},
	} {
		t.Run(name, func(t *testing.T) {
			known := tc.known
			if known.succeeded(&tc.res, epoch); known != tc.want {
				t.Errorf("got %+v, want %+v", known, tc.want)
			}
		})
	}
}

// TestOwnWriteIsUnseen is the table of what the cache shows after our own write.
func TestOwnWriteIsUnseen(t *testing.T) {
	created := ownWrite{version: "41"}
	deleted := ownWrite{deleted: "1"}
	recreated := ownWrite{version: "41", deleted: "1"}
	isDeleting := plantest.Deleting
	for name, tc := range map[string]struct {
		write   ownWrite
		version string            // up to which the cache has seen everything
		uid     types.UID         // of the object there; empty: none
		change  []plantest.Option // of that object
		unseen  bool
	}{
		"nothing was written":           {ownWrite{}, "40", "1", nil, false},
		"a creation, not seen":          {created, "40", "", nil, true},
		"a creation, seen":              {created, "41", "2", nil, false},
		"an update, not seen":           {created, "40", "1", nil, true},
		"a version that has no order":   {created, "", "", nil, false},
		"a deletion, not seen":          {deleted, "40", "1", nil, true},
		"a deletion, seen":              {deleted, "40", "", nil, false},
		"a deletion that is kept":       {deleted, "40", "1", []plantest.Option{isDeleting}, false},
		"a deletion, another object":    {deleted, "40", "3", nil, false},
		"a re-creation, not seen":       {recreated, "40", "1", nil, true},
		"the first half of one, seen":   {recreated, "40", "", nil, true},
		"a re-creation, seen":           {recreated, "41", "2", nil, false},
		"a re-creation, of a later one": {recreated, "42", "", nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			var have *corev1.ConfigMap
			if tc.uid != "" {
				have = plantest.ConfigMap("team-a", "settings", tc.change...)
				have.UID = tc.uid
			}
			if got := tc.write.isAwaited(have, tc.version); got != tc.unseen {
				t.Errorf("got unseen %v, want %v", got, tc.unseen)
			}
		})
	}
}

// TestSettledRecordsAreShared: all records of targets in sync with a source are one
// struct, after the event of their last write. Former contents, namespaces, repairs
// and fan-outs leave none.
func TestSettledRecordsAreShared(t *testing.T) {
	inScene(append(teams(100, "team-"), source()), func(t *testing.T, s scene) {
		known := func() (targets, structs, shared int) {
			n := s.controller.records.lock("settings")
			defer n.unlock()
			all := map[*record]bool{}
			for _, t := range n.byNamespace {
				all[t] = true
			}
			return len(n.byNamespace), len(all), len(n.shared)
		}
		for _, content := range []string{"one", "two", "three"} {
			s.edit("platform", data(content))
			time.Sleep(time.Minute)
			s.wantCopies(100, "team-", content)
			if targets, structs, shared := known(); targets != 100 || structs != 1 || shared > 4 {
				t.Errorf("%s: got %d structs of %d targets, and %d kept to be shared", content, structs, targets, shared)
			}
		}
		s.removeNamespace("team-002")
		for i := range 10 {
			s.edit(fmt.Sprintf("team-%03d", 10+i), data("theirs"))
			time.Sleep(2 * calm)
			s.controller.fanOut("settings")
		}
		if targets, structs, _ := known(); targets != 99 || structs != 1 {
			t.Errorf("after repairs and fan-outs: got %d structs of %d targets", structs, targets)
		}
	})(t)
}

// TestEventDecidesAtOnce: no report counts without what an event shows, be it of
// a copy or of a namespace. The reconcile comes later.
func TestEventDecidesAtOnce(t *testing.T) {
	src := sourceIn("platform")
	for name, tc := range map[string]struct {
		there []runtime.Object
		event func(*handlers)
	}{
		"a copy is gone": {nil, func(h *handlers) { h.targetChanged(settings("team-a")) }},
		"a copy is edited": {[]runtime.Object{plantest.Copy(teamRules(), src, "team-a", data("theirs"))},
			func(h *handlers) { h.targetChanged(settings("team-a")) }},
		"a namespace appears": {nil, func(h *handlers) {
			h.namespaceChanged("team-a", plantest.Namespace("team-a"))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			c := stillController(t, append(tc.there, src, plantest.Namespace("team-a"))...)
			c.handlers.active.Store(true)
			tc.event(c.handlers)
			n := c.records.lock("settings")
			defer n.unlock()
			if n.pending != 1 {
				t.Errorf("got %d targets pending, want 1", n.pending)
			}
		})
	}
}
