package mirror

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/mirror-controller/mirror-controller/mirror/apitest"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
	"github.com/mirror-controller/mirror-controller/mirror/plan/plantest"
)

// term is a controller whose leadership a test gives and takes.
type term struct {
	scene
	stop     context.CancelFunc // Run's context
	lead     func()
	lose     context.CancelFunc
	ended    chan error
	leads    bool
	resigned []time.Time
}

// standby returns a test that runs a controller that does not lead yet. A bubble panics if one of its goroutines is
// left when f has returned: that nothing is left running is part of each of these tests.
func standby(objects []runtime.Object, f func(*testing.T, *term)) func(*testing.T) {
	return func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			r := &term{scene: newScene(t, objects, func(*Options) {}), ended: make(chan error, 1)}
			defer r.isSafe()
			ctx, stop := context.WithCancel(r.logged())
			defer stop()
			leading, lose := context.WithCancel(context.WithoutCancel(ctx))
			defer lose()
			begun := make(chan context.Context, 1)
			r.stop, r.lose, r.lead = stop, lose, func() { r.leads = true; begun <- leading; synctest.Wait() }
			resign := func() { r.resigned = append(r.resigned, time.Now()) }
			go func() { r.ended <- r.controller.Run(ctx, Leadership{Begun: begun, Resign: resign}) }()
			synctest.Wait()
			f(t, r)
		})
	}
}

// ends has Run end: by a stop, or by a loss of the leadership. It fails the test unless that takes this long, and the
// controller resigns at its end from a leadership that it has, and from no other.
func (r *term) ends(loses bool, takes time.Duration) {
	r.t.Helper()
	end, want, began, resigned := r.stop, error(nil), time.Now(), []time.Time{time.Now().Add(takes)}
	if loses {
		end, want = r.lose, ErrLeadershipLost
	}
	if loses || !r.leads {
		resigned = nil
	}
	end()
	defer time.AfterFunc(24*time.Hour, r.stop).Stop() // A loss that goes unheard would keep the test busy.
	if err := <-r.ended; !errors.Is(err, want) || time.Since(began) != takes || !slices.Equal(r.resigned, resigned) {
		r.t.Errorf("got error %v after %v, and resigned at %v, want %v after %v, %v", err, time.Since(began), r.resigned,
			want, takes, resigned)
	}
}

// TestC35Ends in each state of a controller: at once.
func TestC35Ends(t *testing.T) {
	for name, tc := range map[string]struct{ leads, loses bool }{
		"stopped while it leads": {leads: true},
		"the leadership is lost": {leads: true, loses: true},
		"stopped while it waits": {},
	} {
		t.Run(name, standby(append(teams(2, "team-"), source(), foreignObject()), func(t *testing.T, r *term) {
			if n := r.CountAll("", "get", "create", "update", "delete"); n > 0 {
				t.Errorf("got %d requests before it leads", n)
			}
			if tc.leads {
				r.lead()
				r.wantCopy("team-001", "value")
				time.Sleep(fanOutGap)
				r.edit("platform", data("new"))
				r.wantCopy("team-001", "new")
			}
			r.ends(tc.loses, 0)
			writes := r.countWrites("")
			r.edit("platform", data("other"))
			time.Sleep(time.Hour)
			r.wantWrites(writes, "")
		}))
	}
}

// TestC35StopBeforeTheCachesAreFilled ends Run.
func TestC35StopBeforeTheCachesAreFilled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t, []runtime.Object{source()}, func(*Options) {})
		s.hang(on(true, apitest.Call{Verb: "watch"}, apitest.Call{Verb: "list"}))
		s.start()()
	})
}

// TestC35StopLetsWritesEnd: a write that is cut may have happened or not. No other write begins, and the
// lease is given back when the last one has ended. The loss of the lease ends writes at once.
func TestC35StopLetsWritesEnd(t *testing.T) {
	for name, tc := range map[string]struct {
		takes, ends time.Duration
		loses       bool
		copies      int
	}{
		"slow":                         {takes: 10 * time.Second, ends: 10 * time.Second, copies: 32},
		"until they time out":          {takes: time.Hour, ends: requestTimeout},
		"cut by the loss of the lease": {takes: time.Hour, loses: true},
	} {
		t.Run(name, standby(teams(40, "team-"), func(t *testing.T, r *term) {
			r.delay(on(tc.takes, creates))
			r.lead()
			r.write(source())
			r.wantWrites(32, "team-") // as many as the flag allows
			r.ends(tc.loses, tc.ends)
			if !tc.loses { // else calls begin with a context that has ended
				r.wantWrites(32, "team-")
			}
			r.wantCopies(tc.copies, "team-", "value")
		}))
	}
}

