package mirror

import (
	"context"
	"errors"
	"hash/fnv"
	"maps"
	"sync"
	"time"

	"k8s.io/klog/v2"
)

// requestTimeout bounds every request but the watches. An admission webhook may take 30 seconds, and the API server's
// answer about it should arrive.
const requestTimeout = 35 * time.Second

const (
	// slowPlaces bounds the calls in flight that are slow. The API server has few seats for one account: with 64 places,
	// its priority and fairness refused healthy calls beside those that hang.
	slowPlaces = 16
	// slowReads bounds those of them that reads hold: many objects that are slow to read must not keep a namespace that was slow
	// once from its next try.
	slowReads = slowPlaces / 2
	// probeShare is the share of the normal places for probes. They make about 40 calls a second with the default of 32 writes.
	probeShare = 8
	// minSlow is the shortest time after which a call counts as slow.
	minSlow = 100 * time.Millisecond
	// slowFactor is how many times the usual duration a slow call takes.
	slowFactor = 8
	// usualStep is the factor by which one call moves the estimate of the usual duration, the median: it follows a jump of
	// latency to the tenfold within 13 calls.
	usualStep = 1.2
	// maxUsual is the highest estimate: targets that hang must not pass for usual ones.
	maxUsual = 250 * time.Millisecond
	// hanging is the time after which a call hangs.
	hanging = slowFactor * maxUsual
	// maxSlowFactor is how many times longer a call may be slow while no other call is answered: the whole API server, or this
	// machine, may be slow.
	maxSlowFactor = 4
	// firstPause and longestPause bound the time between two tries at what is slow: as long as it has been slow.
	firstPause, longestPause = 200 * time.Millisecond, 10 * time.Second
	// readsForgotten is the time after which a slow read is forgotten: nobody may ask for the object again.
	readsForgotten = time.Hour
	// placePause is the shortest time until a call that found no place looks again. It is shorter than the pause after a call
	// that was slow, so that those that hang leave room for the others.
	placePause = time.Second
)

// lanes hold the places for calls. A call starts in a normal place. A call that turns out to be slow moves to one of the slow
// places, so that targets that hang never hold up the others. A slow callee is tried only now and then, until a call is answered
// before it hangs, or until the namespace is deleted: in a slow place or, while there is none, by a probe.
type lanes struct {
	normal chan struct{}
	slow   chan struct{}
	// needed reports whether other calls wait for a place.
	needed func() bool

	mu      sync.Mutex
	usual   time.Duration // an estimate, of calls in normal places that succeeded
	healthy time.Time     // when a call was last answered before it was slow
	reading int           // slow places that reads hold
	probing int           // normal places that probes hold
	probed  bool          // the last call that began in a normal place was a probe
	slowed  map[callee]slowness
	calls   map[*call]bool // in flight
}

// callee is what is slow: the writes in a namespace, or the reads of one object.
type callee struct{ namespace, object string }

// slowness says that calls for a namespace, or reads of an object, are slow.
type slowness struct {
	since time.Time
	next  time.Time // the next try
}

// putOff is the error of a call that was slow, or was to be, while the places for such calls were taken, or that came too early.
// It is no failure. The call is conditional, so it does not matter whether the API server has carried it out.
type putOff struct{ until time.Duration }

func (putOff) Error() string { return "canceled: too many requests are slow" }

func newLanes(places int, needed func() bool) *lanes {
	return &lanes{
		normal: make(chan struct{}, places), slow: make(chan struct{}, slowPlaces), needed: needed,
		usual: minSlow / slowFactor, slowed: map[callee]slowness{}, calls: map[*call]bool{},
	}
}

// workers is the number of workers that use all places.
func (l *lanes) workers() int { return cap(l.normal) + cap(l.slow) }

// place is the place of a worker while it reconciles one copy. The mutex of lanes guards it.
type place struct {
	lanes *lanes
	moved bool // to a slow place
	read  bool // its call reads, and it is a slow place
}

// enter waits for a normal place. It returns nil if ctx ends before.
func (l *lanes) enter(ctx context.Context) *place {
	select {
	case l.normal <- struct{}{}:
		return &place{lanes: l}
	case <-ctx.Done():
		return nil
	}
}

// leave gives the place back.
func (p *place) leave() {
	p.lanes.mu.Lock()
	defer p.lanes.mu.Unlock()
	if !p.moved {
		<-p.lanes.normal
		return
	}
	<-p.lanes.slow
	if p.read {
		p.lanes.reading--
	}
}

// call is one call in a place. The mutex of lanes guards it.
type call struct {
	*place
	callee    callee
	reads     bool
	began     time.Time
	slowAfter time.Duration
	probes    bool // it is a probe
	ended     bool
	cut       bool // the namespace is deleted
	cancel    context.CancelCauseFunc
}

// write makes one call that writes in a namespace. It returns a putOff error if the call needs a slow place and there is none.
func (p *place) write(ctx context.Context, namespace string, f func(context.Context) error) error {
	return p.call(ctx, &call{place: p, callee: callee{namespace: namespace}}, f)
}

