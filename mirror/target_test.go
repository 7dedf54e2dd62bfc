package mirror

import (
	"context"
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mirror-controller/mirror-controller/mirror/internal/outcome"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
	"github.com/mirror-controller/mirror-controller/mirror/plan/plantest"
)

// epoch is the time at which targets are judged.
var epoch = time.Unix(5000, 0)

// with returns what is known of a target that was in sync with this content.
func (t target) with(s *plan.Source) target {
	t.content = contentOf(s)
	return t
}

// failing returns what is known of a target whose last try, for this content at resourceVersion 7, had this outcome.
func failing(s *plan.Source, o outcome.Outcome, failures int, in time.Duration, shown standing) target {
	t := target{retry: retry{outcome: o, failures: failures, notBefore: epoch.Add(in), shown: shown, have: "7"}}
	t.retry.content = contentOf(s)
	return t
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
	wrote := func(s *plan.Source, ago time.Duration) target {
		return target{write: ownWrite{version: "41", at: epoch.Add(-ago)}}.with(s)
	}
	deleted := target{write: ownWrite{deleted: have.UID, at: epoch}}
	twice := failing(blue, outcome.Rejected, 2, 7*s, refused)
	due, fixed := twice, failing(green, outcome.Rejected, 2, 7*s, refused)
	due.retry.notBefore = epoch
	byOther, met := failing(green, outcome.Rejected, 2, 7*s, elsewhere), failing(green, outcome.Foreign, 1, 7*s, inTheWay)
	metBefore := met
	metBefore.retry.shown.owner = base
	once := failing(blue, outcome.Conflict, 1, 7*s, standing{})
	altered := failing(blue, outcome.Rejected, 1, 7*s, refused)
	altered.retry.made = have.UID
	fought := func(s *plan.Source, repairs int, ago time.Duration) target {
		return target{repairs: repairs, repairedAt: epoch.Add(-ago)}.with(s)
	}
	both := fought(blue, 12, 0)
	both.retry = failing(blue, outcome.Rejected, 1, 9*s, standing{}).retry
	unclaimedFor := func(d time.Duration) target { return target{unclaimed: unclaimed{since: epoch.Add(-d)}} }
	late := failing(nil, outcome.Conflict, 1, 7*s, standing{})
	late.unclaimed.since = epoch.Add(-grace)
	for name, tc := range map[string]struct {
		known target
		c     plan.Change
		act   bool
		wait  time.Duration
		want  plan.State
		note  string
	}{
		"nothing known":                       {target{}, update, true, 0, plan.StatePending, ""},
		"in sync":                             {target{}, nothing, false, 0, plan.StateSynced, ""},
		"in sync, while a call is on its way": {target{busy: true}, nothing, false, 0, plan.StatePending, ""},
		"in sync after all":                   {twice, nothing, false, 0, plan.StateSynced, ""},
		"held":                                {twice, held, false, 0, plan.StateHeld, ""},
		"foreign":                             {target{}.with(blue), foreign, false, 0, plan.StateForeign, "theirs"},
		"foreign by admission":                {altered, foreign, false, 0, plan.StateRejected, "quota"},
		"no copy is wanted":                   {target{}.with(blue), plan.Change{}, false, 0, plan.StateNone, ""},

		"our write is unseen":                  {wrote(blue, s), update, false, maxUnseen - s, plan.StateSynced, ""},
		"our write is unseen, in sync":         {wrote(blue, s), nothing, false, maxUnseen - s, plan.StateSynced, ""},
		"our write is unseen, other content":   {wrote(green, s), update, false, maxUnseen - s, plan.StatePending, ""},
		"our write is unseen for a minute":     {wrote(blue, maxUnseen), update, true, 0, plan.StatePending, ""},
		"our deletion is unseen":               {deleted, remove, false, maxUnseen, plan.StateNone, ""},
		"our deletion is unseen, wanted again": {deleted, update, false, maxUnseen, plan.StatePending, ""},
		"changed 30 ms after our write": {target{write: ownWrite{at: epoch.Add(-runGap + 70)}}.with(green), update, false,
			70, plan.StatePending, ""},
		"edited 30 ms after our write": {target{write: ownWrite{at: epoch.Add(-runGap + 70)}}.with(blue), update, true,
			0, plan.StatePending, ""},

		"failed":                           {once, update, false, 7 * s, plan.StatePending, ""},
		"refused":                          {twice, update, false, 7 * s, plan.StateRejected, "quota"},
		"refused, and due":                 {due, update, true, 0, plan.StateRejected, "quota"},
		"refused another content":          {fixed, update, true, 0, plan.StateRejected, "quota"},
		"refused another source":           {byOther, update, true, 0, plan.StatePending, ""},
		"found foreign":                    {met, update, false, 7 * s, plan.StateForeign, "theirs"},
		"found foreign for another source": {metBefore, update, false, 7 * s, plan.StateForeign, "theirs"},

		"expires":           {unclaimedFor(3 * s), remove, false, 7 * s, plan.StateExpiring, ""},
		"the grace is over": {unclaimedFor(grace), remove, true, 0, plan.StateExpiring, ""},
		"a deletion failed": {late, remove, false, 7 * s, plan.StateExpiring, ""},
		"refused before":    {twice, remove, true, 0, plan.StateExpiring, ""},

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
		"a fight that may be over":   {fought(blue, 12, s), nothing, false, 7*s + calm, plan.StateFight, ""},
		"a fight until now":          {fought(blue, 12, 8*s+calm), nothing, false, 1, plan.StateFight, ""},
		"a fight that is over":       {fought(blue, 12, 8*s+calm+1), nothing, false, 0, plan.StateSynced, ""},
		"repairs long ago":           {fought(blue, 12, 8*s+calm+1), update, true, 0, plan.StatePending, ""},
	} {
		known := tc.known
		act, wait := known.next(plan.Target{Have: have}, tc.c, "9", grace, epoch)
		owner := map[bool]key{true: blue.Key}[tc.want != plan.StateNone]
		if act != tc.act || wait != tc.wait || known.state != tc.want || known.note != tc.note || known.owner != owner {
			t.Errorf("%s: got act %v, wait %v, %+v, want %v, %v, %v, %q", name, act, wait, known.standing, tc.act, tc.wait,
				tc.want, tc.note)
		}
		if (tc.want == plan.StateNone || tc.c.State == plan.StateForeign) && known.content != (content{}) {
			t.Errorf("%s: got the content %+v, want none", name, known.content)
		}
	}
	rested := twice
	if rested.next(plan.Target{Have: have}, nothing, "9", grace, epoch); !rested.isPlain() || !rested.isDone() ||
		rested.content != contentOf(blue) {
		t.Errorf("in sync: got %+v, want what plain targets share", rested)
	}
}

