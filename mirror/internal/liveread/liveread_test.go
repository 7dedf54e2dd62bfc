package liveread

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/mirror-controller/mirror-controller/mirror/apitest"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
	"github.com/mirror-controller/mirror-controller/mirror/plan/plantest"
)

const timeout = 35 * time.Second

var (
	settings      = types.NamespacedName{Namespace: "platform", Name: "settings"}
	readSource    = apitest.Call{Verb: "get", Resource: "configmaps", Namespace: "platform"}
	readNamespace = apitest.Call{Verb: "get", Resource: "namespaces", Namespace: "team-a"}
)

// reader is a reader of a server that has platform/settings and the namespace team-a.
type reader struct {
	*testing.T
	*Reader
	server *apitest.Server
}

func read(t *testing.T, f func(*testing.T, reader)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		annotated := plantest.Namespace("team-a")
		annotated.Annotations = map[string]string{"note": "a tenant's"}
		s := apitest.NewServer(plantest.Namespace("platform"), annotated,
			plantest.Source("platform", "settings", plantest.BinaryData("bin", 1)))
		o := plan.NewOptions()
		f(t, reader{t, New(s, plan.NewRules(&o).Strip, timeout), s})
	})
}

// premise asks until there is an answer, and returns how long that took.
func (r reader) premise(notBefore time.Time) (Answer, time.Duration, error) {
	return r.ask(settings, "team-a", notBefore)
}

// direct is a call that nothing cuts.
func direct(ctx context.Context, f func(context.Context) error) error { return f(ctx) }

func (r reader) ask(source types.NamespacedName, namespace string, notBefore time.Time) (Answer, time.Duration, error) {
	for began := time.Now(); ; {
		a, wait, err := r.Premise(r.Context(), direct, source, namespace, notBefore, false)
		if wait == 0 || time.Since(began) > 3*timeout { // An answer that never serves would keep the test busy.
			return a, time.Since(began), err
		}
		time.Sleep(wait)
	}
}

// isAbout reports whether something took this long, and the time until it was asked for.
func isAbout(took, want time.Duration) bool { return took >= want && took <= want+latest }

// takes has the server take a time for each of these calls.
func (r reader) takes(by map[apitest.Call]time.Duration) {
	r.server.Hook(func(h *apitest.Hooks) { h.Takes = func(c apitest.Call) time.Duration { return by[c] } })
}

// wantReads fails the test unless so many reads of the source and of the namespace came since the start.
func (r reader) wantReads(what string, source, namespace int) {
	r.Helper()
	calls := r.server.Calls()
	if calls[readSource] != source || calls[readNamespace] != namespace {
		r.Errorf("%s: got %d reads of the source and %d of the namespace, want %d and %d", what, calls[readSource],
			calls[readNamespace], source, namespace)
	}
}

// TestPremiseIsSourceAndNamespace: a source without its payload, and a namespace. A deleting source is none.
func TestPremiseIsSourceAndNamespace(t *testing.T) {
	read(t, func(t *testing.T, r reader) {
		a, _, err := r.premise(time.Now())
		if err != nil || a.Source == nil || a.Source.Data != nil || a.Source.BinaryData != nil ||
			a.Source.Labels["mirror"] != "true" || time.Since(a.Began) > latest {
			t.Errorf("got %+v, %v, want the source without payload", a, err)
		}
		if a.Namespace == nil || a.Namespace.Name != "team-a" || len(a.Namespace.Annotations) > 0 {
			t.Errorf("got %+v, want the namespace as the cache keeps it", a.Namespace)
		}
		r.server.ConfigMaps.Put(plantest.Source("platform", "settings", plantest.Deleting))
		time.Sleep(time.Second)
		if a, _, err = r.premise(time.Now()); err != nil || a.Source != nil || a.Namespace == nil {
			t.Errorf("got %+v, %v, want no source: it is being deleted", a, err)
		}
		for _, namespace := range []string{"platform", "team-a"} {
			r.server.Terminate(namespace)
			r.server.Finalize(namespace)
		}
		time.Sleep(time.Second)
		if a, _, err = r.premise(time.Now()); err != nil || a.Source != nil || a.Namespace != nil {
			t.Errorf("got %+v, %v, want neither: both are gone", a, err)
		}
	})
}

