package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"

	"github.com/mirror-controller/mirror-controller/mirror"
)

// eventStore is an API server for events. before, if set, decides about a request before it has its effect. A test
// reads the rest when all goroutines wait.
type eventStore struct {
	typedcorev1.EventInterface
	before   func(ctx context.Context, message string) error
	attempts int
	events   []*corev1.Event
}

func (s *eventStore) CreateWithEventNamespaceWithContext(ctx context.Context, event *corev1.Event) (
	*corev1.Event, error) {
	s.attempts++
	var err error
	if s.before != nil {
		err = s.before(ctx, event.Message)
	}
	if err = cmp.Or(err, ctx.Err()); err == nil {
		s.events = append(s.events, event)
	}
	return event, err
}

// testEvents runs the test in a bubble with a recorder on the store, and the log of everything in the process. The
// context of the process has ended: events come after the last write.
func testEvents(t *testing.T, store *eventStore, test func(t *testing.T, r *eventRecorder, log ktesting.Buffer)) {
	t.Helper()
	logger := ktesting.NewLogger(ktesting.NopTL{}, ktesting.NewConfig(ktesting.BufferLogs(true)))
	klog.SetLogger(logger)
	defer klog.ClearLogger()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		recorder, err := startEvents(ctx, store)
		noError(t, err)
		defer recorder.cancel()
		test(t, recorder, logger.GetSink().(ktesting.Underlier).GetBuffer())
	})
}

// say records an event about the source of this name.
func say(r *eventRecorder, name, message string) {
	source := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		Namespace: "shared", Name: name, UID: "1", ResourceVersion: "1",
	}}
	r.AnnotatedEventf(source, nil, corev1.EventTypeWarning, "Foreign", "%s", message)
}

// expect fails the test unless events with these texts are written now, in this order.
func expect(t *testing.T, store *eventStore, want ...string) {
	t.Helper()
	synctest.Wait()
	var got []string
	for _, event := range store.events {
		got = append(got, event.Message)
	}
	if !slices.Equal(got, want) {
		t.Fatalf("written: %q, want %q", got, want)
	}
}

// TestEachTextArrives: a source that changes every 10 seconds has each of its texts in an event of its own, as it is.
func TestEachTextArrives(t *testing.T) {
	store := &eventStore{}
	testEvents(t, store, func(t *testing.T, r *eventRecorder, _ ktesting.Buffer) {
		var want []string
		for i := range 200 {
			want = append(want, fmt.Sprint("text ", i))
			say(r, "settings", want[i])
			time.Sleep(10 * time.Second)
		}
		expect(t, store, want...)
	})
}

// TestEventsWaitWhileNobodyAnswers: a caller waits a moment for the API server and no more, the log is not flooded and
// says that events are lost, and the events that wait are written when the API server answers again.
func TestEventsWaitWhileNobodyAnswers(t *testing.T) {
	var answers atomic.Bool
	store := &eventStore{before: func(context.Context, string) error {
		if answers.Load() {
			return nil
		}
		return errors.New("connection refused: " + strings.Repeat("long ", 10000))
	}}
	testEvents(t, store, func(t *testing.T, r *eventRecorder, log ktesting.Buffer) {
		began := time.Now()
		for i := range maxWaitingEvents {
			say(r, fmt.Sprint("source-", i), strings.Repeat("long ", 100))
		}
		if took := time.Since(began); took != 0 {
			t.Errorf("the caller waited %v", took)
		}
		time.Sleep(30 * time.Second)
		for i := range 150 {
			say(r, fmt.Sprint("late-", i), "late")
		}
		if took := time.Since(began); took > 3*time.Minute {
			t.Errorf("the caller waited %v, want a second for each event", took)
		}
		expect(t, store)
		if n := strings.Count(log.String(), "Events are lost"); n < 1 || n > 3 {
			t.Errorf("%d lines that events are lost, want one a minute", n)
		}
		answers.Store(true)
		time.Sleep(20 * time.Second)
		synctest.Wait()
		if n := len(store.events); n < maxWaitingEvents {
			t.Errorf("%d events arrived, want those that wait", n)
		}
	})
}