// TestJudgeUnclaimed is the table of what is recorded of a copy that no source claims, and of what is announced.
func TestJudgeUnclaimed(t *testing.T) {
	have := plantest.ConfigMap("team-a", "settings")
	other := plantest.ConfigMap("team-a", "settings")
	other.UID = "other"
	gone, excluded := plan.Unclaimed{Rule: plan.SourceGone}, plan.Unclaimed{Rule: plan.ExcludedByOptOut}
	before := unclaimed{have.UID, epoch.Add(-time.Minute), gone, true}
	for name, tc := range map[string]struct {
		known    unclaimed
		c        plan.Change
		want     unclaimed
		announce bool
	}{
		"for the first time": {unclaimed{}, plan.Change{Op: plan.OpDelete, Have: have, Why: gone},
			unclaimed{have.UID, epoch, gone, false}, true},
		"again": {before, plan.Change{Op: plan.OpDelete, Have: have, Why: gone}, before, false},
		"another object": {before, plan.Change{Op: plan.OpDelete, Have: other, Why: gone},
			unclaimed{"other", epoch, gone, false}, true},
		"for another reason": {before, plan.Change{Op: plan.OpDelete, Have: have, Why: excluded},
			unclaimed{have.UID, before.since, excluded, false}, true},
		"claimed": {before, plan.Change{Op: plan.OpNone, Have: have, State: plan.StateSynced}, unclaimed{}, false},
		"held":    {before, plan.Change{Op: plan.OpNone, Have: have, State: plan.StateHeld}, unclaimed{}, false},
	} {
		known := target{unclaimed: tc.known}
		if announce := known.judge(tc.c, epoch); announce != tc.announce || known.unclaimed != tc.want {
			t.Errorf("%s: got %+v, to announce %v, want %+v, %v", name, known.unclaimed, announce, tc.want, tc.announce)
		}
	}
}