// TestCutReadIsPassedOn to the caller that waits for it, and has more time. The one
// whose read was cut goes on at once with its next deletion, which needs the same
// source. Case C52.
func TestCutReadIsPassedOn(t *testing.T) {
	read(t, func(t *testing.T, r reader) {
		const takes, limit = 250 * time.Millisecond, 200 * time.Millisecond
		r.takes(map[apitest.Call]time.Duration{readSource: takes})
		cut := func(ctx context.Context, f func(context.Context) error) error {
			ctx, cancel := context.WithTimeout(ctx, limit)
			defer cancel()
			return f(ctx)
		}
		began := time.Now()
		var all sync.WaitGroup
		all.Go(func() {
			time.Sleep(time.Millisecond)
			a, _, err := r.Premise(t.Context(), direct, settings, "", began, true)
			if took := time.Since(began); err != nil || a.Source == nil || took != limit+takes {
				t.Errorf("got %v, %v after %v, want the source after %v", a, err, took, limit+takes)
			}
		})
		if _, wait, err := r.Premise(t.Context(), cut, settings, "", began, false); err == nil || wait > 0 {
			t.Errorf("got a wait of %v, %v, want an error: the read was cut", wait, err)
		}
		for range 3 {
			_, wait, err := r.Premise(t.Context(), cut, settings, "", began, false)
			if err != nil || wait < soonest {
				t.Errorf("got a wait of %v, %v, want to ask again later", wait, err)
			}
			time.Sleep(wait)
		}
		all.Wait()
		r.wantReads("one was cut, and one not", 2, 0)
	})
}

// TestOneReadServesAll that ask while it is on its way, and for five seconds after its answer. A caller that may wait
// does so; others learn when to ask again, after as long as the read has taken, from 10 ms to 1 s. Case C53.
func TestOneReadServesAll(t *testing.T) {
	const ms, takes = time.Millisecond, 20 * time.Second
	read(t, func(t *testing.T, r reader) {
		r.takes(map[apitest.Call]time.Duration{readSource: takes, readNamespace: takes})
		notBefore := time.Now()
		var all sync.WaitGroup
		for range 100 {
			all.Go(func() {
				a, took, err := r.premise(notBefore)
				if err != nil || a.Source == nil || a.Namespace == nil || !isAbout(took, takes) {
					t.Errorf("got %+v, %v after %v, want both after %v", a, err, took, takes)
				}
			})
		}
		all.Go(func() {
			if _, _, err := r.Premise(t.Context(), direct, settings, "team-a", notBefore, true); err != nil ||
				time.Since(notBefore) != takes {
				t.Errorf("may wait: got %v after %v, want the answer when it comes", err, time.Since(notBefore))
			}
		})
		synctest.Wait()
		for _, step := range []struct{ after, want time.Duration }{
			{0, 10 * ms}, {500 * ms, 500 * ms}, {10000 * ms, time.Second}} {
			time.Sleep(time.Until(notBefore.Add(step.after)))
			_, wait, err := r.Premise(t.Context(), direct, settings, "team-a", notBefore, false)
			if wait != step.want || err != nil {
				t.Errorf("a read of %v: got %v, %v, want %v to wait for it", step.after, wait, err, step.want)
			}
		}
		all.Wait()
		r.wantReads("while they are on their way", 1, 1)
		time.Sleep(time.Until(notBefore.Add(takes + Lifetime - 1)))
		_, took, err := r.premise(notBefore)
		r.wantReads("just within their lifetime", 1, 1)
		time.Sleep(time.Nanosecond)
		if _, _, again := r.premise(notBefore); took > 0 || err != nil || again != nil {
			t.Errorf("got %v, %v after %v, want answers, the first at once", err, again, took)
		}
		r.wantReads("after their lifetime", 2, 2)
		if _, _, err := r.premise(time.Now()); err != nil {
			t.Error(err)
		}
		r.wantReads("which began too early for what was asked later", 3, 3)
	})
}

