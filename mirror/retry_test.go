package mirror

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/mirror-controller/mirror-controller/mirror/plan"
	"github.com/mirror-controller/mirror-controller/mirror/plan/plantest"
)

var configMapResource = schema.GroupResource{Resource: "configmaps"}

// namespaceTerminating is the API server's answer to a create in a namespace that is being deleted.
func namespaceTerminating() error {
	err := apierrors.NewForbidden(configMapResource, "settings", errors.New("being terminated"))
	err.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
	return err
}

func TestReasonOf(t *testing.T) {
	why := errors.New("why")
	for name, tc := range map[string]struct {
		err                    error
		create, update, delete reason // that of a recreate is the one of an update
		answered               bool
	}{
		"nothing":                   {nil, noRetry, noRetry, noRetry, false},
		"namespace terminating":     {namespaceTerminating(), terminating, terminating, terminating, true},
		"not found":                 {apierrors.NewNotFound(configMapResource, "settings"), terminating, conflict, conflict, true},
		"conflict":                  {apierrors.NewConflict(configMapResource, "settings", why), transient, conflict, conflict, true},
		"already exists":            {apierrors.NewAlreadyExists(configMapResource, "settings"), conflict, conflict, conflict, true},
		"forbidden":                 {apierrors.NewForbidden(configMapResource, "settings", why), rejected, rejected, rejected, true},
		"invalid":                   {apierrors.NewInvalid(schema.GroupKind{Kind: "ConfigMap"}, "settings", nil), rejected, rejected, rejected, true},
		"bad request":               {apierrors.NewBadRequest("why"), rejected, rejected, rejected, true},
		"too large":                 {apierrors.NewRequestEntityTooLargeError("why"), rejected, rejected, rejected, true},
		"method not supported":      {apierrors.NewMethodNotSupported(configMapResource, "create"), rejected, rejected, rejected, true},
		"too many requests":         {apierrors.NewTooManyRequests("why", 1), transient, transient, transient, false},
		"unavailable":               {apierrors.NewServiceUnavailable("why"), transient, transient, transient, false},
		"internal error":            {apierrors.NewInternalError(why), transient, transient, transient, true},
		"timeout of the API server": {apierrors.NewTimeoutError("why", 1), transient, transient, transient, true},
		"unauthorized":              {apierrors.NewUnauthorized("why"), transient, transient, transient, true},
		"connection broken":         {&url.Error{Op: "Put", URL: "https://x", Err: io.ErrUnexpectedEOF}, transient, transient, transient, false},
		"out of time":               {context.DeadlineExceeded, transient, transient, transient, false},
		"leadership lost":           {errNotLeading, transient, transient, transient, false},
		"cut":                       {errNoPlace, transient, transient, transient, false},
	} {
		t.Run(name, func(t *testing.T) {
			all := []error{tc.err}
			if tc.err != nil {
				all = append(all, fmt.Errorf("write the copy: %w", tc.err))
			}
			for _, err := range all {
				for op, want := range map[plan.Op]reason{plan.OpCreate: tc.create, plan.OpUpdate: tc.update, plan.OpRecreate: tc.update, plan.OpDelete: tc.delete} {
					if got := reasonOf(op, err); got != want {
						t.Errorf("%v of %v: got %v, want %v", err, op, got, want)
					}
				}
				if got := answered(err); got != tc.answered {
					t.Errorf("%v: got answered %v, want %v", err, got, tc.answered)
				}
			}
		})
	}
}

// TestBackoff: quick ones double from 50 ms to 15 seconds, and slow ones from a second to a minute.
func TestBackoff(t *testing.T) {
	const ms, s = time.Millisecond, time.Second
	quick := []time.Duration{50 * ms, 100 * ms, 200 * ms, 400 * ms, 800 * ms, 1600 * ms, 3200 * ms, 6400 * ms, 12800 * ms, 15 * s, 15 * s}
	slow := []time.Duration{s, 2 * s, 4 * s, 8 * s, 16 * s, 32 * s, 60 * s, 60 * s}
	for r, want := range map[reason][]time.Duration{conflict: quick, terminating: quick, transient: quick, rejected: slow, foreign: slow} {
		for i, delay := range want {
			if got := reasons[r].pace.backoff(i + 1); got != delay {
				t.Errorf("%v, failure %d: got %v, want %v", r, i+1, got, delay)
			}
		}
		if got, longest := reasons[r].pace.backoff(1<<40), want[len(want)-1]; got != longest {
			t.Errorf("%v, for ever: got %v, want %v", r, got, longest)
		}
	}
}