// TestC35NothingHoldsUpTheEnd: the answer of a read is not needed any more, and another process is to take over. A
// watch that does not hear of the end does not hold it up, either.
func TestC35NothingHoldsUpTheEnd(t *testing.T) {
	hangingRead := func(namespace, resource string, happens func(scene)) func(*term) {
		return func(r *term) {
			r.hang(on(true, request("get", resource, namespace)))
			happens(r.scene)
			time.Sleep(3 * time.Second) // the fan-out, the line, and the grace
			if r.Hung.Load() == 0 {
				r.t.Error("got no read in flight")
			}
		}
	}
	watch := func(r *term) {
		r.beforeCall(func(c apitest.Call) {
			if c.Verb == "watch" {
				time.Sleep(time.Minute)
			}
		})
		r.Relist()
		time.Sleep(5 * time.Second) // client-go waits before it watches again
	}
	for name, holdUp := range map[string]func(*term){
		"a read of a source": hangingRead("platform", "configmaps",
			func(s scene) { s.edit("platform", unlabelled) }),
		"a read of a namespace":             hangingRead("team-001", "namespaces", func(s scene) { s.optOut("team-001") }),
		"a read of what is in the way":      hangingRead("team-000", "configmaps", func(scene) {}),
		"a watch":                           watch,
		"a watch, at the loss of the lease": watch,
	} {
		t.Run(name, standby(append(teams(2, "team-"), source(), foreignObject()), func(t *testing.T, r *term) {
			r.lead()
			holdUp(r)
			r.ends(name == "a watch, at the loss of the lease", 0)
			time.Sleep(time.Minute) // the watch ends in the bubble
		}))
	}
}

// unanswered are events that the API server never answers.
type unanswered struct{}

func (unanswered) Send(ctx context.Context, _ Event) error {
	<-ctx.Done()
	return ctx.Err()
}

// TestC35StopWaitsForEvents on their way for three seconds. The lease is given back before.
func TestC35StopWaitsForEvents(t *testing.T) {
	standby(teams(2, "team-"), func(t *testing.T, r *term) {
		r.controller.reporter.events = unanswered{}
		r.lead()
		r.write(source())
		time.Sleep(time.Minute)
		r.stop()
		began := time.Now()
		err := <-r.ended
		if took := time.Since(began); err != nil || took != 3*time.Second {
			t.Errorf("got the end, %v, after %v, want it after 3 s", err, took)
		}
		if !slices.Equal(r.resigned, []time.Time{began}) {
			t.Errorf("resigned at %v, want at %v", r.resigned, began)
		}
	})(t)
}

// TestC35StopHearsNoEvent: a write is in flight at the stop, and takes ten
// seconds more. What happens meanwhile is left to the next leader, which counts
// sources and targets, too.
func TestC35StopHearsNoEvent(t *testing.T) {
	standby(append(teams(3, "team-"), source()), func(t *testing.T, r *term) {
		r.lead()
		r.wantCopies(3, "team-", "value")
		r.delay(on(10*time.Second, updates))
		r.edit("team-000", data("spoilt"))
		synctest.Wait()
		r.wantMetric(2, "mirror_copies", "synced")
		r.wantMetric(1, "mirror_copies", "pending")
		r.stop()
		synctest.Wait()
		r.optOut("team-001")
		r.remove("team-002")
		time.Sleep(5 * time.Second)
		r.wantMetric(0, "mirror_sources")
		for _, state := range plan.Counted {
			r.wantMetric(0, "mirror_copies", state.String())
		}
		if err := <-r.ended; err != nil {
			t.Errorf("got the end %v", err)
		}
		r.wantCopy("team-000", "value")
	})(t)
}

// TestC35StopDuringARead: the stop comes with the answer of the read before an update. The update does not begin.
func TestC35StopDuringARead(t *testing.T) {
	standby(append(teams(1, "team-"), source()), func(t *testing.T, r *term) {
		r.lead()
		r.edit("team-000", plantest.Label("theirs", "x"))
		synctest.Wait()
		r.Hook(func(h *apitest.Hooks) {
			h.Answers = func(c apitest.Call) time.Duration {
				if c.Verb == "get" {
					r.stop()
				}
				return 0
			}
		})
		r.edit("team-000", data("spoilt"))
		time.Sleep(time.Second)
		r.stop() // also without a read
		if err := <-r.ended; err != nil {
			t.Errorf("got the end %v", err)
		}
		if n := r.CountAll("team-", "get"); n != 1 {
			t.Errorf("got %d reads, want one", n)
		}
		if n := r.CountAll("team-", "update"); n > 0 {
			t.Errorf("got %d updates after the stop, want none", n)
		}
	})(t)
}

// TestC35StopMakesNoMessage: after a stop those on their way are sent, and no other is made: it may be old.
func TestC35StopMakesNoMessage(t *testing.T) {
	standby(teams(2, "team-"), func(t *testing.T, r *term) {
		r.onEvent(func(Event) error { time.Sleep(time.Second); return nil })
		r.lead()
		for i := range 3 {
			r.write(plantest.Source("platform", fmt.Sprint("settings-", i)))
		}
		time.Sleep(reportDelay + 500*time.Millisecond)
		r.stop()
		began := time.Now()
		err := <-r.ended
		if took := time.Since(began); err != nil || took != 500*time.Millisecond || len(r.events) != 1 {
			t.Errorf("got events %v and the end, %v, after %v, want the one of the namespace that was on its way",
				r.events, err, took)
		}
	})(t)
}