// expectLines fails the test unless the log has that many lines about events that cannot be written, none with an error
// that is longer than it may be, and nothing else.
func expectLines(t *testing.T, log ktesting.Buffer, want int) {
	t.Helper()
	lines := log.Data()
	if len(lines) != want {
		t.Errorf("%d lines, want %d", len(lines), want)
	}
	for _, line := range lines {
		if line.Message != "Cannot write events" || len(line.Err.Error()) > 1024 {
			t.Errorf("a line %s: %.1500s", line.Message, line.Err)
		}
	}
}

// TestRefusedEventsHoldUpNoOther: a refusal is final and holds up no other event. The log has one line a minute, and
// none about a namespace that is going or gone.
func TestRefusedEventsHoldUpNoOther(t *testing.T) {
	resource := corev1.Resource("events")
	terminating := apierrors.NewForbidden(resource, "", errors.New("being terminated"))
	terminating.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
	for name, test := range map[string]struct {
		refusal error
		lines   int
	}{
		"namespace terminating": {terminating, 0},
		"namespace gone":        {apierrors.NewNotFound(corev1.Resource("namespaces"), "shared"), 0},
		"written, answer lost":  {apierrors.NewAlreadyExists(resource, "settings"), 0},
		"permission missing":    {apierrors.NewForbidden(resource, "", errors.New(`cannot create resource "events"`)), 10},
		"invalid":               {apierrors.NewInvalid(corev1.SchemeGroupVersion.WithKind("Event").GroupKind(), "", nil), 10},
		"webhook hangs":         {apierrors.NewInternalError(errors.New(strings.Repeat("long ", 10000))), 10},
	} {
		t.Run(name, func(t *testing.T) {
			store := &eventStore{before: func(_ context.Context, message string) error {
				if message == "bad" {
					return test.refusal
				}
				return nil
			}}
			testEvents(t, store, func(t *testing.T, r *eventRecorder, log ktesting.Buffer) {
				for i := range 600 {
					say(r, fmt.Sprint("source-", i), "bad")
					time.Sleep(time.Second)
				}
				say(r, "settings", "good")
				expect(t, store, "good")
				expectLines(t, log, test.lines)
				if store.attempts != 601 {
					t.Errorf("%d attempts, want 601", store.attempts)
				}
			})
		})
	}
}

// TestLastEventsAreWritten: at the end the events that wait are written, in at most 3 seconds. None is written after a
// lost leadership, whenever it was handed over, and no line is logged about that.
func TestLastEventsAreWritten(t *testing.T) {
	lost := fmt.Errorf("lease: %w", mirror.ErrLeadershipLost)
	for name, test := range map[string]struct {
		err   error
		hangs time.Duration // each request
		took  time.Duration
		want  []string
	}{
		"stopped":                {nil, time.Second, 2 * time.Second, []string{"one", "two"}},
		"nobody answers":         {nil, time.Hour, eventFlush, nil},
		"the leadership is lost": {lost, time.Second, 0, nil},
	} {
		t.Run(name, func(t *testing.T) {
			store := &eventStore{before: func(ctx context.Context, _ string) error {
				ctx, cancel := context.WithTimeout(ctx, test.hangs)
				defer cancel()
				<-ctx.Done()
				return nil
			}}
			testEvents(t, store, func(t *testing.T, r *eventRecorder, log ktesting.Buffer) {
				say(r, "settings", "one")
				say(r, "settings", "two")
				synctest.Wait() // the first is being written
				began := time.Now()
				if r.endAfter(test.err); time.Since(began) != test.took {
					t.Errorf("the end took %v, want %v", time.Since(began), test.took)
				}
				synctest.Wait()
				say(r, "settings", "late")
				time.Sleep(time.Hour)
				expect(t, store, test.want...)
				expectLines(t, log, 0)
			})
		})
	}
}
