package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
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
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"

	"github.com/mirror-controller/mirror-controller/mirror"
)

const (
	// eventSpacing is the least time between two events with the same key.
	eventSpacing = 10 * time.Second
	// eventMemory is the time after which the recorder forgets what it wrote. The same text then begins a new object.
	eventMemory = 5 * time.Minute
	// eventLogPeriod is the least time between two log lines that say that events cannot be written.
	eventLogPeriod = time.Minute
)

var (
	// eventTimeout bounds one attempt to write an event.
	eventTimeout = 10 * time.Second
	// eventFlush bounds the time in which a stopping process writes its last events.
	eventFlush = 3 * time.Second
	// eventBackoff is the pause after a failure. It is one for all events, or each of thousands would be tried each minute.
	eventBackoff = wait.Backoff{Duration: time.Second, Factor: 2, Jitter: 0.2, Steps: 6, Cap: time.Minute}
)

// eventRecorder writes events one after the other, so that they cannot crowd out the writes that they report. It keeps
// the newest event of each key until the API server accepts it or refuses it for good.
//
// client-go's broadcaster does not fit: it merges events with different notes and keeps the first note, drops events
// while 1,000 wait, and gives up when permission is missing.
type eventRecorder struct {
	client   typedeventsv1.EventsV1Interface
	instance string
	queue    workqueue.TypedDelayingInterface[eventKey]
	hurry    context.CancelFunc // ends all waits between writes
	cancel   context.CancelFunc // ends all writes
	ended    chan struct{}

	mu      sync.Mutex
	records map[eventKey]*eventRecord

	// Only work uses these.
	backoff wait.Backoff
	logged  time.Time
}

// eventKey names the object that events are about and their reason: a newer event replaces an older one. The UID of a source that
// went while no controller ran is not known.
type eventKey struct {
	name   types.NamespacedName
	uid    types.UID
	reason string
}

// eventRecord is the newest event of a key, if it is not written yet, and the last one that was written.
type eventRecord struct {
	pending    *eventsv1.Event
	done       time.Time // of the last write, or refusal for good
	name, note string
	count      int32
}

// startEvents returns a recorder that writes with client until endAfter. The end of ctx does not end it, because the
// last writes have to be reported too.
func startEvents(ctx context.Context, client typedeventsv1.EventsV1Interface) (*eventRecorder, error) {
	host, err := os.Hostname()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	pauses, hurry := context.WithCancel(ctx)
	r := &eventRecorder{
		client:   client,
		instance: name + "-" + host,
		queue:    workqueue.NewTypedDelayingQueue[eventKey](),
		hurry:    hurry,
		cancel:   cancel,
		ended:    make(chan struct{}),
		records:  map[eventKey]*eventRecord{},
		backoff:  eventBackoff,
	}
	go func() {
		defer close(r.ended)
		r.work(ctx, pauses)
	}()
	return r, nil
}

// AnnotatedEventf hands an event over to be written. It does not block.
func (r *eventRecorder) AnnotatedEventf(regarding runtime.Object, annotations map[string]string, eventtype, reason, note string, args ...any) {
	object, err := reference.GetReference(scheme.Scheme, regarding)
	if err != nil {
		utilruntime.HandleError(fmt.Errorf("record event %s: %w", reason, err))
		return
	}
	now := metav1.NowMicro()
	event := &eventsv1.Event{
		ObjectMeta:          metav1.ObjectMeta{Namespace: object.Namespace, Name: util.GenerateEventName(object.Name, now.UnixNano()), Annotations: annotations},
		EventTime:           now,
		ReportingController: name,
		ReportingInstance:   r.instance,
		Action:              reason,
		Reason:              reason,
		Regarding:           *object,
		Note:                fmt.Sprintf(note, args...),
		Type:                eventtype,
	}
	key := eventKey{types.NamespacedName{Namespace: object.Namespace, Name: object.Name}, object.UID, reason}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.records[key] == nil {
		r.records[key] = &eventRecord{}
	}
	r.records[key].pending = event
	r.queue.Add(key)
}