// readLive is as write, for a call that reads an object of a namespace, or the namespace itself.
func (p *place) readLive(ctx context.Context, namespace, object string, f func(context.Context) error) error {
	return p.call(ctx, &call{place: p, callee: callee{namespace, "/" + object}, reads: true}, f)
}

// forget forgets that a namespace was slow, and cuts the calls there: the namespace is deleted.
func (l *lanes) forget(namespace string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	maps.DeleteFunc(l.slowed, func(c callee, _ slowness) bool { return c.namespace == namespace })
	for c := range l.calls {
		if c.callee.namespace == namespace {
			c.cut = true
			c.cancel(putOff{minSlow})
		}
	}
}

func (p *place) call(ctx context.Context, c *call, f func(context.Context) error) error {
	l := p.lanes
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
	if off := (putOff{}); err != nil && errors.As(context.Cause(ctx), &off) {
		return off
	}
	c.note(err)
	return err
}

// begin returns a putOff error if the call must not begin now.
func (c *call) begin() error {
	l := c.lanes
	l.mu.Lock()
	defer l.mu.Unlock()
	if s, slowed := l.slowed[c.callee]; slowed && !c.moved { // a reconcile that has a slow place goes on
		if wait := s.next.Sub(c.began); wait > 0 {
			return putOff{c.jittered(wait)}
		}
		if !c.move() && !c.probe() {
			pause := l.turnIn()
			s.next = c.began.Add(pause)
			l.slowed[c.callee] = s
			return putOff{c.jittered(pause)}
		}
		c.slowDown()
	}
	if c.moved && !c.count() {
		return putOff{c.slowDown()}
	}
	if !c.moved {
		l.probed = c.probes
	}
	c.slowAfter = slowFactor * l.usual
	l.calls[c] = true
	return nil
}

// slow handles a call that is slow: it moves to a slow place. If there is none, a probe is cut. If others wait for its place, any
// call is cut, once it is known that others are answered, or has taken too long.
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
		c.cancel(putOff{c.slowDown()})
	case l.needed() && (l.healthy.After(c.began) || took >= maxSlowFactor*c.slowAfter):
		c.cancel(putOff{c.slowDown()})
	default:
		time.AfterFunc(minSlow, c.slow)
	}
}

// probe makes the call a probe: it is in a normal place, and is cut as soon as it is slow. It returns false if there are as many
// as there may be. If there is one place alone, others that wait have every second turn.
func (c *call) probe() bool {
	l := c.lanes
	if l.probing >= l.probes() || cap(l.normal) == 1 && l.probed && l.needed() {
		l.probed = false
		return false
	}
	c.lanes.probing++
	c.probes = true
	return true
}

// probes returns how many probes there may be at a time.
func (l *lanes) probes() int { return max(1, cap(l.normal)/probeShare) }

// turnIn returns the time until a call that found no place looks again: a quarter of what the probes take for all that is slow, so
// that no probe waits for a call, and thousands of calls do not look all the time.
func (l *lanes) turnIn() time.Duration {
	all := time.Duration(len(l.slowed)/l.probes()) * minSlow
	return min(max(placePause, all/4), longestPause)
}

func (c *call) endProbe() {
	if c.probes {
		c.lanes.probing--
		c.probes = false
	}
}

// move takes a slow place and gives the normal one back. It reports whether the call has a slow place.
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

// count counts the slow place of a call for what the call does: a reconcile may write and then read. It returns false if reads
// hold as many as they may.
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

// slowDown puts the next try off, and returns the time until then.
func (c *call) slowDown() time.Duration {
	l, now := c.lanes, time.Now()
	s, slowed := l.slowed[c.callee]
	if !slowed {
		s.since = c.began
		maps.DeleteFunc(l.slowed, func(c callee, s slowness) bool { return c.object != "" && now.Sub(s.next) > readsForgotten })
	}
	pause := min(max(now.Sub(s.since), firstPause), longestPause)
	s.next = now.Add(pause)
	l.slowed[c.callee] = s
	return c.jittered(pause)
}

// jittered returns up to half as long again, by the callee: calls that are put off together do not come back together.
func (c *call) jittered(d time.Duration) time.Duration {
	sum := fnv.New32a()
	sum.Write([]byte(c.callee.namespace + c.callee.object))
	return d + d/2*time.Duration(sum.Sum32()%100)/100
}

// note records how long an ended call took, and what that says of its callee.
func (c *call) note(err error) {
	l, took := c.lanes, time.Since(c.began)
	ok := err == nil || answered(err)
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

// withoutErrors returns a context whose logger logs no errors. client-go logs some that it also returns: one for each call
// that is cut while its response is read.
func withoutErrors(ctx context.Context) context.Context {
	logger := klog.FromContext(ctx)
	if logger.GetSink() == nil { // it logs nothing
		return ctx
	}
	return klog.NewContext(ctx, logger.WithSink(noErrors{logger.GetSink()}))
}

type noErrors struct{ klog.LogSink }

func (noErrors) Error(error, string, ...any) {}
