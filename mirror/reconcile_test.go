package mirror

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"

	"github.com/mirror-controller/mirror-controller/mirror/apitest"
	"github.com/mirror-controller/mirror-controller/mirror/internal/outcome"
	"github.com/mirror-controller/mirror-controller/mirror/internal/slow"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
	"github.com/mirror-controller/mirror-controller/mirror/plan/plantest"
)

// hanging is a call that ends with its context.
func hanging(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}

// TestWhereATargetWaits is the table of what becomes of a target at the end of a
// call, while nothing is there and a source claims it. No time passes.
func TestWhereATargetWaits(t *testing.T) {
	create := plan.Change{Op: plan.OpCreate, Key: settings("team-a"), Source: parsed(source())}
	for name, tc := range map[string]struct {
		namespace types.UID // in which the call was; empty: the present one
		res       result
		queued    bool
		turn      bool // it waits for a turn of its namespace
	}{
		"a conflict": {"", result{change: create, outcome: outcome.Conflict, err: errAway}, false, false},
		"a former namespace": {"former", result{change: create, outcome: outcome.Conflict, err: errAway},
			true, false},
		"a cut in a former namespace": {"former", result{outcome: outcome.Delayed, err: slow.ErrCut}, true, false},
		"a cut":                       {"", result{outcome: outcome.Delayed, err: slow.ErrCut}, false, false},
		"a read that was cut":         {"", result{outcome: outcome.Delayed, err: slow.ErrReadCut}, false, true},
		"a read of another goroutine": {"", result{outcome: outcome.Delayed, askAgain: time.Second}, false, false},
		"a read that ended":           {"", result{outcome: outcome.Delayed}, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := stillController(t, source(), plantest.Namespace("team-a"))
				defer c.stopReporting()
				x := &attempt{decision: c.reconciler.begin(settings("team-a"), slow.Ordinary)}
				if !x.act {
					t.Fatal("got nothing to do")
				}
				if tc.namespace != "" {
					x.record.namespaceUID = tc.namespace
				}
				res := tc.res
				res.change.Key = settings("team-a")
				isPaced := res.outcome == outcome.Conflict || res.askAgain > 0
				wait := c.reconciler.finish(x, &res)
				if isPaced = isPaced && tc.namespace == ""; (wait > 0) != isPaced {
					t.Errorf("got a wait of %v, want one %v", wait, isPaced)
				}
				synctest.Wait()
				if queued := c.queues.copies.Len() == 1; queued != tc.queued {
					t.Errorf("got it queued %v, want %v", queued, tc.queued)
				}
				if turn := c.queues.slow.Len() == 1; turn != tc.turn {
					t.Errorf("got a wait for a turn %v, want %v", turn, tc.turn)
				}
				time.Sleep(time.Minute)
				synctest.Wait()
				if queued := c.queues.copies.Len() == 1; queued == tc.turn {
					t.Errorf("got it queued a minute later %v", queued)
				}
			})
		})
	}
}

// TestSlowNamespaceIsLeftToItsQueue by the ordinary workers. Its own go on.
func TestSlowNamespaceIsLeftToItsQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := stillController(t, source(), plantest.Namespace("team-a"))
		defer c.stopReporting()
		uid := c.cache.Namespace("team-a").UID
		if err := c.queues.slow.Write(t.Context(), uid, slow.Ordinary, hanging); !errors.Is(err, slow.ErrCut) {
			t.Fatal(err)
		}
		k := settings("team-a")
		if x := c.reconciler.begin(k, slow.Ordinary); x.act || c.queues.slow.Len() != 1 {
			t.Errorf("got act %v, and %d namespaces that wait, want a wait for a turn", x.act, c.queues.slow.Len())
		}
		if x := c.reconciler.begin(k, slow.Whole); !x.act {
			t.Error("got nothing to do in a turn")
		}
	})
}