// TestAnswersServeTogether: if one answer is too old when the other one comes, both are read again, until both serve.
// Case C53.
func TestAnswersServeTogether(t *testing.T) {
	for slow, quick := range map[apitest.Call]apitest.Call{readSource: readNamespace, readNamespace: readSource} {
		t.Run("slow "+slow.Resource, func(t *testing.T) {
			read(t, func(t *testing.T, r reader) {
				r.takes(map[apitest.Call]time.Duration{slow: 2 * Lifetime})
				a, took, err := r.premise(time.Now())
				if err != nil || a.Source == nil || a.Namespace == nil || !isAbout(took, 2*Lifetime) {
					t.Errorf("got %+v, %v after %v, want both when the slow one comes", a, err, took)
				}
				if n := r.server.Calls()[quick]; n < 2 || n > 3 {
					t.Errorf("got %d reads of the other, want 2 or 3", n)
				}
			})
		})
	}
	t.Run("both slow and out of phase", func(t *testing.T) { // another deletion reads the same source
		read(t, func(t *testing.T, r reader) {
			const takes = Lifetime + time.Second
			r.takes(map[apitest.Call]time.Duration{readSource: takes, readNamespace: takes,
				{Verb: "get", Resource: "namespaces", Namespace: "team-b"}: takes})
			notBefore := time.Now()
			if _, _, err := r.ask(settings, "team-b", notBefore); err != nil {
				t.Error(err)
			}
			time.Sleep(Lifetime - latest)
			if _, took, err := r.premise(notBefore); err != nil || !isAbout(took, 2*takes) {
				t.Errorf("got %v after %v, want both after %v", err, took, 2*takes)
			}
			r.wantReads("out of phase", 2, 2)
		})
	})
}

// TestReadsThatHang end with the timeout, or when they are cut. A cut read is no answer to others. The time in the
// queue of reads is no time of a read.
func TestReadsThatHang(t *testing.T) {
	read(t, func(t *testing.T, r reader) {
		r.server.Hook(func(h *apitest.Hooks) {
			h.Hangs = func(c apitest.Call) bool { return c.Resource == "configmaps" }
		})
		var all sync.WaitGroup
		var queued atomic.Int32
		for i := range 2 * concurrent {
			all.Go(func() {
				_, took, err := r.ask(types.NamespacedName{Namespace: "platform", Name: fmt.Sprint(i)}, "team-a", time.Now())
				if !errors.Is(err, context.DeadlineExceeded) || !isAbout(took, timeout) && !isAbout(took, 2*timeout) {
					t.Errorf("got %v after %v, want the end of the timeout of the read itself", err, took)
				}
				if isAbout(took, 2*timeout) {
					queued.Add(1)
				}
			})
		}
		all.Wait()
		if n := queued.Load(); n != concurrent {
			t.Errorf("got %d reads after two timeouts, want those that were queued for one", n)
		}
		time.Sleep(2 * time.Minute) // they are forgotten
		tooSlow := errors.New("too slow")
		cut := func(ctx context.Context, f func(context.Context) error) error {
			ctx, cancel := context.WithCancelCause(ctx)
			time.AfterFunc(time.Second, func() { cancel(tooSlow) })
			return cmp.Or(f(ctx), context.Cause(ctx))
		}
		began := time.Now()
		_, _, err := r.Premise(t.Context(), cut, settings, "team-a", began, true)
		if took := time.Since(began); err == nil || took != time.Second {
			t.Errorf("got %v after %v, want an error of a read that was cut after a second", err, took)
		}
		r.server.Hook(func(h *apitest.Hooks) { h.Hangs = func(apitest.Call) bool { return false } })
		if a, took, err := r.premise(began); err != nil || a.Source == nil || took > 0 {
			t.Errorf("got %+v, %v after %v, want the source at once", a, err, took)
		}
		time.Sleep(2 * time.Minute)
		r.mu.Lock()
		defer r.mu.Unlock()
		if n := len(r.known); n > 0 {
			t.Errorf("got %d subjects known for ever", n)
		}
	})
}

// TestReadsAreBounded: four sources are read at a time, and four other objects.
func TestReadsAreBounded(t *testing.T) {
	read(t, func(t *testing.T, r reader) {
		r.takes(map[apitest.Call]time.Duration{readSource: time.Second})
		var all sync.WaitGroup
		bounded := func(objects string, read func(types.NamespacedName) error) {
			var twenty sync.WaitGroup
			began := time.Now()
			for i := range 20 {
				twenty.Go(func() {
					if err := read(types.NamespacedName{Namespace: "platform", Name: fmt.Sprint(i)}); err != nil {
						t.Error(err)
					}
				})
			}
			twenty.Wait()
			if took := time.Since(began); took != 5*time.Second {
				t.Errorf("got twenty %s read within %v, want five seconds", objects, took)
			}
		}
		all.Go(func() {
			bounded("sources", func(k types.NamespacedName) error {
				_, _, err := r.Premise(t.Context(), direct, k, "team-a", time.Time{}, true)
				return err
			})
		})
		all.Go(func() { // at the same time
			bounded("objects", func(k types.NamespacedName) error {
				_, err := r.ConfigMap(t.Context(), direct, k)
				return err
			})
		})
		all.Wait()
	})
}

