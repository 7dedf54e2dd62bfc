package lanes

import (
	"context"
	"errors"
	"hash/fnv"
	"maps"
	"time"

	"k8s.io/klog/v2"
)

// call is one call in a slot. The mutex of the lanes guards it.
type call struct {
	*Slot
	callee    callee
	reads     bool
	began     time.Time
	slowAfter time.Duration
	probes    bool // it is a probe
	ended     bool
	cut       bool // Forget has cut it
	cancel    context.CancelCauseFunc
}

// call makes one call.
func (s *Slot) call(ctx context.Context, c *call, f func(context.Context) error) error {
	l := s.lanes
	ctx, cancel := context.WithCancelCause(withoutErrors(ctx))
	defer cancel(nil)
	c.began, c.cancel = time.Now(), cancel
	if err := c.begin(); err != nil {
		return err
	}
	timer := time.AfterFunc(c.slowAfter, c.slow)
	err := f(ctx)
	timer.Stop()
	l.mu.Lock()
	defer l.mu.Unlock()
	c.ended = true
	delete(l.calls, c)
	c.endProbe()
	if off := (PutOffError{}); err != nil && errors.As(context.Cause(ctx), &off) {
		return off
	}
	c.record(err)
	return err
}

// begin counts the call as in flight, or returns PutOffError if it must not begin now.
func (c *call) begin() error {
	l := c.lanes
	l.mu.Lock()
	defer l.mu.Unlock()
	if s, slowed := l.slowed[c.callee]; slowed && !c.moved { // a worker that has a slow slot goes on
		if wait := s.next.Sub(c.began); wait > 0 {
			return PutOffError{c.jittered(wait)}
		}
		if !c.move() && !c.probe() {
			pause := l.turnIn()
			s.next = c.began.Add(pause)
			l.slowed[c.callee] = s
			return PutOffError{c.jittered(pause)}
		}
		c.slowDown()
	}
	if c.moved && !c.count() {
		return PutOffError{c.slowDown()}
	}
	if !c.moved {
		l.probed = c.probes
	}
	c.slowAfter = slowFactor * l.usual
	l.calls[c] = true
	return nil
}

// slow handles a call that is slow. The call moves to a slow slot if one is free. Otherwise slow cuts a probe at
// once. It cuts any other call if others wait for the slot, and if the API server has answered another call since or
// the call has taken too long.
func (c *call) slow() {
	l := c.lanes
	l.mu.Lock()
	defer l.mu.Unlock()
	took := time.Since(c.began)
	switch {
	case c.ended, c.cut:
	case c.move():
		c.endProbe()
		c.slowDown()
	case c.probes:
		c.cancel(PutOffError{c.slowDown()})
	case l.needed() && (l.healthy.After(c.began) || took >= maxSlowFactor*c.slowAfter):
		c.cancel(PutOffError{c.slowDown()})
	default:
		time.AfterFunc(minSlow, c.slow)
	}
}

// probe makes the call a probe. It returns false if there are as many probes as there may be. Of a single slot, other
// calls that wait have every second turn.
func (c *call) probe() bool {
	l := c.lanes
	if l.probing >= l.probes() || cap(l.normal) == 1 && l.probed && l.needed() {
		l.probed = false
		return false
	}
	l.probing++
	c.probes = true
	return true
}

// probes returns how many probes there may be at a time.
func (l *Lanes) probes() int { return max(1, cap(l.normal)/probeShare) }

// turnIn returns the time until a call that found no slot tries again: a quarter of the time in which the probes try
// all slow callees. So no probe waits for a call, and thousands of calls do not try all the time.
func (l *Lanes) turnIn() time.Duration {
	all := time.Duration(len(l.slowed)/l.probes()) * minSlow
	return min(max(slotPause, all/4), longestPause)
}

// endProbe makes the call a usual one, if it is a probe.
func (c *call) endProbe() {
	if c.probes {
		c.lanes.probing--
		c.probes = false
	}
}

// move takes a slow slot and gives the normal one back. It reports whether the call has a slow slot.
func (c *call) move() bool {
	l := c.lanes
	if c.moved {
		return true
	}
	select {
	case l.slow <- struct{}{}:
	default:
		return false
	}
	if !c.count() {
		<-l.slow
		return false
	}
	<-l.normal
	c.moved = true
	return true
}

// count counts the slow slot of a call as held by a read or by a write: a worker may write and then read. It returns
// false if reads hold as many slow slots as they may.
func (c *call) count() bool {
	l := c.lanes
	switch {
	case c.reads == c.read:
	case c.read:
		l.reading--
	case l.reading == slowReads:
		return false
	default:
		l.reading++
	}
	c.read = c.reads
	return true
}

// slowDown sets the next try of the callee, and returns the time until then.
func (c *call) slowDown() time.Duration {
	l, now := c.lanes, time.Now()
	s, slowed := l.slowed[c.callee]
	if !slowed {
		s.since = c.began
		maps.DeleteFunc(l.slowed, func(c callee, s slowness) bool {
			return c.object != "" && now.Sub(s.next) > readsForgotten
		})
	}
	pause := min(max(now.Sub(s.since), firstPause), longestPause)
	s.next = now.Add(pause)
	l.slowed[c.callee] = s
	return c.jittered(pause)
}

// jittered returns d and up to half of it, by the callee: calls that are put off together do not come back together.
func (c *call) jittered(d time.Duration) time.Duration {
	sum := fnv.New32a()
	sum.Write([]byte(c.callee.namespace + c.callee.object))
	return d + d/2*time.Duration(sum.Sum32()%100)/100
}

// record records how long an ended call took, and whether its callee is slow.
func (c *call) record(err error) {
	l, took := c.lanes, time.Since(c.began)
	ok := err == nil || l.answered(err)
	switch {
	case took >= hanging:
		c.slowDown()
	case ok:
		delete(l.slowed, c.callee)
	}
	if ok && took < c.slowAfter {
		l.healthy = time.Now()
	}
	if err != nil || c.moved {
		return
	}
	factor := usualStep
	if took < l.usual {
		factor = 1 / usualStep
	}
	l.usual = max(minSlow/slowFactor, min(time.Duration(float64(l.usual)*factor), maxUsual))
}

// withoutErrors returns a context whose logger logs no errors. client-go logs some that it also returns: one for each
// call that is cut while its response is read.
func withoutErrors(ctx context.Context) context.Context {
	logger := klog.FromContext(ctx)
	if logger.GetSink() == nil { // it logs nothing
		return ctx
	}
	return klog.NewContext(ctx, logger.WithSink(noErrors{logger.GetSink()}))
}

// noErrors is a LogSink that drops errors.
type noErrors struct{ klog.LogSink }

func (noErrors) Error(error, string, ...any) {}
