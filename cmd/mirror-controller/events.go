package main

import (
	"context"
	"errors"
	"os"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/tools/record/util"

	"github.com/mirror-controller/mirror-controller/mirror"
)

// eventTimeout bounds a request: a webhook may take 30 seconds, and let the event
// pass.
const eventTimeout = 35 * time.Second

// eventSender sends the events of package mirror. It counts an event that
// repeats the last one on that one, as kubectl describe shows it: "x3 over 5m".
type eventSender struct {
	client     typedcorev1.EventInterface // of all namespaces
	correlator *record.EventCorrelator
	host       string
}

// newEventSender returns a sender that keeps each text, and all events of one
// source, at the pace at which package mirror sends them. client-go's defaults
// merge the texts of a reason from the tenth on, and drop events of a source
// from the 26th on.
func newEventSender(client typedcorev1.EventInterface) (*eventSender, error) {
	host, err := os.Hostname()
	correlator := record.NewEventCorrelatorWithOptions(
		record.CorrelatorOptions{MaxIntervalInSeconds: 1, BurstSize: 100, QPS: 10})
	return &eventSender{client, correlator, host}, err
}

// Send implements [mirror.EventSender].
func (s *eventSender) Send(ctx context.Context, e mirror.Event) error {
	correlated, err := s.correlator.EventCorrelate(s.event(e))
	if err != nil {
		return err
	}
	if correlated.Skip {
		return errors.New("more events about this ConfigMap than 10 a second")
	}
	ctx, cancel := context.WithTimeout(ctx, eventTimeout)
	defer cancel()
	sent, err := s.write(ctx, correlated.Event, correlated.Patch)
	switch {
	case err == nil:
		s.correlator.UpdateState(sent)
	case apierrors.IsAlreadyExists(err):
		return nil // the answer to an earlier try was lost
	case apierrors.IsNotFound(err), apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return nil // the namespace is gone or goes: nobody can read the event
	}
	return err
}

// write creates the event, or patches the one that it repeats. That one may be
// gone: the API server keeps events for an hour only, by default.
func (s *eventSender) write(
	ctx context.Context, e *corev1.Event, patch []byte,
) (sent *corev1.Event, err error) {
	if e.Count > 1 {
		sent, err = s.client.PatchWithEventNamespaceWithContext(ctx, e, patch)
		if !apierrors.IsNotFound(err) {
			return sent, err
		}
	}
	e.ResourceVersion = "" // that of the event that is gone: a create refuses it
	return s.client.CreateWithEventNamespaceWithContext(ctx, e)
}

// event returns the event as client-go's recorder would make it.
func (s *eventSender) event(e mirror.Event) *corev1.Event {
	now := metav1.Now()
	return &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:   e.Regarding.Namespace,
			Name:        util.GenerateEventName(e.Regarding.Name, now.UnixNano()),
			Annotations: e.Annotations,
		},
		InvolvedObject: corev1.ObjectReference{
			APIVersion: "v1",
			Kind:       "ConfigMap",
			Namespace:  e.Regarding.Namespace,
			Name:       e.Regarding.Name,
			UID:        e.UID,
		},
		Type:    e.Type,
		Reason:  e.Reason,
		Message: e.Note,
		Count:   1,

		FirstTimestamp: now,
		LastTimestamp:  now,

		Source:              corev1.EventSource{Component: program, Host: s.host},
		ReportingController: program,
		ReportingInstance:   s.host,
	}
}