// TestFailureServesASecond: each deletion that asks within a second has the same failure.
func TestFailureServesASecond(t *testing.T) {
	read(t, func(t *testing.T, r reader) {
		r.server.Hook(func(h *apitest.Hooks) { h.Refuses = func(apitest.Call) error { return errors.New("etcd") } })
		for _, reads := range []int{1, 1, 1, 2} {
			if _, _, err := r.ask(settings, "", time.Time{}); err == nil {
				t.Error("got no error of a read that failed")
			}
			r.wantReads("0.4 s later", reads, 0)
			time.Sleep(400 * time.Millisecond)
		}
	})
}

// TestConfigMap: it is returned as the cache would keep it, and nil if there is none.
// An error is no answer, be it of the read or of the wait for one.
func TestConfigMap(t *testing.T) {
	read(t, func(t *testing.T, r reader) {
		inTheWay := types.NamespacedName{Namespace: "team-a", Name: "settings"}
		r.server.ConfigMaps.Put(plantest.Marked("team-a", "settings", plantest.Data("key", "value")))
		cm, err := r.ConfigMap(t.Context(), direct, inTheWay)
		if err != nil || cm == nil || cm.Name != "settings" || len(cm.Data) > 0 {
			t.Errorf("got %v, %v, want the copy without payload", cm, err)
		}
		none := types.NamespacedName{Namespace: "team-a", Name: "none"}
		if cm, err := r.ConfigMap(t.Context(), direct, none); cm != nil || err != nil {
			t.Errorf("got %v, %v, want none", cm, err)
		}
		r.server.Hook(func(h *apitest.Hooks) { h.Hangs = func(apitest.Call) bool { return true } })
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		var all sync.WaitGroup
		for range concurrent + 1 { // the last one waits for the others
			all.Go(func() {
				if cm, err := r.ConfigMap(ctx, direct, inTheWay); !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("got %v, %v, want the end of the time", cm, err)
				}
			})
		}
		all.Wait()
	})
}

// TestOnlyWhatIsNeededIsRead: without a namespace the source alone.
func TestOnlyWhatIsNeededIsRead(t *testing.T) {
	read(t, func(t *testing.T, r reader) {
		if _, _, err := r.ask(settings, "", time.Now()); err != nil {
			t.Error(err)
		}
		if calls := r.server.Calls(); calls[readSource] != 1 || len(calls) != 1 {
			t.Errorf("got the calls %v, want one read of the source", calls)
		}
	})
}

// TestCallSeesTheError of its reads, for it judges by that whether the API server
// answers. So does the caller, also of a namespace.
func TestCallSeesTheError(t *testing.T) {
	read(t, func(t *testing.T, r reader) {
		refused := errors.New("no leader")
		r.server.Hook(func(h *apitest.Hooks) {
			h.Refuses = func(c apitest.Call) error {
				if c.Resource == "namespaces" {
					return refused
				}
				return nil
			}
		})
		var seen error
		call := func(ctx context.Context, f func(context.Context) error) error {
			seen = f(ctx)
			return nil
		}
		_, wait, err := r.Premise(t.Context(), call, settings, "team-a", time.Now(), false)
		if !errors.Is(err, refused) || !errors.Is(seen, refused) || wait > 0 {
			t.Errorf("got %v, and %v seen by the call, want %v", err, seen, refused)
		}
	})
}

// TestWaitEndsWithTheCaller: the read of another goroutine goes on.
func TestWaitEndsWithTheCaller(t *testing.T) {
	read(t, func(t *testing.T, r reader) {
		r.takes(map[apitest.Call]time.Duration{readSource: time.Minute / 2})
		go func() { _, _, _ = r.Premise(t.Context(), direct, settings, "", time.Now(), true) }()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		_, wait, err := r.Premise(ctx, direct, settings, "", began, true)
		if !errors.Is(err, context.DeadlineExceeded) || wait > 0 || time.Since(began) != time.Second {
			t.Errorf("got %v, and a wait of %v, want the end of a second", err, wait)
		}
	})
}