// TestWhatEndsAWaitEarly is the table of what ends the wait for the next try, after a try of blue at resourceVersion 7.
func TestWhatEndsAWaitEarly(t *testing.T) {
	blue, green := parsed(sourceIn("platform")), parsed(sourceIn("platform", data("green")))
	base := parsed(sourceIn("base")) // its content is that of blue
	inTheWay := standing{state: plan.StateForeign}
	refused := failing(blue, outcome.Rejected, 1, 0, standing{})
	foreign := failing(blue, outcome.Foreign, 1, 0, inTheWay)
	often, oftenForeign := refused, foreign
	often.retry.failures, oftenForeign.retry.failures = 10, 10
	for name, tc := range map[string]struct {
		known target
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
		"often: other content":            {often, green, "7", true},
		"C47 often: edited":               {often, blue, "8", false},
		"C12 often foreign: adopted":      {oftenForeign, blue, "8", true},
		"C47 often foreign: not there":    {oftenForeign, blue, "", false},
	} {
		at := plan.Target{}
		if tc.have != "" {
			at.Have = plantest.ConfigMap("team-a", "settings")
			at.Have.ResourceVersion = tc.have
		}
		if got := tc.known.isTriggered(at, plan.Change{Source: tc.now}); got != tc.want {
			t.Errorf("%s: got the end of the wait %v, want %v", name, got, tc.want)
		}
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
		now, known := epoch, target{}.with(blue)
		for i, f := range failures {
			now = now.Add(time.Hour)
			c := plan.Change{Op: plan.OpUpdate, Source: blue, Owner: blue.Key}
			known.failed(&result{change: c, outcome: f.outcome, err: f.err, note: "why", adoptable: true,
				began: now.Add(-f.took)}, plan.Target{Have: plantest.ConfigMap("team-a", "settings")}, now)
			want := retry{f.outcome, f.shown, "", i + 1, now.Add(f.wait), contentOf(blue), "7", ""}
			if known.retry != want {
				t.Errorf("%s, failure %d: got %+v, want %+v", name, i+1, known.retry, want)
			}
			if isForeign := f.outcome == outcome.Foreign; isForeign && known.content != (content{}) {
				t.Errorf("%s: got the content %+v of a foreign object", name, known.content)
			}
		}
	}
	known := failing(blue, outcome.Rejected, 2, 0, rejected)
	known.failed(&result{change: plan.Change{Owner: settings("base")}, outcome: outcome.Unavailable, err: errAway},
		plan.Target{}, epoch)
	if known.retry.shown != none {
		t.Errorf("no answer about another source: got %+v, want nothing known", known.retry.shown)
	}
}

// TestAlteredStaysRejected: while the object is there that admission made of our own write, the reason is admission,
// and nobody is advised to hand it over. Another object is in the way, and so is this one while it is being deleted.
// Case C68.
func TestAlteredStaysRejected(t *testing.T) {
	blue, made := parsed(sourceIn("platform")), plantest.ConfigMap("team-a", "settings")
	known := target{}
	known.failed(&result{change: plan.Change{Op: plan.OpCreate, Source: blue, Owner: blue.Key}, outcome: outcome.Rejected,
		err: outcome.ErrAltered, note: "altered", made: made, began: epoch}, plan.Target{}, epoch)
	foreign := plan.Change{Source: blue, Owner: blue.Key, State: plan.StateForeign, Note: "theirs", Adoptable: true}
	inTheWay := standing{plan.StateForeign, blue.Key, "theirs", true}
	for name, tc := range map[string]struct {
		change plantest.Option
		want   standing
	}{
		"the same":      {func(*corev1.ConfigMap) {}, standing{state: plan.StateRejected, owner: blue.Key, note: "altered"}},
		"being deleted": {plantest.Deleting, inTheWay},
		"another":       {func(cm *corev1.ConfigMap) { cm.UID = "other" }, inTheWay},
	} {
		have, copied := plantest.ConfigMap("team-a", "settings", tc.change), known
		if copied.next(plan.Target{Have: have}, foreign, "9", 0, epoch.Add(time.Hour)); copied.standing != tc.want {
			t.Errorf("%s: got %+v, want %+v", name, copied.standing, tc.want)
		}
	}
}

// TestWhatAWriteLeaves is the table of what is known after a change was carried out.
func TestWhatAWriteLeaves(t *testing.T) {
	blue, green := parsed(sourceIn("platform")), parsed(sourceIn("platform", data("green")))
	have, made := plantest.ConfigMap("team-a", "settings"), plantest.ConfigMap("team-a", "settings")
	made.ResourceVersion = "41"
	fought := target{repairs: 3, repairedAt: epoch.Add(-time.Hour)}.with(blue)
	for name, tc := range map[string]struct {
		known, want target
		res         result
	}{
		"a creation": {failing(blue, outcome.Rejected, 3, 0, standing{}), target{write: ownWrite{"41", "", epoch}}.with(blue),
			result{change: plan.Change{Op: plan.OpCreate, Source: blue}, made: made}},
		"a re-creation": {target{}, target{write: ownWrite{"41", have.UID, epoch}}.with(blue),
			result{change: plan.Change{Op: plan.OpRecreate, Source: blue, Have: have}, made: made}},
		"a deletion": {target{}.with(blue), target{write: ownWrite{"", have.UID, epoch}},
			result{change: plan.Change{Op: plan.OpDelete, Have: have}}},
		"a repair": {fought, target{write: ownWrite{"41", "", epoch}, repairs: 4, repairedAt: epoch}.with(blue),
			result{change: plan.Change{Op: plan.OpUpdate, Source: blue, Have: have}, made: made, repair: true}},
		"other content": {fought, target{write: ownWrite{"41", "", epoch}}.with(green),
			result{change: plan.Change{Op: plan.OpUpdate, Source: green, Have: have}, made: made}},
		"the same content": {fought,
			target{write: ownWrite{"41", "", epoch}, repairs: 3, repairedAt: fought.repairedAt}.with(blue),
			result{change: plan.Change{Op: plan.OpUpdate, Source: blue, Have: have}, made: made}},
	} {
		if tc.known.wrote(&tc.res, epoch); tc.known != tc.want {
			t.Errorf("%s: got %+v, want %+v", name, tc.known, tc.want)
		}
	}
}