// work writes events until ctx ends, or the queue was shut down and is empty. When pauses ends it waits no more.
func (r *eventRecorder) work(ctx, pauses context.Context) {
	for {
		key, shutdown := r.queue.Get()
		if shutdown || ctx.Err() != nil {
			return
		}
		if record, event := r.due(pauses, key); event != nil {
			r.finish(pauses, key, record, event, r.write(ctx, record, event))
		}
		r.queue.Done(key)
	}
}

// due returns the record of the key and its event, if the event may be written now. If not, the key comes back later,
// or its record is forgotten.
func (r *eventRecorder) due(pauses context.Context, key eventKey) (*eventRecord, *eventsv1.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	record := r.records[key]
	if record == nil {
		return nil, nil
	}
	after := eventSpacing
	if record.pending == nil {
		after = eventMemory
	}
	if left := time.Until(record.done.Add(after)); left > 0 && pauses.Err() == nil {
		r.queue.AddAfter(key, left)
		return nil, nil
	}
	if record.pending == nil {
		delete(r.records, key)
	}
	return record, record.pending
}

// write counts the event on the object of the last one if both have the same text. If not, it creates an object,
// because the API allows no change of a note.
func (r *eventRecorder) write(ctx context.Context, last *eventRecord, event *eventsv1.Event) error {
	ctx, cancel := context.WithTimeout(ctx, eventTimeout)
	defer cancel()
	events := r.client.Events(event.Namespace)
	if last.count > 0 && last.note == event.Note {
		series := &eventsv1.EventSeries{Count: last.count + 1, LastObservedTime: event.EventTime}
		patch, err := json.Marshal(map[string]any{"series": series})
		if err != nil {
			return err
		}
		_, err = events.Patch(ctx, last.name, types.MergePatchType, patch, metav1.PatchOptions{})
		if err == nil {
			last.count++
		}
		if !apierrors.IsNotFound(err) {
			return err
		}
	}
	// The name is the event's own: if it exists, only the answer to an earlier request was lost.
	if _, err := events.Create(ctx, event, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		return err
	}
	last.name, last.note, last.count = event.Name, event.Note, 1
	return nil
}

// finish records the outcome of a write. After a failure the event goes to the end of the queue, and work pauses.
func (r *eventRecorder) finish(pauses context.Context, key eventKey, record *eventRecord, event *eventsv1.Event, err error) {
	if err != nil && !errors.Is(err, context.Canceled) && time.Since(r.logged) >= eventLogPeriod {
		r.logged = time.Now()
		klog.FromContext(pauses).Error(fmt.Errorf("%.1024s", err), "Cannot write events", "regarding", cache.NewObjectName(event.Regarding.Namespace, event.Regarding.Name))
	}
	if err != nil && !isFinal(err) {
		r.queue.Add(key)
		select {
		case <-pauses.Done():
		case <-time.After(r.backoff.Step()):
		}
		return
	}
	r.backoff = eventBackoff
	r.mu.Lock()
	defer r.mu.Unlock()
	record.done = time.Now()
	if record.pending == event {
		record.pending = nil
	}
	r.queue.AddAfter(key, eventMemory)
}

// isFinal reports whether a later attempt would fail too: the event is invalid, or its namespace is terminating or
// gone. A missing permission may be granted later.
func isFinal(err error) bool {
	return apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) || apierrors.IsNotFound(err) ||
		apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) || apierrors.IsRequestEntityTooLargeError(err)
}

// endAfter ends the recorder after work that ended with err. It writes the waiting events for at most eventFlush, or none
// after a lost leadership.
func (r *eventRecorder) endAfter(err error) {
	if !errors.Is(err, mirror.ErrLeadershipLost) {
		r.flush()
		select {
		case <-r.ended:
		case <-time.After(eventFlush):
		}
	}
	r.cancel()
	r.queue.ShutDown()
	<-r.ended
}

// flush brings all pending events to the queue and ends the waits between them: each gets one more attempt. The queue takes no
// more keys when the waits end, or an event that is refused at once would get two.
func (r *eventRecorder) flush() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for key := range r.records {
		r.queue.Add(key)
	}
	r.queue.ShutDown()
	r.hurry()
}
