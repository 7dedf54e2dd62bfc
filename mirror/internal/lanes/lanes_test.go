package lanes

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"
)

// calls counts the calls of a test of lanes: those in flight, and the most of them.
type calls struct {
	*Lanes
	alone          atomic.Bool // no other call waits for a slot
	mu             sync.Mutex
	inFlight, most int
}

// worker reconciles one copy with one write, which takes this long and ends with this error unless it is cut. The
// result comes when the slot is free again.
func (c *calls) worker(namespace string, takes time.Duration, result error) <-chan error {
	return c.start(func(s *Slot) callFunc { return s.Write }, namespace, takes, result)
}

// reader is as worker, with a read.
func (c *calls) reader(object string, takes time.Duration, result error) <-chan error {
	return c.start(func(s *Slot) callFunc {
		return func(ctx context.Context, object string, f func(context.Context) error) error {
			return s.Read(ctx, object, "settings", f)
		}
	}, object, takes, result)
}

type callFunc func(ctx context.Context, subject string, f func(context.Context) error) error

func (c *calls) start(call func(*Slot) callFunc, subject string, takes time.Duration, result error) <-chan error {
	done := make(chan error, 1)
	go func() {
		p := c.Enter(context.Background())
		err := call(p)(context.Background(), subject, func(ctx context.Context) error {
			c.mu.Lock()
			c.inFlight++
			c.most = max(c.most, c.inFlight)
			c.mu.Unlock()
			defer func() {
				c.mu.Lock()
				c.inFlight--
				c.mu.Unlock()
			}()
			return cmp.Or(sleep(ctx, takes), result)
		})
		p.Leave()
		done <- err
	}()
	synctest.Wait()
	return done
}

// sleep returns the error of ctx if that ends before the time is over.
func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// free returns how many normal slots are free: so many workers enter at once.
func (l *Lanes) free() int {
	ctx, cancel := context.WithTimeout(context.Background(), 1)
	defer cancel()
	var slots []*Slot
	for s := l.Enter(ctx); s != nil; s = l.Enter(ctx) {
		slots = append(slots, s)
	}
	for _, s := range slots {
		s.Leave()
	}
	return len(slots)
}

// isSlow reports whether a call for the subject starts in a slow slot, if it does.
func (l *Lanes) isSlow(subject string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, slow := l.slowed[callee{namespace: subject}]
	return slow
}

// inProbes returns how many probes are in flight.
func (l *Lanes) inProbes() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.probing
}

// fillSlow takes the free slow slots, until free is called.
func (l *Lanes) fillSlow() (free func()) {
	n := cap(l.slow) - len(l.slow)
	for range n {
		l.slow <- struct{}{}
	}
	return func() {
		for range n {
			<-l.slow
		}
	}
}

// putOffFor returns how long a call was put off for; 0 if it was not.
func putOffFor(err error) time.Duration {
	off := PutOffError{}
	errors.As(err, &off)
	return off.RetryAfter
}

// inLanes runs a test in virtual time, and checks that no slot is lost.
func inLanes(t *testing.T, slots int, f func(*testing.T, *calls)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c := &calls{}
		c.Lanes = New(slots, func() bool { return !c.alone.Load() }, func(err error) bool { return err == errRefused })
		f(t, c)
		time.Sleep(time.Hour)
		synctest.Wait()
		if calls, slow := c.InFlight(); c.free() != slots || calls+slow > 0 {
			t.Errorf("at the end: got %d of %d slots free, %d slow ones taken and %d calls", c.free(), slots, slow, calls)
		}
	})
}

// errRefused is an answer of the API server, and errAway is none.
var errRefused, errAway = errors.New("refused"), errors.New("away")