// TestEventShowsOurOwnWrite is the table of the events that end the wait for our own write.
func TestEventShowsOurOwnWrite(t *testing.T) {
	created, deleted, recreated := ownWrite{version: "41"}, ownWrite{deleted: "1"}, ownWrite{version: "41", deleted: "1"}
	for name, tc := range map[string]struct {
		write          ownWrite
		version        string
		uid            types.UID
		deleted, shows bool
		left           ownWrite
	}{
		"our own creation":          {created, "41", "2", false, true, ownWrite{}},
		"another write":             {created, "40", "2", false, false, created},
		"a deletion":                {created, "41", "2", true, false, created},
		"our own deletion":          {deleted, "40", "1", true, true, ownWrite{}},
		"that of another object":    {deleted, "40", "3", true, false, deleted},
		"an edit before":            {deleted, "40", "1", false, false, deleted},
		"the half of a re-creation": {recreated, "40", "1", true, true, created},
		"a re-creation":             {recreated, "41", "2", false, true, ownWrite{}},
	} {
		cm := plantest.ConfigMap("team-a", "settings")
		cm.UID, cm.ResourceVersion = tc.uid, tc.version
		if shows := tc.write.shownBy(cm, tc.deleted); shows != tc.shows || tc.write != tc.left {
			t.Errorf("%s: got shown %v, left %+v, want %v, %+v", name, shows, tc.write, tc.shows, tc.left)
		}
	}
}

// TestPlainTargetsAreShared: all targets in sync with a source have one struct, after the event of their last write.
// Former contents and namespaces leave none.
func TestPlainTargetsAreShared(t *testing.T) {
	inScene(append(teams(100, "team-"), source()), func(t *testing.T, s scene) {
		known := func() (targets, structs, shared int) {
			n := s.controller.targets.lock("settings")
			defer n.unlock()
			all := map[*target]bool{}
			for _, t := range n.known {
				all[t] = true
			}
			return len(n.known), len(all), len(n.shared)
		}
		for _, content := range []string{"one", "two", "three"} {
			s.edit("platform", data(content))
			time.Sleep(time.Minute)
			if targets, structs, shared := known(); targets != 100 || structs != 1 || shared > 4 {
				t.Errorf("%s: got %d structs of %d targets, and %d kept to be shared", content, structs, targets, shared)
			}
		}
		s.edit("team-001", data("theirs"))
		s.removeNamespace("team-002")
		time.Sleep(time.Hour)
		if targets, structs, _ := known(); targets != 99 || structs > 2 {
			t.Errorf("after an edit: got %d structs of %d targets", structs, targets)
		}
	})(t)
}

// TestEventUnsettles: an event about a copy in sync has the target pending until its reconcile, and so has a namespace
// that appears.
func TestEventUnsettles(t *testing.T) {
	inScene(append(teams(1, "team-"), source()), func(t *testing.T, s scene) {
		time.Sleep(time.Minute)
		n := s.controller.targets.lock("settings")
		defer n.unlock()
		if reconcile := n.observe("team-000", s.get("team-000"), true); !reconcile || n.pending != 1 {
			t.Errorf("got reconcile %v, and %d targets pending, want 1", reconcile, n.pending)
		}
	})(t)
	c := stillController(t, sourceIn("platform"), plantest.ConfigMap("team-b", "other"))
	c.handlers.active.Store(true)
	c.handlers.namespaceChanged("team-b", plantest.Namespace("team-b"), true)
	n := c.targets.lock("settings")
	defer n.unlock()
	if n.pending != 1 {
		t.Errorf("got %d targets pending before any reconcile, want the new namespace", n.pending)
	}
}
