package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	typedeventsv1 "k8s.io/client-go/kubernetes/typed/events/v1"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"
)

// eventStore is an API server for events. before, if set, decides about a request before it has its effect, and after
// about its answer, by the number of the attempt.
type eventStore struct {
	typedeventsv1.EventsV1Interface
	typedeventsv1.EventInterface
	t      *testing.T
	before func(ctx context.Context, note string) error
	after  func(attempt int) error

	mu       sync.Mutex
	busy     bool
	attempts int
	events   []*eventsv1.Event
}

// written returns the events as they are now: note, and how often if that is more than once.
func (s *eventStore) written() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []string
	for _, e := range s.events {
		if e.Series != nil {
			out = append(out, fmt.Sprintf("%s (%d)", e.Note, e.Series.Count))
		} else {
			out = append(out, e.Note)
		}
	}
	return out
}

func (s *eventStore) tried() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.attempts
}

// delete removes all events, as the API server does when their time is over.
func (s *eventStore) delete() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.events = nil
}

func (s *eventStore) Events(string) typedeventsv1.EventInterface { return s }

func (s *eventStore) Create(ctx context.Context, event *eventsv1.Event, _ metav1.CreateOptions) (*eventsv1.Event, error) {
	return event, s.request(ctx, event.Note, func() error {
		if s.named(event.Name) != nil {
			return apierrors.NewAlreadyExists(eventsv1.Resource("events"), event.Name)
		}
		s.events = append(s.events, event)
		return nil
	})
}

func (s *eventStore) Patch(ctx context.Context, name string, kind types.PatchType, patch []byte, _ metav1.PatchOptions, _ ...string) (*eventsv1.Event, error) {
	return nil, s.request(ctx, "", func() error {
		event := s.named(name)
		if event == nil {
			return apierrors.NewNotFound(eventsv1.Resource("events"), name)
		}
		if kind != types.MergePatchType {
			return apierrors.NewBadRequest("not a merge patch: " + string(kind))
		}
		patched := event.DeepCopy()
		err := json.Unmarshal(patch, patched)
		s.events[slices.Index(s.events, event)] = patched
		return err
	})
}

func (s *eventStore) named(name string) *eventsv1.Event {
	for _, e := range s.events {
		if e.Name == name {
			return e
		}
	}
	return nil
}

// request has its effect between the decisions before and after it. It fails the test if another is under way.
func (s *eventStore) request(ctx context.Context, note string, effect func() error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.busy {
		s.t.Error("two requests at the same time")
	}
	s.busy = true
	defer func() { s.busy = false }()
	s.attempts++
	if s.before != nil {
		s.mu.Unlock()
		err := s.before(ctx, note)
		s.mu.Lock()
		if err != nil {
			return err
		}
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := effect(); err != nil || s.after == nil {
		return err
	}
	return s.after(s.attempts)
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

// testEvents runs the test in a bubble with a recorder on the store, which it ends, and the recorder's log.
func testEvents(t *testing.T, store *eventStore, test func(t *testing.T, r *eventRecorder, log *buffer)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		store.t = t
		var log buffer
		logger := textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(&log)))
		recorder, err := startEvents(klog.NewContext(t.Context(), logger), store)
		if err != nil {
			t.Fatal(err)
		}
		test(t, recorder, &log)
		recorder.endAfter(nil)
	})
}

// say records an event about the source of this name.
func say(r *eventRecorder, name, note string) { sayWhy(r, name, "Foreign", note) }

// sayWhy says something about a source without a UID, as one is that went while no controller ran.
func sayWhy(r *eventRecorder, name, reason, note string) {
	source := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "shared", Name: name, ResourceVersion: "1"}}
	r.AnnotatedEventf(source, nil, corev1.EventTypeWarning, reason, "%s", note)
}

// expect fails the test unless these events are written now, in this order.
func expect(t *testing.T, store *eventStore, want ...string) {
	t.Helper()
	synctest.Wait()
	if got := store.written(); !slices.Equal(got, want) {
		t.Errorf("written: %q, want %q", got, want)
	}
}
