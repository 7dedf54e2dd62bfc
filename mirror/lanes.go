package mirror

import (
	"context"
	"errors"
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
	// minSlow is the shortest time after which a call counts as slow.
	minSlow = 100 * time.Millisecond
	// slowFactor is how many times the median a slow call takes.
	slowFactor = 8
	// medianStep is the factor by which one call moves the estimate of the median: it follows a jump of latency to the
	// tenfold within 13 calls.
	medianStep = 1.2
	// maxMedian is the highest estimate: targets that hang must not pass for usual ones.
	maxMedian = 250 * time.Millisecond
	// hanging is the time after which a call hangs.
	hanging = slowFactor * maxMedian
	// firstSlow and maxSlow are how long a namespace counts as slow: after a call was cut, doubling with each further one, for
	// nobody knows how long the call would have taken; and after a call hung. Then one call tries a normal place again.
	firstSlow, maxSlow = 5 * time.Second, time.Minute
)

// errNoPlace is the error of a call that was slow, or was to be, while the places for such calls were taken. It is retried
// later. The call is conditional, so it does not matter whether the API server has carried it out.
var errNoPlace = errors.New("canceled: too many requests are slow")

// lanes hold the places for calls. A call starts in a normal place. A call that turns out to be slow moves to one of the
// slow places and frees its normal one, so that targets that hang never hold up the others. A namespace with a slow call
// starts one call at a time, in a slow place, until one of its calls is answered before it hangs.
type lanes struct {
	normal chan struct{}
	slow   chan struct{}
	// needed reports whether other calls wait for a place.
	needed func() bool

	mu     sync.Mutex
	median time.Duration       // an estimate, of calls in normal places that succeeded
	slowed map[string]slowness // slow namespaces
	places map[string]int      // slow places by namespace
}

// slowness says that a namespace counts as slow, until a call is answered before it hangs.
type slowness struct {
	until   time.Time // at the latest
	cuts    int       // in a row
	probing bool      // until is over, and one call tries whether the namespace is still slow
}

func newLanes(places int, needed func() bool) *lanes {
	return &lanes{
		normal: make(chan struct{}, places), slow: make(chan struct{}, slowPlaces), needed: needed,
		median: minSlow / slowFactor, slowed: map[string]slowness{}, places: map[string]int{},
	}
}

// workers is the number of workers that use all places.
func (l *lanes) workers() int { return cap(l.normal) + cap(l.slow) }

// place is the place of a worker while it reconciles one copy. The mutex of lanes guards its fields.
type place struct {
	lanes *lanes
	// moved is the namespace for which the place is a slow one; empty: it is a normal one.
	moved   string
	calling bool
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
	l := p.lanes
	l.mu.Lock()
	defer l.mu.Unlock()
	if p.moved == "" {
		<-l.normal
		return
	}
	<-l.slow
	if l.places[p.moved]--; l.places[p.moved] == 0 {
		delete(l.places, p.moved)
	}
}

// call makes one call for a target namespace. It returns errNoPlace if the call needs a slow place and there is none.
func (p *place) call(ctx context.Context, namespace string, f func(context.Context) error) error {
	after, normal, ok := p.begin(namespace)
	if !ok {
		return errNoPlace
	}
	ctx, cancel := context.WithCancelCause(withoutErrors(ctx))
	defer cancel(nil)
	defer p.watch(namespace, after, cancel)()
	began := time.Now()
	err := f(ctx)
	l := p.lanes
	l.mu.Lock()
	defer l.mu.Unlock()
	p.calling = false
	if err != nil && errors.Is(context.Cause(ctx), errNoPlace) {
		return errNoPlace
	}
	took := time.Since(began)
	switch {
	case took >= hanging:
		l.slowDown(namespace)
	case err == nil || answered(err):
		delete(l.slowed, namespace)
	default:
		l.endProbe(namespace)
	}
	if normal && err == nil {
		l.note(took)
	}
	return err
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

// begin reports whether a call may start, and whether it starts in a normal place. It returns the time after which the call
// is slow.
func (p *place) begin(namespace string) (after time.Duration, normal, ok bool) {
	l := p.lanes
	l.mu.Lock()
	defer l.mu.Unlock()
	s, slowed := l.slowed[namespace]
	slow := slowed && time.Now().Before(s.until)
	switch {
	case slow && p.moved == "" && (l.places[namespace] > 0 || !p.move(namespace)), slowed && s.probing:
		return 0, false, false
	case slowed && !slow:
		s.probing = true
		l.slowed[namespace] = s
	}
	p.calling = true
	return slowFactor * l.median, !slow, true
}

// watch has moveOrCut decide about a call when it is slow, and from then on every minSlow, until stop is called.
func (p *place) watch(namespace string, after time.Duration, cancel context.CancelCauseFunc) (stop func() bool) {
	l := p.lanes
	l.mu.Lock() // the timer may not fire before it is assigned
	defer l.mu.Unlock()
	var timer *time.Timer
	timer = time.AfterFunc(after, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if p.moveOrCut(namespace) {
			cancel(errNoPlace)
		} else if p.calling && p.moved == "" {
			timer.Reset(minSlow)
		}
	})
	return timer.Stop
}

// moveOrCut moves the place of a call that is slow. It reports whether the call is to be cut, because others need its place.
func (p *place) moveOrCut(namespace string) bool {
	l := p.lanes
	if !p.calling || p.move(namespace) || !l.needed() {
		return false
	}
	cuts := l.slowed[namespace].cuts
	l.slowed[namespace] = slowness{until: time.Now().Add(min(firstSlow<<min(cuts, 8), maxSlow)), cuts: cuts + 1}
	return true
}

// move takes a slow place and gives the normal one back, and has the namespace count as slow. It reports whether there was one.
// A namespace with a slow call gets another place only while most places are free: an API server that is slow for everybody
// looks the same at first.
func (p *place) move(namespace string) bool {
	l := p.lanes
	if p.moved != "" {
		return true
	}
	if l.places[namespace] > 0 && len(l.slow) >= cap(l.slow)/2 {
		return false
	}
	select {
	case l.slow <- struct{}{}:
	default:
		return false
	}
	l.slowDown(namespace)
	l.places[namespace]++
	p.moved = namespace
	<-l.normal
	return true
}

// slowDown has a namespace count as slow for the longest time.
func (l *lanes) slowDown(namespace string) {
	l.slowed[namespace] = slowness{until: time.Now().Add(maxSlow), cuts: l.slowed[namespace].cuts}
}

func (l *lanes) endProbe(namespace string) {
	if s, slowed := l.slowed[namespace]; slowed {
		s.probing = false
		l.slowed[namespace] = s
	}
}

// note moves the estimate of the median.
func (l *lanes) note(took time.Duration) {
	factor := medianStep
	if took < l.median {
		factor = 1 / medianStep
	}
	l.median = max(minSlow/slowFactor, min(time.Duration(float64(l.median)*factor), maxMedian))
}

// forget forgets a namespace that is gone.
func (l *lanes) forget(namespace string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.slowed, namespace)
}