// TestWriteIsShownByAnEvent: only after one that leaves nothing to do, and is no
// deletion, does a target wait for the watch alone.
func TestWriteIsShownByAnEvent(t *testing.T) {
	for name, tc := range map[string]struct {
		state plan.State
		of    outcome.Outcome
		op    plan.Op
		want  bool
	}{
		"written":            {plan.StateSynced, outcome.OK, plan.OpUpdate, true},
		"written, and gone":  {plan.StateNone, outcome.OK, plan.OpCreate, true},
		"written for before": {plan.StatePending, outcome.OK, plan.OpUpdate, false},
		"refused":            {plan.StateSynced, outcome.Conflict, plan.OpUpdate, false},
		"deleted":            {plan.StateNone, outcome.OK, plan.OpDelete, false},
	} {
		t.Run(name, func(t *testing.T) {
			next := &decision{}
			next.record.state = tc.state
			res := &result{outcome: tc.of, change: plan.Change{Op: tc.op}}
			if got := isShownByAnEvent(next, res); got != tc.want {
				t.Errorf("got %v, want %v", got, tc.want)
			}
		})
	}
}

// TestHalfOfARecreation: the deletion was carried out, and the creation was refused.
// The deletion is our own write then, and nothing is in sync.
func TestHalfOfARecreation(t *testing.T) {
	blue := parsed(source())
	have := copyOf(source(), "team-a")
	c := stillController(t, have)
	n := c.records.lock("settings")
	defer n.unlock()
	known := record{}.with(blue)
	c.reconciler.recordResult(n, &known, &attempt{}, &result{
		change:  plan.Change{Op: plan.OpRecreate, Key: plan.KeyOf(have), Have: have, Source: blue},
		outcome: outcome.Rejected,
		err:     rejected("quota"),
		deleted: true,
		began:   epoch,
	}, epoch)
	if want := (ownWrite{deleted: have.UID, at: epoch}); known.lastWrite != want {
		t.Errorf("got our last write %+v, want %+v", known.lastWrite, want)
	}
	if known.content != (content{}) {
		t.Errorf("got it in sync with %+v", known.content)
	}
}

// TestRestoredHasAnEvent is the table of the changes that have one.
func TestRestoredHasAnEvent(t *testing.T) {
	have := copyOf(source(), "team-a")
	for name, tc := range map[string]struct {
		cause    string
		failures int
		repairs  int
		want     int
	}{
		"restored":                      {plan.CauseEdited, 0, 0, 1},
		"the source has changed":        {"", 0, 0, 0},
		"restored after a failure":      {plan.CauseDeleted, 1, 0, 0},
		"the ninth repair in a row":     {plan.CauseEdited, 0, 8, 1},
		"the tenth, which was delayed":  {plan.CauseEdited, 0, 9, 0},
		"a repair long after a failure": {plan.CauseEdited, 2, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			c := stillController(t, have)
			n := c.records.lock("settings")
			defer n.unlock()
			known := record{retry: retry{failures: tc.failures}, repairs: repairs{inRow: tc.repairs}}
			c.reconciler.carriedOut(n, &known, &result{
				change: plan.Change{Op: plan.OpUpdate, Key: plan.KeyOf(have), Source: parsed(source()), Have: have},
				stored: have,
				cause:  tc.cause,
			}, epoch)
			if got := len(c.reconciler.restored); got != tc.want {
				t.Errorf("got %d events, want %d", got, tc.want)
			}
		})
	}
}

