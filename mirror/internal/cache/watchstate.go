package cache

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/klog/v2"

	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

const (
	// streamTimeout is how long a stream may take to begin, and to show the end of
	// the list that it begins with. client-go would wait for both for ever.
	streamTimeout = 30 * time.Second
	// plainPeriod is how long a stream without a list has to be open before it
	// counts as established: one that is refused late ends sooner.
	plainPeriod = time.Second
	// maxUseless is how many streams in a row may end before they are established.
	// The next list comes in pages then.
	maxUseless = 2
)

// watchState tells an established watch of a resource from an interrupted one,
// without a request of its own.
//
// A watch is established while a stream is open whose list is whole: the stream
// has shown the end of the list that it began with, or it continues a list, and
// has been open for a plainPeriod or has brought something. Otherwise the watch
// is interrupted. A quiet resource keeps a watch established for hours.
type watchState struct {
	resource string
	lines    rate.Sometimes // about failures
	// useless counts the streams in a row that were not established.
	useless atomic.Int32

	mu sync.Mutex
	// current is the stream that was opened last.
	current *stream
	// last is the last moment at which a stream that has ended was established,
	// or the start.
	last time.Time
}

func newWatchState(resource string) *watchState {
	return &watchState{
		resource: resource,
		lines:    rate.Sometimes{Interval: time.Minute},
		current:  &stream{},
		last:     time.Now(),
	}
}

// interrupted returns for how long the watch has been interrupted; 0: it is
// established.
func (s *watchState) interrupted() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.current.isEstablished() {
		return 0
	}
	return time.Since(s.last)
}

// stream is one stream of events, from the API server to client-go.
type stream struct {
	*watchState
	lists  bool // the stream begins with a list
	events chan watch.Event
	done   <-chan struct{} // closed by Stop, or when the list takes too long
	cancel context.CancelFunc
	// timeout cancels the request, unless the list is whole before.
	timeout *time.Timer
	// wholeFrom is the time from which on the list counts as whole. It may be in the
	// future. Zero: nothing shows yet that the list is whole, or the stream has ended.
	wholeFrom time.Time
}

func (s *stream) ResultChan() <-chan watch.Event { return s.events }
func (s *stream) Stop()                          { s.cancel() }

// isEstablished reports whether the stream makes the watch established. The mutex
// is held.
func (s *stream) isEstablished() bool {
	return !s.wholeFrom.IsZero() && !time.Now().Before(s.wholeFrom)
}

// errUnlisted is the error of a stream that would begin with a list.
var errUnlisted = fmt.Errorf("the watch does not show the end of what it begins with in %v, "+
	"or ended twice before it: listing in pages", streamTimeout)

// watch opens a stream.
func (s *watchState) watch(
	ctx context.Context,
	open func(context.Context, metav1.ListOptions) (watch.Interface, error),
	o metav1.ListOptions,
) (watch.Interface, error) {
	lists := o.SendInitialEvents != nil
	if lists && s.useless.Load() >= maxUseless {
		return nil, s.failed(ctx, "watch", errUnlisted)
	}
	streamCtx, cancel := context.WithCancel(ctx)
	timeout := time.AfterFunc(streamTimeout, func() {
		s.useless.Store(maxUseless)
		cancel()
	})
	upstream, err := open(streamCtx, o)
	if err != nil {
		timeout.Stop()
		cancel()
		return nil, s.failed(ctx, "watch", err)
	}
	opened := &stream{
		watchState: s,
		lists:      lists,
		events:     make(chan watch.Event),
		done:       streamCtx.Done(),
		cancel:     cancel,
		timeout:    timeout,
	}
	s.mu.Lock()
	s.current = opened
	s.mu.Unlock()
	if !lists {
		opened.setWhole(plainPeriod)
	}
	go opened.run(ctx, upstream)
	return opened, nil
}

// setWhole records that the list is whole, if the stream is still open after a time.
func (s *stream) setWhole(after time.Duration) {
	s.timeout.Stop()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wholeFrom = time.Now().Add(after)
}

// run passes the events on, until one of both sides ends the stream.
func (s *stream) run(ctx context.Context, upstream watch.Interface) {
	defer close(s.events)
	defer s.end() // runs before the close, after which client-go opens the next stream
	defer upstream.Stop()
	for {
		select {
		case <-s.done:
			return
		case e, more := <-upstream.ResultChan():
			if !more {
				return
			}
			e = s.judged(ctx, e)
			select {
			case <-s.done:
				return
			case s.events <- e:
			}
		}
	}
}

// judged records what an event shows about the stream, and returns the event. An
// error becomes one without a type, which client-go does not retry on its own: see
// failed. But that the resourceVersion is too old is no failure: client-go lists.
func (s *stream) judged(ctx context.Context, e watch.Event) watch.Event {
	err := apierrors.FromObject(e.Object)
	switch {
	case e.Type != watch.Error:
		if !s.lists || isEnd(e) {
			s.setWhole(0)
		}
	case !apierrors.IsResourceExpired(err):
		e.Object = &metav1.Status{Message: s.failed(ctx, "watch", err).Error()}
	}
	return e
}

// isEnd reports whether an event says that a stream has shown its list.
func isEnd(e watch.Event) bool {
	o, err := meta.Accessor(e.Object)
	return err == nil && e.Type == watch.Bookmark &&
		o.GetAnnotations()[metav1.InitialEventsAnnotationKey] == "true"
}

// end records that the stream has ended.
func (s *stream) end() {
	s.timeout.Stop()
	s.cancel()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.isEstablished() {
		s.last = time.Now()
		s.useless.Store(0)
	} else {
		s.useless.Add(1)
	}
	s.wholeFrom = time.Time{}
}

// failed returns an error of a list or a watch without its type, and logs it, at
// most once a minute. client-go has a loop of its own for an error that it
// recognizes as 429 or as a refused connection. The loop never ends by itself. It
// calls no handler, does not list, and may notice the end of its context a minute
// late.
func (s *watchState) failed(ctx context.Context, verb string, err error) error {
	text := err.Error()
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		text = "no answer in time, or only 429: " + text // client-go waits as 429 asks it to
	}
	untyped := errors.New(plan.Clip(text, 1024)) // a proxy may answer with a page of its own
	if ctx.Err() != nil {                        // the controller stops
		return untyped
	}
	s.lines.Do(func() {
		interrupted := s.interrupted().Round(time.Second)
		klog.FromContext(ctx).Error(untyped, "Cannot list or watch, retrying", "verb", verb,
			"resource", s.resource, "interrupted", interrupted, "remedy", remedy(err))
	})
	return untyped
}

// remedy returns what to do about an error of a list or a watch.
func remedy(err error) string {
	if apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) {
		return "check the credentials, and grant list and watch in all namespaces"
	}
	return "check the log of the API server, where one object that it cannot decode is enough, " +
		"and the proxies and network policies before it"
}
