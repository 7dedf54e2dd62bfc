package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"

	"github.com/mirror-controller/mirror-controller/mirror"
)

const (
	// eventFlush bounds the time in which a stopping process writes its last events.
	eventFlush = 3 * time.Second
	// eventLogPeriod is the least time between two log lines that say that events cannot be written.
	eventLogPeriod = time.Minute
	// maxWaitingEvents is how many events wait in client-go's recorder at most: it drops those beyond 1,000 without a line.
	maxWaitingEvents = 900
	// eventPatience is how long the next event waits then before it may be dropped. A stop waits no longer, either.
	eventPatience = time.Second
)

// eventCorrelation keeps each text, and all events of one source, as long as package mirror spaces them. The defaults
// merge the texts of a reason from the tenth on, and drop events of a source from the 26th on.
var eventCorrelation = record.CorrelatorOptions{MaxIntervalInSeconds: 1, BurstSize: 100, QPS: 10}

// eventRecorder is client-go's recorder: one goroutine writes the events one after the other.
type eventRecorder struct {
	record.EventRecorder
	sink   *eventSink
	cancel context.CancelFunc // ends all writes
}

// AnnotatedEventf hands an event over. It waits for a moment while too many wait to be written, and the log says when an
// event may be lost after that.
func (r *eventRecorder) AnnotatedEventf(about runtime.Object, annotations map[string]string, kind, reason, format string, args ...any) {
	select {
	case r.sink.waiting <- struct{}{}:
	case <-time.After(eventPatience):
		r.sink.lost.Do(func() {
			klog.FromContext(r.sink.ctx).Error(nil, "Events are lost, because the API server takes longer for them than they come")
		})
	}
	r.EventRecorder.AnnotatedEventf(about, annotations, kind, reason, format, args...)
}

// startEvents returns a recorder that writes with client until endAfter. The end of ctx does not end it, because the
// last writes have to be reported too.
func startEvents(ctx context.Context, client typedcorev1.EventInterface) (*eventRecorder, error) {
	host, err := os.Hostname()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	sink := &eventSink{
		ctx:     ctx,
		client:  client,
		failed:  rate.Sometimes{Interval: eventLogPeriod},
		lost:    rate.Sometimes{Interval: eventLogPeriod},
		waiting: make(chan struct{}, maxWaitingEvents),
		drained: make(chan struct{}),
	}
	// client-go logs the whole event at each failed attempt: kilobytes, as often as events come. The sink logs instead.
	silent := logr.Discard()
	broadcaster := record.NewBroadcaster(record.WithContext(klog.NewContext(ctx, silent)),
		record.WithCorrelatorOptions(eventCorrelation))
	broadcaster.StartRecordingToSink(sink)
	recorder := broadcaster.NewRecorder(scheme.Scheme, corev1.EventSource{Component: name, Host: host})
	return &eventRecorder{recorder.WithLogger(silent), sink, cancel}, nil
}

// endAfter ends the recorder after work that ended with err. It writes the waiting events for at most eventFlush, or
// none after a lost leadership.
func (r *eventRecorder) endAfter(err error) {
	defer r.cancel()
	if errors.Is(err, mirror.ErrLeadershipLost) {
		return
	}
	r.Event(&lastEvent, corev1.EventTypeNormal, "", "")
	select {
	case <-r.sink.drained:
	case <-time.After(eventFlush):
	}
}

// lastEvent is what the last event is about: nothing. It is not sent; it shows that all events before it are.
var lastEvent corev1.ObjectReference

// eventSink sends events to the API server. Where there is no answer, client-go tries 12 times in 2 minutes. A refusal is
// final; the log has the text of each event anyway. A request has no timeout of its own: the API server ends it, and a
// webhook that takes 10 seconds, its default, may still let the event pass.
type eventSink struct {
	record.EventSink // Update, which the broadcaster never calls

	ctx     context.Context //nolint:containedctx // record.EventSink has none
	client  typedcorev1.EventInterface
	failed  rate.Sometimes // logs
	lost    rate.Sometimes // logs
	waiting chan struct{}  // events that are not written yet
	drained chan struct{}
}

func (s *eventSink) Create(event *corev1.Event) (*corev1.Event, error) {
	if event.InvolvedObject == lastEvent {
		close(s.drained)
		return event, nil
	}
	created, err := s.client.CreateWithEventNamespaceWithContext(s.ctx, event)
	s.finish(event, err)
	return created, err
}

// Patch counts a text that repeats the last one on the same event.
func (s *eventSink) Patch(event *corev1.Event, patch []byte) (*corev1.Event, error) {
	patched, err := s.client.PatchWithEventNamespaceWithContext(s.ctx, event, patch)
	if !apierrors.IsNotFound(err) { // else client-go creates it
		s.finish(event, err)
	}
	return patched, err
}

// finish logs a failure, and lets the next event come. Where there is no answer client-go tries again, and lets one more come
// each time.
func (s *eventSink) finish(event *corev1.Event, err error) {
	s.log(event, err)
	select {
	case <-s.waiting:
	default:
	}
}

// log logs at most one failure a minute. These are no failures: the namespace is going or gone; the event is there
// already, because an answer was lost; the event to patch is there no more, and client-go creates it anew.
func (s *eventSink) log(event *corev1.Event, err error) {
	if err == nil || s.ctx.Err() != nil || apierrors.IsNotFound(err) || apierrors.IsAlreadyExists(err) ||
		apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		return
	}
	s.failed.Do(func() {
		regarding := cache.NewObjectName(event.InvolvedObject.Namespace, event.InvolvedObject.Name)
		clipped := fmt.Errorf("%.1024s", err) //nolint:errorlint // a webhook may answer with a page of its own
		klog.FromContext(s.ctx).Error(clipped, "Cannot write events", "regarding", regarding)
	})
}