// TestWhatACallShows is the table of the results of one update.
func TestWhatACallShows(t *testing.T) {
	src := source()
	blue := parsed(src)
	edited := copyOf(src, "team-a", data("edited"))
	former := copyOf(source(data("former")), "team-a")
	for name, tc := range map[string]struct {
		have     *corev1.ConfigMap
		inSync   bool // with this content before
		refusal  error
		isRepair bool
		cause    string
		counted  float64 // repairs, edited
	}{
		"restored":                    {edited, true, nil, true, plan.CauseEdited, 1},
		"restored after a takeover":   {edited, false, nil, true, "", 1},
		"the source has changed":      {former, false, nil, false, "", 0},
		"refused":                     {edited, true, rejected("quota"), false, "", 0},
		"somebody undid the change":   {former, true, nil, true, plan.CauseEdited, 1},
		"the connection was broken":   {edited, true, errAway, false, "", 0},
		"refused, and not in sync":    {former, false, rejected("quota"), false, "", 0},
		"the namespace has no answer": {edited, true, context.DeadlineExceeded, false, "", 0},
	} {
		t.Run(name, func(t *testing.T) {
			s := byHand(t, []runtime.Object{src, tc.have, plantest.Namespace("team-a")}, func(*Options) {})
			t.Cleanup(s.controller.stopWriting)
			s.refuse(on(tc.refusal, updates))
			x := &attempt{}
			if tc.inSync {
				x.record.content = contentOf(blue)
			}
			change := plan.Change{
				Op:     plan.OpUpdate,
				Key:    settings("team-a"),
				Source: blue,
				Have:   s.get("team-a"),
			}
			res := s.controller.reconciler.call(t.Context(), t.Context(), x, change, nil)
			if res.isRepair != tc.isRepair || res.cause != tc.cause || res.change.Key != change.Key {
				t.Errorf("got a repair %v for %q of %v, want %v for %q", res.isRepair, res.cause, res.change.Key,
					tc.isRepair, tc.cause)
			}
			if isStored := res.stored != nil; isStored != (tc.refusal == nil) {
				t.Errorf("got stored %v, want it %v", res.stored, tc.refusal == nil)
			}
			if got := s.metric("mirror_repairs_total", plan.CauseEdited); got != tc.counted {
				t.Errorf("got %v repairs counted, want %v", got, tc.counted)
			}
			if got := s.metric("mirror_repairs_total", ""); got >= 0 {
				t.Errorf("got %v repairs counted without a cause", got)
			}
		})
	}
}

// TestDeletionIsNoRepair of a copy that the source had.
func TestDeletionIsNoRepair(t *testing.T) {
	have := copyOf(source(), "team-a")
	c := stillController(t, have)
	change := plan.Change{Op: plan.OpDelete, Key: plan.KeyOf(have), Have: c.cache.ConfigMap(plan.KeyOf(have))}
	res := c.reconciler.call(t.Context(), t.Context(), &attempt{}, change, nil)
	if res.err != nil || res.isRepair {
		t.Errorf("got %v, and a repair %v", res.err, res.isRepair)
	}
}

// TestUnneededReads: an update reads nothing although an object was in the way, and
// where no labels decide, a deletion reads no namespace.
func TestUnneededReads(t *testing.T) {
	src := source()
	edited := copyOf(src, "team-a", data("edited"))
	left := plantest.Copy(teamRules(), plantest.Source("platform", "left"), "team-a")
	s := byHand(t, []runtime.Object{src, edited, left, plantest.Namespace("team-a")}, func(*Options) {})
	c := s.controller
	t.Cleanup(c.stopWriting)
	c.cache.Start(t.Context())
	c.cache.WaitForSync(t.Context())
	x := &attempt{decision: c.reconciler.begin(settings("team-a"), slow.Ordinary)}
	x.record.retry.outcome = outcome.Foreign
	if res := c.reconciler.act(t.Context(), t.Context(), x); res.outcome != outcome.OK {
		t.Errorf("got %+v, want an update", res)
	}
	k := key{Namespace: "team-a", Name: "left"}
	x = &attempt{decision: c.reconciler.begin(k, slow.Ordinary)}
	x.record.unclaimed.since = time.Now().Add(-time.Hour)
	_, _ = c.reconciler.confirm(t.Context(), x)
	reads := map[apitest.Call]int{}
	for call, n := range s.Calls() {
		if call.Verb == "get" {
			reads[call] = n
		}
	}
	if len(reads) != 1 || reads[readSource] != 1 {
		t.Errorf("got the reads %v, want one, of the source of what is deleted", reads)
	}
}

// TestOrdinaryWorkerWaitsForNoRead of another one: it has other targets. A slow one
// would lose its turn.
func TestOrdinaryWorkerWaitsForNoRead(t *testing.T) {
	for name, tc := range map[string]struct {
		pace slow.Pace
		took time.Duration
	}{"ordinary": {slow.Ordinary, 0}, "slow": {slow.Whole, 10 * time.Second}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := byHand(t, []runtime.Object{copyOf(source(), "team-a"), plantest.Namespace("team-a")}, func(*Options) {})
				c := s.controller
				defer c.stopReporting()
				t.Cleanup(c.stopWriting)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				c.cache.Start(ctx)
				c.cache.WaitForSync(ctx)
				s.delay(on(10*time.Second, readSource))
				x := &attempt{decision: c.reconciler.begin(settings("team-a"), tc.pace), pace: tc.pace}
				other := &attempt{decision: x.decision, pace: slow.Whole}
				go c.reconciler.confirm(ctx, other)
				synctest.Wait()
				began := time.Now()
				res, _ := c.reconciler.confirm(ctx, x)
				if took := time.Since(began); took != tc.took || (res.askAgain > 0) != (tc.took == 0) {
					t.Errorf("got %+v after %v, want it after %v", res, took, tc.took)
				}
				time.Sleep(time.Minute)
			})
		})
	}
}