// TestWhatIsSlowTakesNoNormalSlot: a slow namespace takes no normal slot and has one call at a time, until a call
// there is answered before it hangs.
func TestWhatIsSlowTakesNoNormalSlot(t *testing.T) {
	for name, tc := range map[string]struct {
		takes  time.Duration
		result error
		slow   bool // after the call
	}{
		"no answer, quickly":        {time.Millisecond, errAway, true},
		"no answer, slowly":         {time.Second, errAway, true},
		"a refusal before it hangs": {hanging - 1, errRefused, false},
		"a refusal, slowly":         {hanging, errRefused, true},
		"a success before it hangs": {hanging - 1, nil, false},
		"a success, slowly":         {hanging, nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			inLanes(t, 1, func(t *testing.T, l *calls) {
				<-l.worker("team-a", time.Second, errAway)
				second := l.worker("team-a", tc.takes, tc.result)
				if l.free() != 1 {
					t.Error("got a normal slot taken by a slow namespace")
				}
				if err := <-l.worker("team-a", time.Second, nil); putOffFor(err) == 0 {
					t.Errorf("a second call at a time: got error %v, want it put off", err)
				}
				if err := <-second; err != tc.result {
					t.Errorf("got error %v, want %v", err, tc.result)
				}
				if slow := l.isSlow("team-a"); slow != tc.slow {
					t.Errorf("got slow %v, want %v", slow, tc.slow)
				}
			})
		})
	}
}

// TestSlowReadsLeaveSlotsToWrites: however many objects are slow to read, a namespace that was slow once has its next
// try.
func TestSlowReadsLeaveSlotsToWrites(t *testing.T) {
	inLanes(t, slowSlots, func(t *testing.T, l *calls) {
		<-l.worker("team-a", time.Second, errAway)
		var reads []<-chan error
		for i := range 2 * slowSlots {
			reads = append(reads, l.reader(fmt.Sprintf("team-b/%d", i), time.Minute, nil))
			time.Sleep(2 * maxSlowFactor * minSlow)
		}
		if err := <-l.worker("team-a", time.Millisecond, nil); err != nil {
			t.Errorf("beside slow reads: got error %v", err)
		}
		cut := 0
		for _, read := range reads {
			if putOffFor(<-read) > 0 {
				cut++
			}
		}
		if want := len(reads) - slowReads; cut != want {
			t.Errorf("got %d reads put off, want %d", cut, want)
		}
		if l.reading != 0 {
			t.Errorf("got %d slow slots held by reads that have ended", l.reading)
		}
	})
}