// TestHold: the first repairs happen at once, and the next ones ever later, up to once a minute.
func TestHold(t *testing.T) {
	for repairs, want := range map[int]time.Duration{0: 0, 1: 0, 9: 0, 10: 1, 11: 2, 12: 4, 13: 8, 14: 16, 15: 32, 16: 60, 17: 60, 1 << 40: 60} {
		if got := hold(repairs); got != want*time.Second {
			t.Errorf("after %d repairs: got %v, want %v", repairs, got, want*time.Second)
		}
	}
}

// TestFail goes through failures of one target: each reason has its own count. A problem stays one until it is known to be
// over.
func TestFail(t *testing.T) {
	const ms, s = time.Millisecond, time.Second
	c := plan.Change{Op: plan.OpCreate, Source: parsed(sourceIn("platform"))}
	synced := content{checksum: "before"}
	now, rec := time.Unix(5000, 0), record{basics: basics{content: synced}}
	for i, tc := range []struct {
		reason  reason
		result  plan.State
		wait    time.Duration
		state   plan.State
		content content
		note    string
	}{
		{transient, plan.StatePending, 50 * ms, plan.StatePending, synced, ""},
		{transient, plan.StatePending, 100 * ms, plan.StatePending, synced, ""},
		{rejected, plan.StateFailed, s, plan.StateFailed, synced, "why"},
		{rejected, plan.StateFailed, 2 * s, plan.StateFailed, synced, "why"},
		{transient, plan.StatePending, 50 * ms, plan.StateFailed, synced, "why"},
		{foreign, plan.StateForeign, s, plan.StateForeign, content{}, ""},
		{conflict, plan.StatePending, 50 * ms, plan.StateForeign, content{}, ""},
		{rejected, plan.StateFailed, s, plan.StateFailed, content{}, "why"},
	} {
		before := rec
		now = now.Add(time.Hour)
		wait := rec.fail(result{change: c, tried: contentOf(c.Source), reason: tc.reason, state: tc.result, err: errors.New("why"), began: now.Add(-time.Second)}, now)
		if wait != tc.wait || !rec.notBefore.Equal(now.Add(wait)) || rec.tried != contentOf(c.Source) {
			t.Errorf("failure %d: got a retry after %v, at %v, want %v", i, wait, rec.notBefore, tc.wait)
		}
		if want := (basics{tc.state, c.Source.Key, tc.content}); rec.basics != want || rec.note != tc.note {
			t.Errorf("failure %d: got %+v, %q, want %+v, %q", i, rec.basics, rec.note, want, tc.note)
		}
		if began := before.reason != tc.reason; rec.since.Equal(now.Add(-time.Second)) != began {
			t.Errorf("failure %d: got the first one of this reason at %v", i, rec.since)
		}
	}
	if rec.fail(result{change: c, reason: rejected, state: plan.StateFailed}, now); rec.note != "" {
		t.Errorf("no error: got the note %q, want none", rec.note)
	}
}

// TestConclude: a concluded record has no failures. Only a copy that is or was in sync has content.
func TestConclude(t *testing.T) {
	owner, blue, green := settings("platform"), content{checksum: "blue"}, content{checksum: "green"}
	for state, want := range map[plan.State]basics{
		plan.StateNone:    {},
		plan.StateSynced:  {plan.StateSynced, owner, blue},
		plan.StatePending: {plan.StatePending, owner, green},
		plan.StateFrozen:  {plan.StateFrozen, owner, content{}},
		plan.StateForeign: {plan.StateForeign, owner, content{}},
	} {
		now := time.Unix(5000, 0)
		rec := record{basics: basics{plan.StateFailed, settings("base"), green}, reason: rejected, failures: 3, since: now,
			notBefore: now, tried: blue, note: "no", appeared: now}
		rec.conclude(state, owner, blue, now)
		if rec.basics != want || !rec.isPlain() || rec.reason != noRetry || rec.failures != 0 || !rec.since.IsZero() || rec.tried != (content{}) {
			t.Errorf("%v: got %+v, want %+v and nothing else", state, rec, want)
		}
	}
}

