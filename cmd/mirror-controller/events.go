package main

import (
	"context"
	"errors"
	"sync"
	"time"

	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes/scheme"
	typedeventsv1 "k8s.io/client-go/kubernetes/typed/events/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
)

const (
	// eventTimeout bounds one attempt to write an event.
	eventTimeout = 10 * time.Second
	// eventFlush is how long a stopping process waits for its last events.
	eventFlush = 3 * time.Second
	// eventTries is how often the API server may fail at an event, in some 30 seconds.
	eventTries = 6
	// eventComplaint is how often the log says, at most, that events cannot be written.
	eventComplaint = time.Minute
)

// eventRecorder writes each event as an object of its own, one after the other.
//
// It does not use the broadcaster's own StartRecordingToSink, which takes events that differ only in their note for
// one and keeps the first note: of the foreign ConfigMaps in two namespaces it would report one. Package mirror
// reports only outcomes that changed, so there are no series to sum up. One after the other, events cannot crowd
// out the writes that they report.
type eventRecorder struct {
	events.EventRecorder
	client      typedeventsv1.EventsV1Interface
	broadcaster events.EventBroadcaster
	cancel      context.CancelFunc
	unwritten   sync.WaitGroup
	complained  time.Time
}

// startEvents returns a recorder that writes with client until it is shut down; the end of ctx does not stop it,
// because there is something to tell even then.
func startEvents(ctx context.Context, client typedeventsv1.EventsV1Interface) (*eventRecorder, error) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	broadcaster := events.NewBroadcaster(nil)
	r := &eventRecorder{
		EventRecorder: broadcaster.NewRecorder(scheme.Scheme, name),
		client:        client,
		broadcaster:   broadcaster,
		cancel:        cancel,
	}
	_, err := broadcaster.StartEventWatcher(func(obj runtime.Object) {
		defer r.unwritten.Done()
		r.write(ctx, obj.(*eventsv1.Event))
	})
	return r, err
}

// Eventf hands an event over to be written. It does not block.
func (r *eventRecorder) Eventf(regarding, related runtime.Object, eventtype, reason, action, note string, args ...any) {
	r.unwritten.Add(1)
	r.EventRecorder.Eventf(regarding, related, eventtype, reason, action, note, args...)
}

// write writes the event, again and again while the API server cannot be reached or has no time, and eventTries times
// if it fails at this event: others wait behind it.
func (r *eventRecorder) write(ctx context.Context, event *eventsv1.Event) {
	backoff := wait.Backoff{Duration: time.Second, Factor: 2, Jitter: 0.2, Steps: 6, Cap: time.Minute}
	for failures := 0; ; {
		err := r.create(ctx, event)
		if err == nil || apierrors.IsAlreadyExists(err) || ctx.Err() != nil {
			return
		}
		if now := time.Now(); now.Sub(r.complained) >= eventComplaint {
			r.complained = now
			klog.FromContext(ctx).Error(err, "Cannot write events", "regarding", klog.KRef(event.Regarding.Namespace, event.Regarding.Name))
		}
		if code := answered(err); code >= 500 {
			failures++
		} else if code > 0 {
			return // the event itself was refused: another attempt is of no use
		}
		if failures == eventTries {
			return
		}
		select {
		case <-ctx.Done():
		case <-time.After(backoff.Step()):
		}
	}
}

func (r *eventRecorder) create(ctx context.Context, event *eventsv1.Event) error {
	ctx, cancel := context.WithTimeout(ctx, eventTimeout)
	defer cancel()
	_, err := r.client.Events(event.Namespace).Create(ctx, event, metav1.CreateOptions{})
	return err
}

// answered returns the HTTP status with which the API server answered the request; 0 if it did not, or only said that
// it has no time.
func answered(err error) int {
	var status apierrors.APIStatus
	if !errors.As(err, &status) || apierrors.IsTooManyRequests(err) || apierrors.IsServiceUnavailable(err) {
		return 0
	}
	return int(status.Status().Code)
}

// shutDown waits a moment until what was recorded has been written, and ends the recorder.
func (r *eventRecorder) shutDown() {
	written := make(chan struct{})
	go func() {
		r.unwritten.Wait()
		close(written)
	}()
	select {
	case <-written:
	case <-time.After(eventFlush):
	}
	r.cancel()
	r.broadcaster.Shutdown()
}
