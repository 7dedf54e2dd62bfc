package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes/scheme"
	typedeventsv1 "k8s.io/client-go/kubernetes/typed/events/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record/util"
	"k8s.io/client-go/tools/reference"
	"k8s.io/klog/v2"

	"github.com/mirror-controller/mirror-controller/mirror"
)

// eventComplaint is how often the log says, at most, that events cannot be written.
const eventComplaint = time.Minute

var (
	// eventTimeout bounds one attempt to write an event.
	eventTimeout = 10 * time.Second
	// eventFlush is how long a stopping process waits for its last events.
	eventFlush = 3 * time.Second
)

// eventRecorder writes events one after the other, so that they cannot crowd out the writes that they report. What is
// recorded while others wait, or while events are refused, is not lost, however many there are; of what is said for the
// same reason about the same object the last is written, for it says how things stand.
//
// It does not use client-go's broadcaster, which drops what comes when a thousand events wait, and whose sink takes
// events that differ only in their note for one and keeps the first note: of the foreign ConfigMaps in two namespaces
// it would report one. Package mirror reports only outcomes that changed, so there are no series to sum up.
type eventRecorder struct {
	client     typedeventsv1.EventsV1Interface
	instance   string
	cancel     context.CancelFunc
	ended      chan struct{}
	complained time.Time

	mu      sync.Mutex
	changed *sync.Cond // waiting or closed changed
	waiting []eventKey
	events  map[eventKey]*eventsv1.Event // each of waiting has one
	closed  bool
	closing chan struct{} // closed with it
}

// eventKey is what events are said about, and why.
type eventKey struct {
	regarding      types.UID
	reason, action string
}

// startEvents returns a recorder that writes with client until it is shut down; the end of ctx does not stop it,
// because there is something to tell even then.
func startEvents(ctx context.Context, client typedeventsv1.EventsV1Interface) (*eventRecorder, error) {
	host, err := os.Hostname()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	r := &eventRecorder{
		client:   client,
		instance: name + "-" + host,
		cancel:   cancel,
		ended:    make(chan struct{}),
		events:   map[eventKey]*eventsv1.Event{},
		closing:  make(chan struct{}),
	}
	r.changed = sync.NewCond(&r.mu)
	go func() {
		defer close(r.ended)
		r.work(ctx)
	}()
	return r, nil
}

// Eventf hands an event over to be written. It does not block.
func (r *eventRecorder) Eventf(regarding, _ runtime.Object, eventtype, reason, action, note string, args ...any) {
	object, err := reference.GetReference(scheme.Scheme, regarding)
	if err != nil {
		utilruntime.HandleError(fmt.Errorf("record event %s: %w", reason, err))
		return
	}
	now := metav1.NowMicro()
	event := &eventsv1.Event{
		ObjectMeta:          metav1.ObjectMeta{Namespace: object.Namespace, Name: util.GenerateEventName(object.Name, now.UnixNano())},
		EventTime:           now,
		ReportingController: name,
		ReportingInstance:   r.instance,
		Action:              action,
		Reason:              reason,
		Regarding:           *object,
		Note:                fmt.Sprintf(note, args...),
		Type:                eventtype,
	}
	key := eventKey{object.UID, reason, action}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.events[key] == nil {
		r.waiting = append(r.waiting, key)
	}
	r.events[key] = event
	r.changed.Signal()
}

// work writes what is recorded until ctx ends, or the recorder was shut down and nothing is left. After a failure it waits
// longer and longer, until something succeeds. When the recorder is shut down, it tries once more at once.
func (r *eventRecorder) work(ctx context.Context) {
	fresh := wait.Backoff{Duration: time.Second, Factor: 2, Jitter: 0.2, Steps: 6, Cap: time.Minute}
	backoff, closing := fresh, r.closing
	for {
		key, event := r.next()
		if event == nil || ctx.Err() != nil {
			return
		}
		if r.write(ctx, key, event) {
			backoff = fresh
			continue
		}
		select {
		case <-ctx.Done():
		case <-closing:
			closing = nil
		case <-time.After(backoff.Step()):
		}
	}
}

// next waits for the next event to write; nil if there is none and the recorder was shut down.
func (r *eventRecorder) next() (eventKey, *eventsv1.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for len(r.waiting) == 0 && !r.closed {
		r.changed.Wait()
	}
	if len(r.waiting) == 0 {
		return eventKey{}, nil
	}
	key := r.waiting[0]
	r.waiting = r.waiting[1:]
	event := r.events[key]
	delete(r.events, key)
	return key, event
}

// write reports whether the event needs no more attempt: it is written, or can never be. Otherwise it waits for the next:
// before the others if the API server cannot be reached or has no time, and behind them if it answers, for it may have
// something against this one only, and the others should not wait for that.
func (r *eventRecorder) write(ctx context.Context, key eventKey, event *eventsv1.Event) bool {
	err := r.create(ctx, event)
	if err == nil || apierrors.IsAlreadyExists(err) || ctx.Err() != nil {
		return true
	}
	if now := time.Now(); now.Sub(r.complained) >= eventComplaint {
		r.complained = now
		klog.FromContext(ctx).Error(err, "Cannot write events", "regarding", cache.NewObjectName(event.Regarding.Namespace, event.Regarding.Name))
	}
	if isHopeless(err) {
		return true
	}
	return !r.putBack(key, event, answered(err))
}

// putBack has an event wait again, unless it is to be the last and would hold up the end. If something newer is said for its
// reason by now, that is in its place already.
func (r *eventRecorder) putBack(key eventKey, event *eventsv1.Event, last bool) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.events[key] != nil {
		return true
	}
	switch {
	case last && r.closed:
		return false
	case last:
		r.waiting = append(r.waiting, key)
	default:
		r.waiting = slices.Insert(r.waiting, 0, key)
	}
	r.events[key] = event
	return true
}

func (r *eventRecorder) create(ctx context.Context, event *eventsv1.Event) error {
	ctx, cancel := context.WithTimeout(ctx, eventTimeout)
	defer cancel()
	_, err := r.client.Events(event.Namespace).Create(ctx, event, metav1.CreateOptions{})
	return err
}

// answered reports whether the API server answered the request, and not only that it has no time.
func answered(err error) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status) && !apierrors.IsTooManyRequests(err) && !apierrors.IsServiceUnavailable(err)
}

// isHopeless reports whether the event itself is what was refused, or there is no place for it any more. A right that is
// missing may be granted.
func isHopeless(err error) bool {
	return apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) || apierrors.IsNotFound(err) ||
		apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) || apierrors.IsRequestEntityTooLargeError(err)
}

// endAfter ends the recorder behind work that ended with err. Who has lost the leadership writes nothing more, and goes.
func (r *eventRecorder) endAfter(err error) {
	if errors.Is(err, mirror.ErrLeadershipLost) {
		r.stop()
	} else {
		r.shutDown()
	}
}

// shutDown waits a moment until what was recorded has been written, and ends the recorder.
func (r *eventRecorder) shutDown() {
	r.close()
	select {
	case <-r.ended:
	case <-time.After(eventFlush):
	}
	r.stop()
}

// stop ends the recorder. What has not been written yet is not written any more.
func (r *eventRecorder) stop() {
	r.cancel()
	r.close()
	<-r.ended
}

// close tells the recorder that nothing more will be recorded.
func (r *eventRecorder) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.closed {
		r.closed = true
		close(r.closing)
	}
	r.changed.Signal()
}
