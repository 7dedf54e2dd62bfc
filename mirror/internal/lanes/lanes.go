// Package lanes holds the slots for calls to an API server, so that namespaces whose calls hang do not hold up the
// others. It does not know the purpose of a call.
//
// A worker enters a normal slot, makes its calls there, and leaves. A call that takes much longer than usual moves to
// one of the slow slots and frees its normal one. Its callee, the writes in a namespace or the reads of one object,
// counts as slow from then on: it gets one call at a time, and not before the next try is due. That call starts in a
// slow slot. While there is none it is a probe: it starts in a normal slot, and is cut as soon as it is slow. A
// callee is slow until a call is answered in time, or until its namespace is deleted.
//
// While all slow slots are taken, a slow call goes on in its normal slot. It is cut when others need the slot and the
// API server answers others. So a call must be conditional: after a cut nobody knows whether the API server carried
// it out.
package lanes

import (
	"context"
	"maps"
	"sync"
	"time"
)

const (
	// slowSlots bounds the calls in flight that are slow. The API server has few seats for one account: with 64 slots,
	// its priority and fairness refused healthy calls beside those that hang.
	slowSlots = 16
	// slowReads bounds the slow slots that reads hold: many objects that are slow to read must not keep a namespace
	// that was slow once from its next try.
	slowReads = slowSlots / 2
	// probeShare is the share of the normal slots for probes. They make about 40 calls a second with the default of 32
	// writes.
	probeShare = 8
	// minSlow is the shortest time after which a call counts as slow.
	minSlow = 100 * time.Millisecond
	// slowFactor is how many times the usual duration a slow call takes.
	slowFactor = 8
	// usualStep is the factor by which one call moves the estimate of the usual duration, the median: it follows a
	// jump of latency to the tenfold within 13 calls.
	usualStep = 1.2
	// maxUsual is the highest estimate: targets that hang must not pass for usual ones.
	maxUsual = 250 * time.Millisecond
	// hanging is the time after which a call hangs.
	hanging = slowFactor * maxUsual
	// maxSlowFactor is how many times longer a call may be slow while no other call is answered: the whole API
	// server, or this machine, may be slow.
	maxSlowFactor = 4
	// firstPause and longestPause bound the time between two tries of a slow callee: as long as it has been slow.
	firstPause, longestPause = 200 * time.Millisecond, 10 * time.Second
	// readsForgotten is the time after which a slow read is forgotten: nobody may ask for the object again.
	readsForgotten = time.Hour
	// slotPause is the shortest time until a call that found no slot tries again. It is shorter than the pause of a
	// callee that hangs, so that the callees that hang leave room for the others.
	slotPause = time.Second
)

// Lanes are the slots for the calls of one process, normal and slow.
type Lanes struct {
	normal   chan struct{} // one element for each slot that is taken
	slow     chan struct{} // as normal
	needed   func() bool
	answered func(error) bool

	mu      sync.Mutex
	usual   time.Duration // an estimate, of calls in normal slots that succeeded
	healthy time.Time     // when a call was last answered before it was slow
	reading int           // slow slots that reads hold
	probing int           // normal slots that probes hold
	probed  bool          // the last call that began in a normal slot was a probe
	slowed  map[callee]slowness
	calls   map[*call]bool // in flight
}

// callee is the part of the API server that may be slow: the writes in a namespace, or the reads of one object.
type callee struct{ namespace, object string }

// slowness says since when a callee is slow, and when its next try is due.
type slowness struct{ since, next time.Time }

// New returns lanes with this many normal slots, and 16 slow ones. needed reports whether others wait for a slot; it
// is called with the mutex of the lanes held, and must not wait. answered reports whether an error of a call is the API
// server's answer to that call, and not the sign of a broken connection or of an overloaded server.
func New(slots int, needed func() bool, answered func(error) bool) *Lanes {
	return &Lanes{
		normal: make(chan struct{}, slots), slow: make(chan struct{}, slowSlots), needed: needed, answered: answered,
		usual: minSlow / slowFactor, slowed: map[callee]slowness{}, calls: map[*call]bool{},
	}
}

// Workers returns how many workers it takes to use all slots, normal and slow.
func (l *Lanes) Workers() int { return cap(l.normal) + cap(l.slow) }

// InFlight returns how many calls are in flight, and how many slow slots are taken.
func (l *Lanes) InFlight() (calls, slow int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.calls), len(l.slow)
}

// Forget forgets that a namespace is slow, and cuts the calls there. Call it when the namespace is deleted.
func (l *Lanes) Forget(namespace string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	maps.DeleteFunc(l.slowed, func(c callee, _ slowness) bool { return c.namespace == namespace })
	for c := range l.calls {
		if c.callee.namespace == namespace {
			c.cut = true
			c.cancel(PutOffError{minSlow})
		}
	}
}

// Slot is the slot of one worker, for one call after the other.
type Slot struct {
	lanes *Lanes
	// The mutex of the lanes guards the rest.
	moved bool // it is a slow slot
	read  bool // it is a slow slot, and its call reads
}

// Enter waits for a normal slot. It returns nil if ctx ends before.
func (l *Lanes) Enter(ctx context.Context) *Slot {
	select {
	case l.normal <- struct{}{}:
		return &Slot{lanes: l}
	case <-ctx.Done():
		return nil
	}
}

// Leave gives the slot back.
func (s *Slot) Leave() {
	s.lanes.mu.Lock()
	defer s.lanes.mu.Unlock()
	if !s.moved {
		<-s.lanes.normal
		return
	}
	<-s.lanes.slow
	if s.read {
		s.lanes.reading--
	}
}

// Write runs f, which makes one call that writes in a namespace, and returns its error, or PutOffError. The context
// of f ends if the call is cut, and its logger logs no errors.
func (s *Slot) Write(ctx context.Context, namespace string, f func(context.Context) error) error {
	return s.call(ctx, &call{Slot: s, callee: callee{namespace: namespace}}, f)
}

// Read is as Write, for a call that reads an object of a namespace; object is empty for the namespace itself.
func (s *Slot) Read(ctx context.Context, namespace, object string, f func(context.Context) error) error {
	return s.call(ctx, &call{Slot: s, callee: callee{namespace, "/" + object}, reads: true}, f)
}

// PutOffError is the error of a call that was cut or not begun, because its callee is slow and no slow slot was free.
// The callee has not failed: its backoff stays as it is.
type PutOffError struct {
	RetryAfter time.Duration
}

// Error says that the call was canceled.
func (PutOffError) Error() string { return "canceled: too many requests are slow" }
