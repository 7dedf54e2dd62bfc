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
		s := apitest.NewServer(plantest.Namespace("platform"), plantest.Namespace("team-a"),
			plantest.Source("platform", "settings"))
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
		if err != nil || a.Source == nil || a.Source.Data != nil || a.Source.Labels["mirror"] != "true" ||
			a.Namespace == nil || a.Namespace.Name != "team-a" || time.Since(a.Began) > latest {
			t.Errorf("got %+v, %v, want the source without payload, and the namespace", a, err)
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
			var eight sync.WaitGroup
			began := time.Now()
			for i := range 8 {
				eight.Go(func() {
					if err := read(types.NamespacedName{Namespace: "platform", Name: fmt.Sprint(i)}); err != nil {
						t.Error(err)
					}
				})
			}
			eight.Wait()
			if took := time.Since(began); !isAbout(took, 2*time.Second) {
				t.Errorf("got eight %s read within %v, want two seconds", objects, took)
			}
		}
		all.Go(func() {
			bounded("sources", func(k types.NamespacedName) error {
				_, _, err := r.ask(k, "team-a", time.Time{})
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
