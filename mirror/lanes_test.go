package mirror

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"
)

// calls counts the calls of a test of lanes: those in flight, and the most of them.
type calls struct {
	*lanes
	alone          atomic.Bool // no other call waits for a place
	mu             sync.Mutex
	inFlight, most int
}

// worker reconciles one copy with one call, which takes this long and ends with this error unless it is cut. The result
// comes when the place is free again.
func (c *calls) worker(namespace string, takes time.Duration, result error) <-chan error {
	done := make(chan error, 1)
	go func() {
		p := c.enter(context.Background())
		err := p.call(context.Background(), namespace, func(ctx context.Context) error {
			c.mu.Lock()
			c.inFlight++
			c.most = max(c.most, c.inFlight)
			c.mu.Unlock()
			defer func() {
				c.mu.Lock()
				c.inFlight--
				c.mu.Unlock()
			}()
			if !sleep(ctx, takes) {
				return ctx.Err()
			}
			return result
		})
		p.leave()
		done <- err
	}()
	synctest.Wait()
	return done
}

// free returns how many normal places are free.
func (l *lanes) free() int { return cap(l.normal) - len(l.normal) }

// isSlow reports whether the namespace starts in a slow place.
func (l *lanes) isSlow(namespace string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	m, slow := l.slowed[namespace]
	return slow && time.Now().Before(m.until)
}

// inLanes runs a test in virtual time, and checks that no place is lost.
func inLanes(t *testing.T, places int, f func(*testing.T, *calls)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c := &calls{}
		c.lanes = newLanes(places, func() bool { return !c.alone.Load() })
		f(t, c)
		time.Sleep(time.Hour)
		synctest.Wait()
		if len(c.normal)+len(c.slow) > 0 {
			t.Errorf("got %d normal and %d slow places taken at the end, want none", len(c.normal), len(c.slow))
		}
		if len(c.places) > 0 {
			t.Errorf("got slow places counted at the end: %v", c.places)
		}
	})
}

// errAway is an error that is no answer of the API server.
var errAway = errors.New("away")

func TestEnterWaitsForANormalPlace(t *testing.T) {
	inLanes(t, 2, func(t *testing.T, l *calls) {
		first, second := l.enter(t.Context()), l.enter(t.Context())
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if p := l.enter(ctx); p != nil {
			t.Error("got a third place of two")
		}
		first.leave()
		if p := l.enter(t.Context()); p == nil {
			t.Error("got no place although one is free")
		} else {
			p.leave()
		}
		second.leave()
		if got := l.workers(); got != 2+slowPlaces {
			t.Errorf("got %d workers, want one for each place, %d", got, 2+slowPlaces)
		}
	})
}

func TestSlowCallFreesItsNormalPlace(t *testing.T) {
	inLanes(t, 1, func(t *testing.T, l *calls) {
		result := l.worker("team-a", time.Minute, nil)
		time.Sleep(minSlow - 1)
		if l.free() != 0 {
			t.Error("got the place free before the call is slow")
		}
		time.Sleep(time.Nanosecond)
		if synctest.Wait(); l.free() != 1 || len(l.slow) != 1 {
			t.Errorf("got %d normal places free and %d slow ones taken, want 1 and 1", l.free(), len(l.slow))
		}
		if err := <-result; err != nil {
			t.Errorf("got error %v, want the call to end in its time", err)
		}
	})
}

// TestSlowNamespace: a namespace with a slow call has one call at a time, and until one is answered before it
// hangs it takes no normal place.
func TestSlowNamespace(t *testing.T) {
	internal := apierrors.NewInternalError(errAway)
	for name, tc := range map[string]struct {
		takes  time.Duration
		result error
		slow   bool // after the call
	}{
		"no answer, quickly":           {time.Millisecond, errAway, true},
		"no answer, slowly":            {time.Second, errAway, true},
		"a refusal before it hangs":    {hanging - 1, internal, false},
		"a refusal, slowly":            {hanging, internal, true},
		"a success before it hangs":    {hanging - 1, nil, false},
		"a success, slowly":            {hanging, nil, true},
		"a server without time for us": {time.Millisecond, apierrors.NewTooManyRequests("later", 1), true},
	} {
		t.Run(name, func(t *testing.T) {
			inLanes(t, 1, func(t *testing.T, l *calls) {
				<-l.worker("team-a", time.Second, errAway)
				second := l.worker("team-a", tc.takes, tc.result)
				if l.free() != 1 {
					t.Error("got a normal place taken by a slow namespace")
				}
				if err := <-l.worker("team-a", time.Second, nil); !errors.Is(err, errNoPlace) {
					t.Errorf("a second call at a time: got error %v, want %v", err, errNoPlace)
				}
				if err := <-second; err != tc.result {
					t.Errorf("got error %v, want %v", err, tc.result)
				}
				if slow := l.isSlow("team-a"); slow != tc.slow {
					t.Errorf("got slow %v, want %v", slow, tc.slow)
				}
				if l.forget("team-a"); l.isSlow("team-a") {
					t.Error("got a namespace slow that is gone")
				}
			})
		})
	}
}

