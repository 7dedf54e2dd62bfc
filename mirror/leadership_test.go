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
	"github.com/mirror-controller/mirror-controller/mirror/plan/plantest"
)

// term is a controller whose leadership a test gives and takes.
type term struct {
	scene
	stop     context.CancelFunc // Run's context
	lead     func()
	lose     context.CancelFunc
	ended    chan error
	resigned []time.Time
}

// runStandby runs a controller that does not lead yet. A bubble panics if one of its goroutines is left when f has
// returned: that nothing is left running is part of each of these tests.
func runStandby(t *testing.T, objects []runtime.Object, f func(*testing.T, *term)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := &term{scene: newScene(t, objects, func(*Options) {}), ended: make(chan error, 1)}
		defer r.isSafe()
		ctx, stop := context.WithCancel(r.logged())
		defer stop()
		leading, lose := context.WithCancel(context.WithoutCancel(ctx))
		defer lose()
		begun := make(chan context.Context, 1)
		r.stop, r.lose, r.lead = stop, lose, func() { begun <- leading; synctest.Wait() }
		go func() {
			r.ended <- r.controller.Run(ctx, Leadership{
				Begun:  begun,
				Resign: func() { r.resigned = append(r.resigned, time.Now()) },
			})
		}()
		synctest.Wait()
		f(t, r)
	})
}

// ends waits for the end of Run, and returns how long that takes.
func (r *term) ends(want error) time.Duration {
	r.t.Helper()
	began := time.Now()
	if err := <-r.ended; !errors.Is(err, want) {
		r.t.Errorf("got error %v, want %v", err, want)
	}
	return time.Since(began)
}

// TestC35Ends in each state of a controller: at once, and with a resignation only from what it has.
func TestC35Ends(t *testing.T) {
	for name, tc := range map[string]struct {
		leads, loses bool
		want         error
	}{
		"stopped while it leads": {leads: true},
		"the leadership is lost": {leads: true, loses: true, want: ErrLeadershipLost},
		"stopped while it waits": {},
	} {
		t.Run(name, func(t *testing.T) {
			runStandby(t, append(teams(2, "team-"), source(), foreignObject()), func(t *testing.T, r *term) {
				if n := r.CountAll("", "get", "create", "update", "delete"); n > 0 {
					t.Errorf("got %d requests before it leads", n)
				}
				if tc.leads {
					r.lead()
					r.wantCopy("team-001", "value")
				}
				if tc.loses {
					r.lose()
				} else {
					r.stop()
				}
				if took := r.ends(tc.want); took > 0 {
					t.Errorf("the end took %v", took)
				}
				if resigned := len(r.resigned) == 1; resigned != (tc.leads && !tc.loses) {
					t.Errorf("got resignations %v", r.resigned)
				}
				writes := r.countWrites("")
				r.edit("platform", plantest.Data("key", "other"))
				time.Sleep(time.Hour)
				r.wantWrites(writes, "")
			})
		})
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
		err         error
		copies      int
	}{
		"slow":                         {takes: 10 * time.Second, ends: 10 * time.Second, copies: 32},
		"until they time out":          {takes: time.Hour, ends: requestTimeout},
		"cut by the loss of the lease": {takes: time.Hour, err: ErrLeadershipLost},
	} {
		t.Run(name, func(t *testing.T) {
			runStandby(t, append(teams(40, "team-"), source()), func(t *testing.T, r *term) {
				r.delay(on(tc.takes, creates))
				r.lead()
				r.wantWrites(32, "team-") // as many as the flag allows
				if tc.err == nil {
					r.stop()
				} else {
					r.lose()
				}
				if took := r.ends(tc.err); took != tc.ends {
					t.Errorf("the end took %v, want %v", took, tc.ends)
				}
				if tc.err == nil { // else calls begin with a context that has ended
					r.wantWrites(32, "team-")
				}
				r.wantCopies(tc.copies, "team-", "value")
				if resigned := slices.Equal(r.resigned, []time.Time{time.Now()}); resigned != (tc.err == nil) {
					t.Errorf("resigned at %v, want once, after the last write, and not after a loss", r.resigned)
				}
			})
		})
	}
}

// TestC35NothingHoldsUpTheEnd: the answer of a read is not needed any more, and another process is to take over. A watch
// that does not hear of the end does not hold it up, either.
func TestC35NothingHoldsUpTheEnd(t *testing.T) {
	slowWatch := func(r *term) {
		r.beforeCall(func(c apitest.Call) {
			if c.Verb == "watch" {
				time.Sleep(time.Minute)
			}
		})
		r.Relist()
		time.Sleep(5 * time.Second) // client-go waits before it watches again
	}
	hangingRead := func(read apitest.Call, happens func(scene)) func(*term) {
		return func(r *term) {
			r.hang(on(true, read))
			happens(r.scene)
			time.Sleep(2 * time.Second)
			if r.Hung.Load() == 0 {
				r.t.Error("got no read in flight")
			}
		}
	}
	for name, tc := range map[string]struct {
		holdUp func(*term)
		loses  bool
	}{
		"a read of a source": {holdUp: hangingRead(readSource, func(s scene) { s.edit("platform", plantest.Without("mirror")) })},
		"a read of a namespace": {holdUp: hangingRead(request("get", "namespaces", "team-001"),
			func(s scene) { s.setNamespace(plantest.Namespace("team-001", "mirror", "false")) })},
		"a read of what is in the way":      {holdUp: hangingRead(request("get", "configmaps", "team-000"), func(scene) {})},
		"a watch":                           {holdUp: slowWatch},
		"a watch, at the loss of the lease": {holdUp: slowWatch, loses: true},
	} {
		t.Run(name, func(t *testing.T) {
			runStandby(t, append(teams(2, "team-"), source(), foreignObject()), func(t *testing.T, r *term) {
				r.lead()
				tc.holdUp(r)
				stopped, want := time.Now(), []time.Time{time.Now()}
				if tc.loses {
					want = nil
					r.lose()
					r.ends(ErrLeadershipLost)
				} else {
					r.stop()
					r.ends(nil)
				}
				if took := time.Since(stopped); took > 0 {
					t.Errorf("the end took %v", took)
				}
				if !slices.Equal(r.resigned, want) {
					t.Errorf("resigned at %v, want %v", r.resigned, want)
				}
				time.Sleep(time.Minute) // the watch ends in the bubble
			})
		})
	}
}

// TestC35StopMakesNoMessage: after a stop those on their way are sent, and no other is made: it may be old.
func TestC35StopMakesNoMessage(t *testing.T) {
	runStandby(t, teams(2, "team-"), func(t *testing.T, r *term) {
		for i := range 3 * reportWorkers {
			r.write(plantest.Source("platform", fmt.Sprint("settings-", i)))
		}
		r.onEvent(func(Event) error { time.Sleep(time.Second); return nil })
		r.lead()
		time.Sleep(runGap + 500*time.Millisecond)
		r.stop()
		if took := r.ends(nil); took != 500*time.Millisecond || len(r.events) != reportWorkers {
			t.Errorf("got events %v and the end after %v, want the %d that were on their way", r.events, took, reportWorkers)
		}
	})
}
