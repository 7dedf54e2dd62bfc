package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mirror-controller/mirror-controller/mirror"
)

// TestEventNamesItsSourceAndTheProgram: an event is in the namespace of its source, names it, and has the name of the
// program, by which tools select it and the admission policy tells it from others.
func TestEventNamesItsSourceAndTheProgram(t *testing.T) {
	store := &eventStore{}
	testEvents(t, store, func(t *testing.T, r *eventRecorder, _ *buffer) {
		say(r, "settings", "a")
		expect(t, store, "a")
		e := store.events[0]
		host, err := os.Hostname()
		noError(t, err)
		if want := (corev1.EventSource{Component: "mirror-controller", Host: host}); e.Source != want ||
			e.ReportingController != "mirror-controller" || e.ReportingInstance != host {
			t.Errorf("from %+v, %q, %q, want %+v", e.Source, e.ReportingController, e.ReportingInstance, want)
		}
		want := corev1.ObjectReference{
			APIVersion: "v1", Kind: "ConfigMap", Namespace: "shared", Name: "settings", UID: "1", ResourceVersion: "1",
		}
		if e.Namespace != "shared" || e.InvolvedObject != want {
			t.Errorf("in %q, about %+v, want %+v", e.Namespace, e.InvolvedObject, want)
		}
		if e.Type != corev1.EventTypeWarning || e.Reason != "Foreign" || e.Annotations["about"] != "a" {
			t.Errorf("got %s %s with %v", e.Type, e.Reason, e.Annotations)
		}
	})
}

// TestEachTextArrives: a source that changes every 10 seconds has each of its texts in an event of its own, as it is.
func TestEachTextArrives(t *testing.T) {
	store := &eventStore{}
	testEvents(t, store, func(t *testing.T, r *eventRecorder, _ *buffer) {
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
	testEvents(t, store, func(t *testing.T, r *eventRecorder, log *buffer) {
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
		if n := len(store.written()); n < maxWaitingEvents {
			t.Errorf("%d events arrived, want those that wait", n)
		}
	})
}

// expectLines fails the test unless the log has that many lines about events that cannot be written, none longer than
// an error may be, and nothing else.
func expectLines(t *testing.T, log *buffer, want int) {
	t.Helper()
	lines := 0
	for line := range strings.Lines(log.String()) {
		lines++
		if !strings.Contains(line, `"Cannot write events"`) || len(line) > 1500 {
			t.Errorf("a line of %d bytes: %.1500s", len(line), line)
		}
	}
	if lines != want {
		t.Errorf("%d lines, want %d", lines, want)
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
		"webhook hangs":         {apierrors.NewInternalError(errors.New("failed calling webhook")), 10},
	} {
		t.Run(name, func(t *testing.T) {
			store := &eventStore{before: func(_ context.Context, message string) error {
				if message == "bad" {
					return test.refusal
				}
				return nil
			}}
			testEvents(t, store, func(t *testing.T, r *eventRecorder, log *buffer) {
				for i := range 600 {
					say(r, fmt.Sprint("source-", i), "bad")
					time.Sleep(time.Second)
				}
				say(r, "settings", "good")
				expect(t, store, "good")
				expectLines(t, log, test.lines)
				if n := store.tried(); n != 601 {
					t.Errorf("%d attempts, want 601", n)
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
			testEvents(t, store, func(t *testing.T, r *eventRecorder, log *buffer) {
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
