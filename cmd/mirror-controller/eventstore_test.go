package main

import (
	"bytes"
	"cmp"
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"
)

// eventStore is an API server for events. before, if set, decides about a request before it has its effect.
type eventStore struct {
	typedcorev1.EventInterface
	before func(ctx context.Context, message string) error

	mu       sync.Mutex
	attempts int
	events   []*corev1.Event
}

// written returns the texts of the events.
func (s *eventStore) written() (texts []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.events {
		texts = append(texts, e.Message)
	}
	return texts
}

func (s *eventStore) tried() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.attempts
}

func (s *eventStore) CreateWithEventNamespaceWithContext(ctx context.Context, event *corev1.Event) (
	*corev1.Event, error) {
	var err error
	if s.before != nil {
		err = s.before(ctx, event.Message)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.attempts++
	if err = cmp.Or(err, ctx.Err()); err == nil {
		s.events = append(s.events, event)
	}
	return event, err
}

// buffer is a bytes.Buffer for several goroutines.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// testEvents runs the test in a bubble with a recorder on the store, and the log of everything in the process. The
// context of the process has ended: events come after the last write.
func testEvents(t *testing.T, store *eventStore, test func(t *testing.T, r *eventRecorder, log *buffer)) {
	t.Helper()
	var log buffer
	klog.SetLogger(textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(&log))))
	defer klog.ClearLogger()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		recorder, err := startEvents(ctx, store)
		noError(t, err)
		defer recorder.cancel()
		test(t, recorder, &log)
	})
}

// say records an event about the source of this name.
func say(r *eventRecorder, name, message string) {
	source := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		Namespace: "shared", Name: name, UID: "1", ResourceVersion: "1",
	}}
	r.AnnotatedEventf(source, map[string]string{"about": message}, corev1.EventTypeWarning, "Foreign", "%s", message)
}

// expect fails the test unless these events are written now, in this order.
func expect(t *testing.T, store *eventStore, want ...string) {
	t.Helper()
	synctest.Wait()
	if got := store.written(); !slices.Equal(got, want) {
		t.Fatalf("written: %q, want %q", got, want)
	}
}
