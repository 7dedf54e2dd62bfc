package mirror

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// pauseOf returns the time until the next try, as a call that was put off has it; 0 if it was not put off.
func pauseOf(err error) time.Duration {
	off := putOff{}
	errors.As(err, &off)
	return off.until
}

// TestFullSlowPool: with all slow places taken, a call that is slow is cut, and the healthy ones go on.
func TestFullSlowPool(t *testing.T) {
	const normal = 4
	inLanes(t, normal, func(t *testing.T, l *calls) {
		var hang []<-chan error
		for i := range slowPlaces + normal {
			hang = append(hang, l.worker(fmt.Sprintf("team-%d", i), time.Minute, nil))
			time.Sleep(minSlow / 2)
		}
		time.Sleep(hanging + minSlow) // until then nobody knows whether the API server answers anybody
		synctest.Wait()
		if len(l.slow) != slowPlaces || l.inFlight != slowPlaces || l.free() != normal {
			t.Errorf("got %d slow places taken, %d calls in flight, %d normal places free, want %d, %d, %d",
				len(l.slow), l.inFlight, l.free(), slowPlaces, slowPlaces, normal)
		}
		began, late := time.Now(), l.worker("late", time.Minute, nil)
		if err := <-l.worker("healthy", minSlow/2, nil); err != nil {
			t.Errorf("a healthy namespace: got error %v, want none", err)
		}
		if err := <-late; pauseOf(err) == 0 || time.Since(began) > 2*minSlow {
			t.Errorf("got error %v after %v, want a slow call cut at once: the API server answers another one", err, time.Since(began))
		}
		for i, result := range hang {
			if err := <-result; (pauseOf(err) > 0) != (i >= slowPlaces) {
				t.Errorf("call %d: got error %v", i, err)
			}
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
		if err := <-l.worker("team-a", 0, nil); pauseOf(err) == 0 {
			t.Errorf("got error %v, want a namespace put off after a call that hung in a normal place", err)
		}
		l.alone.Store(false)
		time.Sleep(2 * minSlow)
		synctest.Wait()
		select {
		case err := <-second:
			if pauseOf(err) == 0 {
				t.Errorf("got error %v, want it put off", err)
			}
		default:
			t.Error("got a slow call that goes on although others wait")
		}
		for range slowPlaces {
			<-l.slow
		}
	})
}

// TestCutAgainAndAgain: a namespace that was cut is tried again when a slow place is free. Meanwhile its pauses grow.
func TestCutAgainAndAgain(t *testing.T) {
	inLanes(t, 2, func(t *testing.T, l *calls) {
		for range slowPlaces {
			l.slow <- struct{}{}
		}
		last, err := time.Duration(0), <-l.worker("team-a", time.Minute, nil)
		for range 6 {
			pause := pauseOf(err)
			if pause < last || pause < firstPause || pause > longestPause*3/2 {
				t.Errorf("got a pause of %v after one of %v", pause, last)
			}
			time.Sleep(pause / 2)
			if rest := pauseOf(<-l.worker("team-a", 0, nil)); rest == 0 || rest > pause {
				t.Errorf("got a pause of %v within one of %v", rest, pause)
			}
			time.Sleep(pause - pause/2)
			last, err = pause, <-l.worker("team-a", 0, nil)
		}
		if last < longestPause {
			t.Errorf("got a pause of %v in the end, want %v at least", last, longestPause)
		}
		for range slowPlaces {
			<-l.slow
		}
		time.Sleep(pauseOf(err))
		for range 2 { // an answer ends the slowness
			if err := <-l.worker("team-a", 0, nil); err != nil {
				t.Errorf("got error %v, want none", err)
			}
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
		if pauseOf(err) == 0 || called {
			t.Errorf("got error %v and a call %v, want it put off before the call", err, called)
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