// TestReadsAfterSlowWritesLeaveSlotsToWrites: reconciles whose writes were slow, and then read, leave slow slots to
// writes as well.
func TestReadsAfterSlowWritesLeaveSlotsToWrites(t *testing.T) {
	inLanes(t, slowSlots, func(t *testing.T, l *calls) {
		var off atomic.Int32
		for i := range slowSlots {
			go func() {
				p := l.Enter(t.Context())
				defer p.Leave()
				takes := func(d time.Duration) func(context.Context) error {
					return func(ctx context.Context) error { _ = sleep(ctx, d); return nil }
				}
				if err := p.Write(t.Context(), fmt.Sprintf("team-%d", i), takes(time.Second)); err != nil {
					t.Error(err)
				}
				if putOffFor(p.Read(t.Context(), fmt.Sprintf("team-%d", i), "settings", takes(time.Minute))) > 0 {
					off.Add(1)
				}
			}()
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if _, slow := l.InFlight(); slow != slowReads || off.Load() != slowSlots-slowReads {
			t.Errorf("got %d slow slots taken and %d reads put off, want half of them each", slow, off.Load())
		}
		time.Sleep(time.Minute)
	})
}

// TestWhatIsSlowIsTriedSeldom: the time until the next try is as long as it has been slow, up to a bound. No call
// begins before.
func TestWhatIsSlowIsTriedSeldom(t *testing.T) {
	const ms = time.Millisecond
	for name, full := range map[string]bool{"in a slow slot": false, "by probes": true} {
		t.Run(name, func(t *testing.T) {
			inLanes(t, 1, func(t *testing.T, l *calls) {
				next := time.Now().Add(minSlow + firstPause)
				<-l.worker("team-a", minSlow+1, errAway)
				if full {
					l.alone.Store(true)
					defer l.fillSlow()()
				}
				for _, pause := range []time.Duration{300 * ms, 600 * ms, 1200 * ms, 2400 * ms, 4800 * ms, 9600 * ms,
					10000 * ms, 10000 * ms} {
					time.Sleep(time.Until(next) - 10*ms)
					if off := putOffFor(<-l.worker("team-a", 0, nil)); off < 10*ms || off >= 15*ms {
						t.Errorf("10 ms before a pause of %v: got a call put off for %v, want that and up to half of it", pause, off)
					}
					time.Sleep(10 * ms)
					next = time.Now().Add(pause)
					if err := <-l.worker("team-a", 0, errAway); err != errAway {
						t.Errorf("before a pause of %v: got error %v", pause, err)
					}
				}
				time.Sleep(time.Hour)
				if <-l.worker("team-b", minSlow+1, errAway); !l.isSlow("team-a") {
					t.Error("got a slow namespace forgotten after an hour without a try")
				}
			})
		})
	}
}

// TestDeletedNamespaceIsForgotten: a namespace that is deleted is forgotten, and a call there is cut.
func TestDeletedNamespaceIsForgotten(t *testing.T) {
	inLanes(t, 1, func(t *testing.T, l *calls) {
		write, read := l.worker("team-a", time.Minute, nil), l.reader("team-a", time.Minute, nil)
		other := l.worker("team-b", time.Minute, nil)
		time.Sleep(time.Second)
		began := time.Now()
		l.Forget("team-a")
		if a, b := putOffFor(<-write), putOffFor(<-read); a == 0 || b == 0 || time.Since(began) > 0 {
			t.Errorf("got calls put off for %v and %v after %v, want both cut at once", a, b, time.Since(began))
		}
		if l.isSlow("team-a") || !l.isSlow("team-b") {
			t.Error("want team-a forgotten, and team-b known as slow")
		}
		err := <-other
		if calls, _ := l.InFlight(); err != nil || calls > 0 {
			t.Errorf("got error %v and %d calls left in flight", err, calls)
		}
	})
}

// TestProbesTakeEverySecondTurnOfOneSlot: of a single slot probes take every second turn, if others wait.
func TestProbesTakeEverySecondTurnOfOneSlot(t *testing.T) {
	inLanes(t, 1, func(t *testing.T, l *calls) {
		defer l.fillSlow()()
		for _, namespace := range []string{"team-a", "team-b", "team-c"} {
			<-l.worker(namespace, time.Minute, nil)
		}
		time.Sleep(longestPause)
		probe := func(namespace string) bool {
			began := time.Now()
			<-l.worker(namespace, time.Minute, nil)
			return time.Since(began) > 0
		}
		if !probe("team-a") || probe("team-b") || !probe("team-c") {
			t.Error("want a probe, then none, then one")
		}
		time.Sleep(longestPause)
		l.alone.Store(true)
		if !probe("team-a") || !probe("team-b") {
			t.Error("want two probes in a row if nobody waits")
		}
	})
}

// TestProbesAreBounded: without a free slow slot, a bounded number of probes tries slow namespaces, and each probe is
// cut when it is slow.
func TestProbesAreBounded(t *testing.T) {
	inLanes(t, 2*probeShare, func(t *testing.T, l *calls) {
		slow := []string{"team-a", "team-b", "team-c"}
		for _, namespace := range slow {
			<-l.worker(namespace, minSlow+1, errAway)
		}
		free := l.fillSlow()
		time.Sleep(longestPause)
		began := time.Now()
		var results []<-chan error
		for _, namespace := range slow {
			results = append(results, l.worker(namespace, time.Minute, nil))
		}
		off := putOffFor(<-results[2])
		if l.inProbes() != 2 || off < slotPause || off > 2*slotPause || time.Since(began) > 0 {
			t.Errorf("got %d probes after %v, and the third call put off for %v, want two, and about %v", l.inProbes(),
				time.Since(began), off, slotPause)
		}
		if off := putOffFor(<-results[0]); off == 0 || time.Since(began) != minSlow {
			t.Errorf("got a probe cut after %v, put off for %v", time.Since(began), off)
		}
		<-results[1]
		time.Sleep(longestPause)
		moves := l.worker("team-b", time.Second, nil)
		free()
		time.Sleep(minSlow)
		synctest.Wait()
		if _, slow := l.InFlight(); l.inProbes() != 0 || slow != 1 {
			t.Errorf("got %d probes and %d slow slots taken by a probe that has moved to one, want 0 and 1", l.inProbes(), slow)
		}
		<-moves
		time.Sleep(longestPause)
		if err := <-l.worker("team-a", time.Millisecond, nil); err != nil || l.inProbes() != 0 || l.isSlow("team-a") {
			t.Errorf("got error %v, %d probes left, and a namespace that is slow %v", err, l.inProbes(), l.isSlow("team-a"))
		}
	})
}

// TestSlowCallsAreCutIfOthersWait: when all slow slots are taken, a slow call is cut if others wait and the API server
// has answered one of them since the call began. A server on which everything hangs answers none, so the call is cut
// some time later all the same.
func TestSlowCallsAreCutIfOthersWait(t *testing.T) {
	const ms = time.Millisecond
	for name, tc := range map[string]struct {
		alone  bool
		began  time.Duration // of another call, which takes 10 ms
		result error
		want   time.Duration
	}{
		"nobody waits":                {true, 20 * ms, nil, time.Minute},
		"others are answered":         {false, 20 * ms, nil, minSlow},
		"others are refused":          {false, 20 * ms, errRefused, minSlow},
		"others are answered later":   {false, 270 * ms, nil, 3 * minSlow},
		"others have no answer":       {false, 20 * ms, errAway, maxSlowFactor * minSlow},
		"others were answered before": {false, -20 * ms, nil, maxSlowFactor * minSlow},
		"others are slow":             {false, time.Second, nil, maxSlowFactor * minSlow},
	} {
		t.Run(name, func(t *testing.T) {
			inLanes(t, 2, func(t *testing.T, l *calls) {
				defer l.fillSlow()()
				l.alone.Store(tc.alone)
				go func() {
					time.Sleep(30*ms + tc.began)
					l.worker("team-b", 10*ms, tc.result)
				}()
				time.Sleep(30 * ms)
				began := time.Now()
				err := <-l.worker("team-a", time.Minute, nil)
				if took, off := time.Since(began), putOffFor(err); took != tc.want || (off >= firstPause) == tc.alone {
					t.Errorf("got error %v, put off for %v, after %v, want an end after %v", err, off, took, tc.want)
				}
				if !l.isSlow("team-a") {
					t.Error("got a namespace as usual after its call was cut, or hung")
				}
			})
		})
	}
}

// TestSuccessAndStopAreNoCut: a call that was cut may have succeeded, and a stop is no cut.
func TestSuccessAndStopAreNoCut(t *testing.T) {
	inLanes(t, 1, func(t *testing.T, l *calls) {
		defer l.fillSlow()()
		p := l.Enter(t.Context())
		defer p.Leave()
		if err := p.Write(t.Context(), "team-a", func(ctx context.Context) error { <-ctx.Done(); return nil }); err != nil {
			t.Errorf("a call that succeeded: got error %v, want none", err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if err := p.Write(ctx, "team-b", func(ctx context.Context) error { <-ctx.Done(); return errAway }); err != errAway {
			t.Errorf("a call that was stopped: got error %v, want %v", err, errAway)
		}
	})
}

// TestUsualTimeDecidesWhatIsSlow: where calls take long, a call counts as slow later. Calls that fail decide nothing.
func TestUsualTimeDecidesWhatIsSlow(t *testing.T) {
	inLanes(t, 1, func(t *testing.T, l *calls) {
		namespaces := 0
		call := func(takes time.Duration, result error) <-chan error { // each in another namespace
			namespaces++
			return l.worker(fmt.Sprint(namespaces), takes, result)
		}
		want := func(when string, want int) {
			t.Helper()
			done := call(2*minSlow, nil)
			time.Sleep(2*minSlow - 1)
			synctest.Wait()
			if _, slow := l.InFlight(); slow != want {
				t.Errorf("%s: got %d calls of %v in a slow slot, want %d", when, slow, 2*minSlow, want)
			}
			<-done
		}
		l.alone.Store(true)
		want("at first", 1)
		free := l.fillSlow() // a call that moves does not count
		for range 100 {
			<-call(10*minSlow/slowFactor, nil)
			<-call(time.Millisecond, errRefused)
		}
		free()
		want("where calls take long", 0)
		for range 100 {
			<-call(time.Millisecond, nil)
		}
		want("where they are quick again", 1)
	})
}

// TestErrorsOfACallAreNotLogged: client-go logs each error that it returns.
func TestErrorsOfACallAreNotLogged(t *testing.T) {
	var out bytes.Buffer
	ctx := klog.NewContext(t.Context(), textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(&out))))
	l := New(1, func() bool { return false }, func(error) bool { return false })
	p := l.Enter(ctx)
	defer p.Leave()
	err := p.Write(ctx, "team-a", func(ctx context.Context) error {
		klog.FromContext(ctx).Error(errAway, "an error")
		klog.FromContext(ctx).Info("news")
		return errAway
	})
	if logged := out.String(); err != errAway || strings.Contains(logged, "an error") ||
		!strings.Contains(logged, "news") {
		t.Errorf("got error %v and the log %q, want the error returned and only news logged", err, logged)
	}
}