// TestLastingAnswersAreRejections: errors that the API server answers for ten seconds count as a rejection. A webhook that it cannot call is
// one.
func TestLastingAnswersAreRejections(t *testing.T) {
	now := time.Unix(5000, 0)
	internal := apierrors.NewInternalError(errAway)
	ago := func(d time.Duration) time.Time { return now.Add(-d) }
	for name, tc := range map[string]struct {
		rec   record
		err   error
		began time.Time
		want  bool
	}{
		"the first":                  {record{}, internal, now, false},
		"the first, a long call":     {record{}, internal, ago(transientLimit), true},
		"just before":                {record{reason: transient, since: ago(transientLimit - 1)}, internal, now, false},
		"in time":                    {record{reason: transient, since: ago(transientLimit)}, internal, now, true},
		"no answer":                  {record{reason: transient, since: ago(transientLimit)}, errAway, now, false},
		"after a rejection":          {record{reason: rejected, since: now}, internal, now, true},
		"away after a rejection":     {record{reason: rejected, since: ago(time.Hour)}, errAway, now, false},
		"after another reason":       {record{reason: foreign, since: ago(time.Hour)}, internal, now, false},
		"a long call after another":  {record{reason: conflict, since: ago(time.Hour)}, internal, ago(transientLimit), true},
		"a server without time":      {record{reason: transient, since: ago(transientLimit)}, apierrors.NewTooManyRequests("later", 1), now, false},
		"a long call, and a shorter": {record{reason: transient, since: ago(time.Second)}, internal, ago(transientLimit), false},
	} {
		if got := lasts(&tc.rec, result{reason: transient, err: tc.err, began: tc.began}, now); got != tc.want {
			t.Errorf("%s: got a rejection %v, want %v", name, got, tc.want)
		}
	}
}

// TestRareRepairsAreNoFight, also if nothing happens in between.
func TestRareRepairsAreNoFight(t *testing.T) {
	c, _ := stillController(t, noEdit)
	s, now, rec := parsed(sourceIn("platform")), time.Unix(5000, 0), record{}
	for range freeRepairs + 2 {
		now = now.Add(24 * time.Hour)
		c.reconciler.recordWrite(&rec, result{change: plan.Change{Op: plan.OpUpdate, Key: settings("team-a"), Source: s}, repair: true, sent: true}, now)
		if rec.echo != (echo{}) {
			t.Fatalf("got %+v awaited although the cache does not know its version, want nothing", rec.echo)
		}
		if rec.conclude(plan.StateSynced, s.Key, contentOf(s), now); rec.repairs != 1 || rec.fight(now) > 0 {
			t.Fatalf("got %d repairs known, after one a day", rec.repairs)
		}
	}
}

