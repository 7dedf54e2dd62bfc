package main

import (
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
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mirror-controller/mirror-controller/mirror"
)

// TestEventSpacing: one write per source and reason in 10 seconds, the newest text in the end. Others do not wait.
func TestEventSpacing(t *testing.T) {
	store := &eventStore{}
	testEvents(t, store, func(t *testing.T, r *eventRecorder, _ *buffer) {
		say(r, "settings", "in a")
		expect(t, store, "in a")
		time.Sleep(time.Second)
		say(r, "settings", "in a and b")
		time.Sleep(time.Second)
		say(r, "settings", "in a, b and c")
		time.Sleep(7 * time.Second)
		expect(t, store, "in a")
		say(r, "other", "of another source")
		sayWhy(r, "settings", "Mirrored", "of another reason")
		expect(t, store, "in a", "of another source", "of another reason")
		time.Sleep(2 * time.Second)
		expect(t, store, "in a", "of another source", "of another reason", "in a, b and c")
		time.Sleep(8 * time.Second)
		say(r, "settings", "nowhere")
		expect(t, store, "in a", "of another source", "of another reason", "in a, b and c")
		time.Sleep(2 * time.Second)
		expect(t, store, "in a", "of another source", "of another reason", "in a, b and c", "nowhere")
	})
}

// TestEventSeries: the text that was written last is counted on the same object; any other is a new object.
func TestEventSeries(t *testing.T) {
	store := &eventStore{}
	testEvents(t, store, func(t *testing.T, r *eventRecorder, _ *buffer) {
		start := time.Now()
		for _, note := range []string{"a", "a", "a", "b", "a"} {
			say(r, "settings", note)
			time.Sleep(time.Minute)
		}
		expect(t, store, "a (3)", "b", "a")
		if last := store.events[0].Series.LastObservedTime; !last.Equal(&metav1.MicroTime{Time: start.Add(2 * time.Minute)}) {
			t.Errorf("the series ended at %v, want 2 minutes after %v", last, start)
		}
		store.delete()
		say(r, "settings", "a")
		expect(t, store, "a")
	})
}

// TestForgottenEvents: the recorder keeps no record for longer than some minutes after the last write.
func TestForgottenEvents(t *testing.T) {
	store := &eventStore{}
	testEvents(t, store, func(t *testing.T, r *eventRecorder, _ *buffer) {
		say(r, "settings", "a")
		time.Sleep(4 * time.Minute)
		say(r, "settings", "a")
		time.Sleep(4 * time.Minute)
		if n := remembered(r); n != 1 {
			t.Errorf("%d records 4 minutes after the last write, want 1", n)
		}
		time.Sleep(2 * time.Minute)
		if n := remembered(r); n != 0 {
			t.Errorf("%d records 6 minutes after the last write, want none", n)
		}
		say(r, "settings", "a")
		expect(t, store, "a (2)", "a")
	})
}

func remembered(r *eventRecorder) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.records)
}

// TestEventsAreWrittenLater: nothing is lost while the API server is away or permission is missing, the newest text of
// each key is written, and neither the API server nor the log is flooded.
func TestEventsAreWrittenLater(t *testing.T) {
	for name, failure := range map[string]error{
		"the API server is away":  errors.New("connection refused"),
		"a permission is missing": apierrors.NewForbidden(eventsv1.Resource("events"), "", errors.New(`cannot create resource "events"`)),
	} {
		t.Run(name, func(t *testing.T) {
			var over atomic.Bool
			store := &eventStore{before: func(context.Context, string) error {
				if over.Load() {
					return nil
				}
				return failure
			}}
			testEvents(t, store, func(t *testing.T, r *eventRecorder, log *buffer) {
				for _, source := range []string{"a", "b", "c"} {
					say(r, source, "old")
				}
				time.Sleep(30 * time.Minute)
				say(r, "b", "new")
				time.Sleep(30 * time.Minute)
				if n := store.tried(); n < 50 || n > 80 {
					t.Errorf("%d attempts in an hour, want about one a minute", n)
				}
				lines := strings.Count(log.String(), fmt.Sprintf("\"Cannot write events\" err=%q", failure))
				if lines < 30 || lines > 60 {
					t.Errorf("%d lines in an hour, want the reason, once a minute at most:\n%s", lines, log)
				}
				over.Store(true)
				time.Sleep(2 * time.Minute)
				synctest.Wait()
				notes := store.written()
				if slices.Sort(notes); !slices.Equal(notes, []string{"new", "old", "old"}) {
					t.Errorf("written: %q, want the newest about each", notes)
				}
			})
		})
	}
}