// TestCallsThatBecomeSlowTogether: of several calls in one namespace that are slow, as many go on as half of the slow
// places hold: the API server may be slow for everybody. The next one does not start.
func TestCallsThatBecomeSlowTogether(t *testing.T) {
	const normal = slowPlaces
	inLanes(t, normal, func(t *testing.T, l *calls) {
		var hang []<-chan error
		for range normal {
			hang = append(hang, l.worker("team-a", time.Minute, nil))
		}
		time.Sleep(minSlow)
		synctest.Wait()
		if l.inFlight != slowPlaces/2 || l.free() != normal {
			t.Errorf("got %d calls in flight and %d normal places free, want %d and %d", l.inFlight, l.free(), slowPlaces/2, normal)
		}
		if err := <-l.worker("team-a", 0, nil); !errors.Is(err, errNoPlace) {
			t.Errorf("the next call: got error %v, want %v", err, errNoPlace)
		}
		other := l.worker("team-b", time.Minute, nil)
		cut := 0
		for _, result := range hang {
			if err := <-result; errors.Is(err, errNoPlace) {
				cut++
			} else if err != nil {
				t.Errorf("got error %v, want none or %v", err, errNoPlace)
			}
		}
		if cut != normal-slowPlaces/2 {
			t.Errorf("got %d calls cut, want %d", cut, normal-slowPlaces/2)
		}
		if err := <-other; err != nil {
			t.Errorf("the first slow call of another namespace: got error %v, want none", err)
		}
	})
}

// TestTheLastSlowCallFreesItsNamespace: the next call starts when all slow ones have ended, and not after the first.
func TestTheLastSlowCallFreesItsNamespace(t *testing.T) {
	inLanes(t, 4, func(t *testing.T, l *calls) {
		first := l.worker("team-a", time.Minute, errAway)
		<-l.worker("team-a", time.Second, errAway)
		if err := <-l.worker("team-a", 0, nil); !errors.Is(err, errNoPlace) {
			t.Errorf("beside the first: got error %v, want %v", err, errNoPlace)
		}
		<-first
		if err := <-l.worker("team-a", 0, nil); err != nil {
			t.Errorf("after both: got error %v, want none", err)
		}
	})
}

// TestHalfOfTheSlowPlaces: when they are taken, a namespace has one of the others.
func TestHalfOfTheSlowPlaces(t *testing.T) {
	inLanes(t, 2, func(t *testing.T, l *calls) {
		for range slowPlaces/2 - 1 {
			l.slow <- struct{}{}
		}
		first := l.worker("team-a", time.Minute, nil)
		time.Sleep(minSlow / 2)
		if err := <-l.worker("team-a", time.Minute, nil); !errors.Is(err, errNoPlace) {
			t.Errorf("got error %v, want %v", err, errNoPlace)
		}
		if err := <-first; err != nil {
			t.Errorf("the first one: got error %v, want none", err)
		}
		for range slowPlaces/2 - 1 {
			<-l.slow
		}
	})
}

// TestHungNamespaceIsTriedAgain in a normal place: while others hang, a free slow place may never come its way.
func TestHungNamespaceIsTriedAgain(t *testing.T) {
	inLanes(t, 1, func(t *testing.T, l *calls) {
		if err := <-l.worker("team-a", 30*time.Second, errAway); err != errAway || !l.isSlow("team-a") {
			t.Fatalf("got error %v, slow %v, want %v and a slow namespace", err, l.isSlow("team-a"), errAway)
		}
		for range slowPlaces {
			l.slow <- struct{}{}
		}
		if err := <-l.worker("team-a", time.Millisecond, nil); !errors.Is(err, errNoPlace) {
			t.Errorf("got error %v right after it hung, want %v", err, errNoPlace)
		}
		time.Sleep(maxSlow)
		if err := <-l.worker("team-a", time.Millisecond, nil); err != nil || l.isSlow("team-a") {
			t.Errorf("got error %v, slow %v a minute later, want a call that succeeds", err, l.isSlow("team-a"))
		}
		for range slowPlaces {
			<-l.slow
		}
	})
}

// TestMedianAdapts: calls that succeed decide which calls count as slow, and those that fail do not.
func TestMedianAdapts(t *testing.T) {
	inLanes(t, 1, func(t *testing.T, l *calls) {
		check := func(when string, from, to time.Duration) {
			t.Helper()
			p := l.enter(t.Context())
			defer p.leave()
			if after, _, _ := p.begin("probe"); after < from || after > to {
				t.Errorf("%s: got a call slow after %v, want %v to %v", when, after, from, to)
			}
		}
		check("at first", minSlow, minSlow)
		namespaces := 0
		call := func(takes time.Duration, result error, n int) { // each in another namespace
			for range n {
				namespaces++
				<-l.worker(fmt.Sprint(namespaces), takes, result)
			}
		}
		const usual = 10 * minSlow / slowFactor // ten times the first estimate
		from, to := 8*minSlow, 12*minSlow
		call(usual, nil, 13)
		check("after a jump to the tenfold", from, to)
		call(usual, nil, 100)
		check("when it stays there", from, to)
		call(time.Minute, errAway, 1)
		call(time.Millisecond, apierrors.NewBadRequest("no"), 100)
		check("after failures", from, to)
		for range 100 {
			<-l.worker("hangs", time.Minute, nil)
		}
		check("after a namespace that hangs", from*4/5, to*6/5) // its first call was as any other
		call(to, nil, 100)
		check("in a slow cluster", 2*time.Second, requestTimeout-1)
		call(time.Millisecond, nil, 100)
		check("in a quick cluster", minSlow, minSlow)
	})
}

// TestErrorsOfACallAreNotLogged: client-go logs what it returns, too.
func TestErrorsOfACallAreNotLogged(t *testing.T) {
	var out logBuffer
	ctx := klog.NewContext(t.Context(), textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(&out))))
	l := newLanes(1, func() bool { return false })
	p := l.enter(ctx)
	defer p.leave()
	err := p.call(ctx, "team-a", func(ctx context.Context) error {
		klog.FromContext(ctx).Error(errAway, "an error")
		klog.FromContext(ctx).Info("news")
		return errAway
	})
	if logged := out.String(); err != errAway || strings.Contains(logged, "an error") || !strings.Contains(logged, "news") {
		t.Errorf("got error %v and the log %q, want the error returned and only news logged", err, logged)
	}
}