// TestNext is the table of what happens next at a target.
func TestNext(t *testing.T) {
	now := time.Unix(5000, 0)
	blue, green := parsed(sourceIn("platform")), parsed(sourceIn("platform", plantest.Data("key", "green")))
	adoption := plan.Change{Op: plan.OpUpdate, Source: blue, Have: plantest.ConfigMap("team-a", "settings")}
	create, nothing := plan.Change{Op: plan.OpCreate, Source: blue}, plan.Change{Source: blue, State: plan.StateSynced}
	of := func(s *plan.Source, r record) record {
		r.content = contentOf(s)
		if !r.notBefore.IsZero() {
			r.tried = r.content
		}
		return r
	}
	awaited := echo{version: "41", at: now}
	later := now.Add(7 * time.Second)
	fighting := record{repairs: 13, repairedAt: now.Add(-time.Second)} // held for 8 seconds
	for name, tc := range map[string]struct {
		rec   record
		c     plan.Change
		event bool
		step  step
		wait  time.Duration
	}{
		"nothing known":                        {record{}, create, false, stepAct, 0},
		"nothing to do":                        {of(blue, record{}), nothing, true, stepNone, 0},
		"nothing to do, whatever happened":     {of(blue, record{reason: rejected, notBefore: later}), nothing, false, stepNone, 0},
		"our write is not there yet":           {of(blue, record{echo: awaited}), create, true, stepDone, 0},
		"nor there to compare":                 {of(blue, record{echo: awaited}), nothing, true, stepDone, 0},
		"our write has other content by now":   {of(green, record{echo: awaited}), create, true, stepEcho, time.Second},
		"a deletion is not there yet":          {of(nil, record{echo: awaited}), plan.Change{Op: plan.OpDelete}, true, stepDone, 0},
		"failed with this content":             {of(blue, record{reason: transient, notBefore: later}), create, false, stepWait, 7 * time.Second},
		"failed, and an event came":            {of(blue, record{reason: transient, notBefore: later}), create, true, stepAct, 0},
		"failed with other content":            {of(green, record{reason: rejected, notBefore: later}), create, false, stepAct, 0},
		"failed, and the time has come":        {of(blue, record{reason: rejected, notBefore: now}), create, false, stepAct, 0},
		"foreign, whatever the content":        {of(green, record{basics: basics{state: plan.StateForeign}, reason: transient, notBefore: later}), create, false, stepWait, 7 * time.Second},
		"foreign, and an event came":           {of(blue, record{basics: basics{state: plan.StateForeign}, reason: foreign, notBefore: later}), create, true, stepAct, 0},
		"C47 failed often, and an event came":  {of(blue, record{reason: rejected, failures: freeRepairs, notBefore: later}), create, true, stepWait, 7 * time.Second},
		"C47 foreign often, and an event came": {of(blue, record{reason: foreign, failures: freeRepairs, notBefore: later}), create, true, stepWait, 7 * time.Second},
		"C12 foreign often, and adopted":       {of(blue, record{reason: foreign, failures: freeRepairs, notBefore: later}), adoption, true, stepAct, 0},
		"an outage, and an event came":         {of(blue, record{reason: transient, failures: freeRepairs, notBefore: later}), create, true, stepAct, 0},
		"a fight about this content":           {of(blue, fighting), create, false, stepHold, 7 * time.Second},
		"a fight, and an event came":           {of(blue, fighting), create, true, stepHold, 7 * time.Second},
		"a fight about other content":          {of(green, fighting), create, true, stepAct, 0},
		"a fight, and the time has come":       {of(blue, record{repairs: 13, repairedAt: now.Add(-8 * time.Second)}), create, true, stepAct, 0},
		"a fight, and a failure":               {of(blue, record{repairs: 13, repairedAt: now, reason: rejected, notBefore: later}), create, false, stepWait, 7 * time.Second},
		"free repairs":                         {of(blue, record{repairs: freeRepairs - 1, repairedAt: now}), create, true, stepAct, 0},
		"a deletion that failed":               {of(nil, record{reason: rejected, notBefore: later}), plan.Change{Op: plan.OpDelete}, false, stepWait, 7 * time.Second},
		"in sync with it once, tried another":  {record{basics: basics{content: contentOf(blue)}, tried: contentOf(green), reason: rejected, notBefore: later}, create, false, stepAct, 0},
		"a deletion after another failure":     {of(blue, record{reason: rejected, notBefore: later}), plan.Change{Op: plan.OpDelete}, false, stepAct, 0},
		"of another source of equal content":   {of(parsed(sourceIn("base")), record{reason: rejected, notBefore: later}), create, false, stepAct, 0},
		"the echo of a write comes no longer":  {of(green, record{echo: echo{version: "41", at: now.Add(-time.Hour)}}), create, true, stepAct, 0},
	} {
		got, wait := tc.rec.next(plan.Target{Have: tc.c.Have}, tc.c, "9", tc.event, now)
		if got != tc.step || wait != tc.wait {
			t.Errorf("%s: got step %d after %v, want %d after %v", name, got, wait, tc.step, tc.wait)
		}
	}
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
		rec.conclude(plan.StateSynced, key{}, c, now)
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
	rec.conclude(plan.StateSynced, key{}, c, now)
	if rec.repairs != 12 {
		t.Errorf("got %d repairs known at the end of calm, want 12", rec.repairs)
	}
	if rec.conclude(plan.StateSynced, key{}, c, now.Add(1)); rec.repairs != 0 || !rec.repairedAt.IsZero() || !rec.isPlain() {
		t.Errorf("got %d repairs known after it, want none", rec.repairs)
	}
}