// TestEventThatIsRefusedForGood drops an event that is invalid, or whose namespace is gone.
func TestEventThatIsRefusedForGood(t *testing.T) {
	terminating := apierrors.NewForbidden(eventsv1.Resource("events"), "", errors.New("being terminated"))
	terminating.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
	for name, refusal := range map[string]error{
		"namespace terminating": terminating,
		"namespace gone":        apierrors.NewNotFound(corev1.Resource("namespaces"), "shared"),
		"bad request":           apierrors.NewBadRequest("denied"),
		"invalid":               apierrors.NewInvalid(eventsv1.SchemeGroupVersion.WithKind("Event").GroupKind(), "", nil),
		"too large":             apierrors.NewRequestEntityTooLargeError("no"),
	} {
		t.Run(name, func(t *testing.T) {
			store := &eventStore{before: func(_ context.Context, note string) error {
				if note == "bad" {
					return refusal
				}
				return nil
			}}
			testEvents(t, store, func(t *testing.T, r *eventRecorder, _ *buffer) {
				say(r, "settings", "bad")
				say(r, "other", "good")
				expect(t, store, "good")
				time.Sleep(time.Minute)
				if n := store.tried(); n != 2 {
					t.Errorf("%d attempts, want 2", n)
				}
				say(r, "settings", "better")
				expect(t, store, "good", "better")
			})
		})
	}
}

// TestFailingEventHoldsUpNoOther: an event at which the API server always hangs delays the others by seconds, or by a pause
// after it failed several times in a row.
func TestFailingEventHoldsUpNoOther(t *testing.T) {
	const delay = 13 * time.Second
	store := &eventStore{before: func(ctx context.Context, note string) error {
		if note != "bad" {
			return nil
		}
		<-ctx.Done()
		return apierrors.NewInternalError(errors.New("failed calling webhook"))
	}}
	testEvents(t, store, func(t *testing.T, r *eventRecorder, _ *buffer) {
		for _, note := range []string{"one", "bad", "two", "three"} {
			say(r, note, note)
		}
		time.Sleep(delay)
		expect(t, store, "one", "two", "three")
		time.Sleep(time.Hour)
		say(r, "four", "four")
		for began := time.Now(); len(store.written()) < 4 && time.Since(began) < 2*time.Minute; {
			time.Sleep(time.Second)
		}
		say(r, "five", "five") // the pauses are short again
		time.Sleep(delay)
		expect(t, store, "one", "two", "three", "four", "five")
	})
}

// TestEventWithLostAnswer: an event that was written although its answer is lost is not written twice.
func TestEventWithLostAnswer(t *testing.T) {
	store := &eventStore{after: func(attempt int) error {
		if attempt%2 == 1 {
			return context.DeadlineExceeded
		}
		return nil
	}}
	testEvents(t, store, func(t *testing.T, r *eventRecorder, _ *buffer) {
		for range 2 {
			say(r, "settings", "a")
			time.Sleep(time.Minute)
		}
		expect(t, store, "a (2)")
	})
}

// TestLastEvents: at the end the events that wait are written at once, unless the leadership is lost.
func TestLastEvents(t *testing.T) {
	for name, test := range map[string]struct {
		err  error
		want []string
	}{
		"stopped":                {nil, []string{"one", "two", "one again"}},
		"the leadership is lost": {fmt.Errorf("lease: %w", mirror.ErrLeadershipLost), []string{"one"}},
	} {
		t.Run(name, func(t *testing.T) {
			store := &eventStore{before: func(context.Context, string) error { time.Sleep(time.Second); return nil }}
			testEvents(t, store, func(t *testing.T, r *eventRecorder, log *buffer) {
				say(r, "settings", "one")
				time.Sleep(2 * time.Second)
				say(r, "settings", "one again") // waits for the 10 seconds to be over
				synctest.Wait()
				say(r, "other", "two")
				synctest.Wait() // is being written
				r.endAfter(test.err)
				if expect(t, store, test.want...); log.String() != "" {
					t.Errorf("logged: %s", log)
				}
			})
		})
	}
}

// TestEndIsNotHeldUp: at the end there is one more attempt for each event, and not more time than 3 seconds.
func TestEndIsNotHeldUp(t *testing.T) {
	for name, test := range map[string]struct {
		hangs, took time.Duration
		least, most int // attempts
	}{
		"refused": {0, 0, 100, 100},
		"hanging": {time.Hour, eventFlush, 0, 1},
	} {
		t.Run(name, func(t *testing.T) {
			store := &eventStore{before: func(ctx context.Context, _ string) error {
				ctx, cancel := context.WithTimeout(ctx, test.hangs)
				defer cancel()
				<-ctx.Done()
				return errors.New("no connection")
			}}
			testEvents(t, store, func(t *testing.T, r *eventRecorder, _ *buffer) {
				for i := range 100 {
					say(r, fmt.Sprint(i), "in vain")
				}
				time.Sleep(time.Hour)
				before, began := store.tried(), time.Now()
				r.endAfter(nil)
				if took, n := time.Since(began), store.tried()-before; took != test.took || n < test.least || n > test.most {
					t.Errorf("the end took %v and %d attempts, want %v and %d", took, n, test.took, test.most)
				}
			})
		})
	}
}