// TestBeganIsOfTheLastRead: a grace that a claim has ended begins anew from then on.
func TestBeganIsOfTheLastRead(t *testing.T) {
	read(t, func(t *testing.T, r reader) {
		start := time.Now()
		if _, _, err := r.ask(types.NamespacedName{Namespace: "base", Name: "settings"}, "team-a", start); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		later := time.Now()
		a, _, err := r.premise(start)
		if err != nil || a.Began.Before(later) {
			t.Errorf("got %v, and a read that began after %v, want 2s", err, a.Began.Sub(start))
		}
		r.wantReads("the one of the namespace serves", 1, 1)
	})
}

// TestForgottenOnceAndNotBefore: a subject is known as long as a read of it is on
// its way, or its answer serves. Reads that end together forget it once.
func TestForgottenOnceAndNotBefore(t *testing.T) {
	premise := func(r reader, call Call) {
		r.Helper()
		if _, _, err := r.Premise(r.Context(), call, settings, "", time.Time{}, true); err != nil {
			r.Error(err)
		}
	}
	// The first answer serves for 5 seconds, and 35 later the subject may be forgotten.
	t.Run("a read is on its way", func(t *testing.T) {
		read(t, func(t *testing.T, r reader) {
			premise(r, direct)
			time.Sleep(39 * time.Second)
			r.takes(map[apitest.Call]time.Duration{readSource: 2 * time.Second})
			premise(r, direct)
			r.wantReads("two that ended", 2, 0)
		})
	})
	t.Run("a later answer serves", func(t *testing.T) {
		read(t, func(t *testing.T, r reader) {
			premise(r, direct)
			time.Sleep(36 * time.Second)
			premise(r, direct)
			time.Sleep(4500 * time.Millisecond)
			premise(r, direct)
			r.wantReads("the later one serves for five seconds", 2, 0)
		})
	})
	t.Run("a cut one ends with it", func(t *testing.T) {
		read(t, func(t *testing.T, r reader) {
			premise(r, direct)
			time.Sleep(6 * time.Second)
			cut := func(ctx context.Context, f func(context.Context) error) error {
				ctx, cancel := context.WithTimeout(ctx, time.Second)
				defer cancel()
				_ = f(ctx)
				return errors.New("cut")
			}
			r.takes(map[apitest.Call]time.Duration{readSource: time.Minute})
			if _, _, err := r.Premise(t.Context(), cut, settings, "", time.Now(), true); err == nil {
				t.Error("got no error of a read that was cut")
			}
			time.Sleep(time.Minute)
		})
	})
}

// TestOneReadAtATime: an answer that still serves, and will be too old when the
// source comes, is read again, but not while another goroutine does that.
func TestOneReadAtATime(t *testing.T) {
	read(t, func(t *testing.T, r reader) {
		start := time.Now()
		source := func(namespace string) types.NamespacedName {
			return types.NamespacedName{Namespace: namespace, Name: "settings"}
		}
		r.takes(map[apitest.Call]time.Duration{
			{Verb: "get", Resource: "configmaps", Namespace: "base"}: 4 * time.Second,
			readSource:    4 * time.Second,
			readNamespace: 2 * time.Second,
		})
		var all sync.WaitGroup
		for _, step := range []struct {
			after     time.Duration
			namespace string
			reads     int // of the namespace, so far
		}{
			{0, "platform", 1},
			{0, "base", 1},
			{8 * time.Second, "quick", 2}, // its answer comes after two seconds, and serves for five
			{11500 * time.Millisecond, "platform", 3},
			{12 * time.Second, "base", 3},
		} {
			time.Sleep(time.Until(start.Add(step.after)))
			all.Go(func() {
				k := source(step.namespace)
				_, _, err := r.Premise(t.Context(), direct, k, "team-a", start, true)
				if err != nil {
					t.Errorf("%v: %v", k, err)
				}
			})
			synctest.Wait()
			if got := r.server.Calls()[readNamespace]; got != step.reads {
				t.Errorf("after %v: got %d reads of the namespace, want %d", step.after, got, step.reads)
			}
		}
		all.Wait()
	})
}
