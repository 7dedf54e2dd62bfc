package mirror

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// TestFullSlowPool: with all slow places taken, a call that is slow is cut, and the healthy ones go on.
func TestFullSlowPool(t *testing.T) {
	const normal = 4
	inLanes(t, normal, func(t *testing.T, l *calls) {
		var hang []<-chan error
		for i := range slowPlaces + normal {
			hang = append(hang, l.worker(fmt.Sprintf("team-%d", i), time.Minute, nil))
			time.Sleep(minSlow / 2)
		}
		last := fmt.Sprintf("team-%d", len(hang)-1)
		time.Sleep(minSlow)
		if synctest.Wait(); !l.isSlow(last) {
			t.Error("got a namespace as usual right after its call was cut")
		}
		if time.Sleep(firstSlow); l.isSlow(last) {
			t.Error("got a namespace slow for ever after its call was cut: nobody knows how long it would have taken")
		}
		if len(l.slow) != slowPlaces || l.inFlight != slowPlaces || l.free() != normal {
			t.Errorf("got %d slow places taken, %d calls in flight, %d normal places free, want %d, %d, %d",
				len(l.slow), l.inFlight, l.free(), slowPlaces, slowPlaces, normal)
		}
		if err := <-l.worker("healthy", minSlow/2, nil); err != nil {
			t.Errorf("a healthy namespace: got error %v, want none", err)
		}
		for i, result := range hang {
			if err := <-result; errors.Is(err, errNoPlace) != (i >= slowPlaces) {
				t.Errorf("call %d: got error %v", i, err)
			}
		}
		for i := range hang[:slowPlaces] {
			if !l.isSlow(fmt.Sprintf("team-%d", i)) {
				t.Errorf("team-%d: got it as usual after a slow call, want it slow until an answer comes quickly", i)
			}
		}
		if l.isSlow("healthy") {
			t.Error("got the healthy namespace slow")
		}
		if l.most > normal+slowPlaces {
			t.Errorf("got %d calls in flight, want %d at most", l.most, normal+slowPlaces)
		}
	})
}

// TestNobodyWaits: a slow call is not cut while nobody needs its place.
func TestNobodyWaits(t *testing.T) {
	inLanes(t, 2, func(t *testing.T, l *calls) {
		for range slowPlaces {
			l.slow <- struct{}{}
		}
		l.alone.Store(true)
		first := l.worker("team-a", time.Minute, nil)
		time.Sleep(time.Minute / 2)
		second := l.worker("team-b", time.Minute, nil)
		if err := <-first; err != nil {
			t.Errorf("got error %v, want none", err)
		}
		if !l.isSlow("team-a") {
			t.Error("got a namespace as usual after a call that hung in a normal place")
		}
		l.alone.Store(false)
		time.Sleep(2 * minSlow)
		synctest.Wait()
		select {
		case err := <-second:
			if !errors.Is(err, errNoPlace) {
				t.Errorf("got error %v, want %v", err, errNoPlace)
			}
		default:
			t.Error("got a slow call that goes on although others wait")
		}
		for range slowPlaces {
			<-l.slow
		}
	})
}

// TestCutAgainAndAgain: each cut makes the next try of its namespace later.
func TestCutAgainAndAgain(t *testing.T) {
	inLanes(t, 2, func(t *testing.T, l *calls) {
		for range slowPlaces {
			l.slow <- struct{}{}
		}
		for _, seconds := range []time.Duration{5, 10, 20, 40, 60, 60} {
			if err := <-l.worker("team-a", time.Minute, nil); !errors.Is(err, errNoPlace) {
				t.Errorf("got error %v, want %v", err, errNoPlace)
			}
			time.Sleep(seconds*time.Second - 1)
			began := time.Now()
			if <-l.worker("team-a", 0, nil); time.Since(began) > 0 || !l.isSlow("team-a") {
				t.Errorf("got a call before %d seconds are over", int(seconds))
			}
			time.Sleep(time.Nanosecond)
			probe := l.worker("team-a", 50*time.Millisecond, errAway)
			if err := <-l.worker("team-a", 0, nil); !errors.Is(err, errNoPlace) {
				t.Errorf("beside the first try: got error %v, want %v", err, errNoPlace)
			}
			if err := <-probe; err != errAway {
				t.Errorf("after %d seconds: got error %v, want that the namespace is tried", int(seconds), err)
			}
		}
		for range slowPlaces {
			<-l.slow
		}
	})
}

// TestCutCalls: a call that was cut may have succeeded, and a stop is no cut.
func TestCutCalls(t *testing.T) {
	inLanes(t, 1, func(t *testing.T, l *calls) {
		hang := l.worker("team-a", time.Minute, nil)
		time.Sleep(minSlow)
		synctest.Wait()
		p := l.enter(t.Context())
		called := false
		err := p.call(t.Context(), "team-a", func(context.Context) error { called = true; return nil })
		if !errors.Is(err, errNoPlace) || called {
			t.Errorf("got error %v and a call %v, want %v before the call", err, called, errNoPlace)
		}
		for range slowPlaces - 1 {
			l.slow <- struct{}{}
		}
		err = p.call(t.Context(), "team-b", func(ctx context.Context) error { <-ctx.Done(); return nil })
		if err != nil {
			t.Errorf("a call that succeeded: got error %v, want none", err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		err = p.call(ctx, "team-c", func(ctx context.Context) error { <-ctx.Done(); return context.Cause(ctx) })
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a call that was stopped: got error %v, want %v", err, context.DeadlineExceeded)
		}
		p.leave()
		for range slowPlaces - 1 {
			<-l.slow
		}
		<-hang
	})
}

// TestSecondCallInASlowPlace: a create and the read after it have one place.
func TestSecondCallInASlowPlace(t *testing.T) {
	inLanes(t, 1, func(t *testing.T, l *calls) {
		p := l.enter(t.Context())
		for range 2 {
			if err := p.call(t.Context(), "team-a", func(context.Context) error { time.Sleep(time.Second); return errAway }); err != errAway {
				t.Errorf("got error %v, want %v", err, errAway)
			}
		}
		if len(l.slow) != 1 || l.free() != 1 {
			t.Errorf("got %d slow places taken and %d normal ones free, want 1 and 1", len(l.slow), l.free())
		}
		p.leave()
	})
}