// TestLogOfAChange is the table of the lines about a result, by how verbose they are.
func TestLogOfAChange(t *testing.T) {
	have := copyOf(source(), "team-a")
	write := plan.Change{Op: plan.OpUpdate, Key: plan.KeyOf(have), Have: have, Source: parsed(source())}
	remove := plan.Change{Op: plan.OpDelete, Key: plan.KeyOf(have), Have: have, CopyOf: settings("platform")}
	long := errors.New(strings.Repeat("x", 2000))
	for name, tc := range map[string]struct {
		res       result
		verbosity int
		want      string // empty: no line
	}{
		"written":     {result{change: write}, 2, `Copy written copy="team-a/settings"`},
		"not said":    {result{change: write}, 1, ""},
		"deleted":     {result{change: remove}, 2, `Copy deleted copy="team-a/settings" source="platform/settings"`},
		"out of sync": {result{change: write, outcome: outcome.Conflict, err: errAway}, 2, "Copy out of sync, retrying"},
		"a long text": {result{change: write, outcome: outcome.Rejected, err: long}, 2, "xxx…"},
		"nothing":     {result{change: write, outcome: outcome.Foreign}, 4, "Nothing done"},
		"not deleted": {result{change: remove, outcome: outcome.Conflict, err: errAway}, 2, "Copy out of sync, retrying"},
		"not refused": {result{change: remove, outcome: outcome.Conflict, err: errAway}, 1, ""},
		"a write":     {result{change: write, outcome: outcome.Rejected, err: errAway}, 1, ""},
		"refused": {result{change: remove, outcome: outcome.Rejected, err: errAway, note: "quota"}, 0,
			`Cannot delete a copy, retrying err="quota" copy="team-a/settings"`},
	} {
		t.Run(name, func(t *testing.T) {
			config := ktesting.NewConfig(ktesting.BufferLogs(true), ktesting.Verbosity(tc.verbosity))
			logger := ktesting.NewLogger(ktesting.NopTL{}, config)
			c := stillController(t)
			c.reconciler.log(klog.NewContext(t.Context(), logger), &tc.res, 0)
			got := logger.GetSink().(ktesting.Underlier).GetBuffer().String()
			if !strings.Contains(got, tc.want) || (got == "") != (tc.want == "") {
				t.Errorf("got the log %q, want in it %q", got, tc.want)
			}
		})
	}
}

// TestNothingToDoIsAReconcile, too, that ends.
func TestNothingToDoIsAReconcile(t *testing.T) {
	s := byHand(t, nil, func(*Options) {})
	t.Cleanup(s.controller.stopWriting)
	s.controller.reconciler.reconcile(t.Context(), t.Context(), settings("team-a"), slow.Ordinary)
	if got := s.metric("controller_runtime_active_workers", "mirror"); got != 0 {
		t.Errorf("got %v reconciles under way", got)
	}
	if got := s.metric("controller_runtime_reconcile_total", "mirror", "success"); got != 1 {
		t.Errorf("got %v reconciles, want 1", got)
	}
}

// TestLastWriteElsewhere is that in another namespace.
func TestLastWriteElsewhere(t *testing.T) {
	w := &recentWrites{}
	at := func(seconds int) time.Time { return epoch.Add(time.Duration(seconds) * time.Second) }
	for i, namespace := range []string{"a", "b", "b", "c", "c"} {
		w.add(namespace, at(i))
	}
	for namespace, want := range map[string]time.Time{"a": at(4), "b": at(4), "c": at(2)} {
		t.Run(namespace, func(t *testing.T) {
			if got := w.elsewhere(namespace); !got.Equal(want) {
				t.Errorf("got the last write elsewhere than in %s at %v, want %v", namespace, got, want)
			}
		})
	}
}
