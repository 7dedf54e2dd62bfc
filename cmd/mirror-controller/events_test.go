package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	typedeventsv1 "k8s.io/client-go/kubernetes/typed/events/v1"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"

	"github.com/mirror-controller/mirror-controller/mirror"
)

// eventStore is an API server for events: answer says what becomes of each.
type eventStore struct {
	typedeventsv1.EventsV1Interface
	typedeventsv1.EventInterface
	answer  func(attempt int) error
	refuses string // the note of the only event that answer is for; empty: it is for each

	mu       sync.Mutex
	attempts int
	names    []string
	notes    []string
}

// seen returns what was written up to now, and in how many attempts.
func (s *eventStore) seen() (notes []string, attempts int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.notes), s.attempts
}

func (s *eventStore) Events(string) typedeventsv1.EventInterface { return s }

func (s *eventStore) Create(ctx context.Context, event *eventsv1.Event, _ metav1.CreateOptions) (*eventsv1.Event, error) {
	s.mu.Lock()
	s.attempts++
	attempt := s.attempts
	s.mu.Unlock()
	if s.answer != nil && (s.refuses == "" || s.refuses == event.Note) {
		if err := s.answer(attempt); err != nil {
			return nil, err
		}
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.names = append(s.names, event.Name)
	s.notes = append(s.notes, event.Note)
	return event, nil
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

// record starts a recorder on the store and returns it with its log.
func record(t *testing.T, store *eventStore) (*eventRecorder, *buffer) {
	t.Helper()
	var log buffer
	logger := textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(&log)))
	recorder, err := startEvents(klog.NewContext(t.Context(), logger), store)
	if err != nil {
		t.Fatal(err)
	}
	return recorder, &log
}

func say(recorder *eventRecorder, note string) { sayOf(recorder, "settings", note) }

// sayOf records an event about the source of this name.
func sayOf(recorder *eventRecorder, name, note string) {
	source := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "shared", Name: name, UID: types.UID(name), ResourceVersion: "1"}}
	recorder.Eventf(source, nil, corev1.EventTypeWarning, "Foreign", "Mirror", "%s", note)
}

// Events of one reason on one source tell different things, and each of them is news.
func TestEventsThatDifferInTheirNote(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &eventStore{}
		recorder, _ := record(t, store)
		for _, note := range []string{"in a", "in b", "in c"} {
			say(recorder, note)
			synctest.Wait()
		}
		recorder.shutDown()
		if want := []string{"in a", "in b", "in c"}; !slices.Equal(store.notes, want) {
			t.Errorf("written: %q, want %q", store.notes, want)
		}
	})
}

// Two events of one reason that come from different actions are both written, although nobody has had time for the first.
func TestEventsThatDifferInTheirAction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &eventStore{answer: func(int) error { time.Sleep(100 * time.Millisecond); return nil }}
		recorder, _ := record(t, store)
		say(recorder, "keeps the recorder busy")
		synctest.Wait()
		source := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "shared", Name: "settings", UID: "settings"}}
		for _, action := range []string{"Mirror", "Prune"} {
			recorder.Eventf(source, nil, corev1.EventTypeWarning, "Foreign", action, "by %s", action)
		}
		recorder.shutDown()
		if want := []string{"keeps the recorder busy", "by Mirror", "by Prune"}; !slices.Equal(store.notes, want) {
			t.Errorf("written: %q, want %q", store.notes, want)
		}
	})
}

func TestLastEventsAreWrittenBeforeTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &eventStore{answer: func(int) error { time.Sleep(100 * time.Millisecond); return nil }}
		recorder, _ := record(t, store)
		const n = 10
		for i := range n {
			sayOf(recorder, fmt.Sprint(i), "at the end")
		}
		recorder.shutDown()
		if len(store.notes) != n {
			t.Errorf("%d of %d events were written", len(store.notes), n)
		}
	})
}

func TestUnreachableServerGetsEventsLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		store := &eventStore{answer: func(int) error {
			if time.Since(start) < 10*time.Minute {
				return errors.New("connection refused")
			}
			return nil
		}}
		recorder, log := record(t, store)
		sayOf(recorder, "one", "one")
		sayOf(recorder, "two", "two")
		time.Sleep(12 * time.Minute)
		recorder.shutDown()
		if len(store.notes) != 2 {
			t.Errorf("written: %q, want both events", store.notes)
		}
		if complaints := strings.Count(log.String(), "\n"); complaints < 5 || complaints > 10 {
			t.Errorf("%d lines in 10 minutes, want at most one a minute:\n%s", complaints, log)
		}
		if store.attempts > 30 {
			t.Errorf("%d attempts in 10 minutes, want fewer and fewer", store.attempts)
		}
	})
}

func TestUnreachableServerDoesNotHoldUpTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &eventStore{answer: func(int) error { return errors.New("connection refused") }}
		recorder, _ := record(t, store)
		for range 100 {
			say(recorder, "in vain")
		}
		synctest.Wait()
		start := time.Now()
		recorder.shutDown()
		if took := time.Since(start); took > eventFlush {
			t.Errorf("the end took %v, want at most %v", took, eventFlush)
		}
	})
}

// What is left to tell at the end is told, but not by one that has lost its leadership.
func TestLastEvents(t *testing.T) {
	for _, test := range []struct {
		name string
		err  error
		want []string
	}{
		{"stopped", nil, []string{"one", "two"}},
		{"failed", errors.New("cannot serve"), []string{"one", "two"}},
		{"the leadership is lost", fmt.Errorf("lease: %w", mirror.ErrLeadershipLost), nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := &eventStore{answer: func(int) error { time.Sleep(time.Second); return nil }}
				recorder, _ := record(t, store)
				sayOf(recorder, "one", "one")
				synctest.Wait() // it is being written
				sayOf(recorder, "two", "two")
				recorder.endAfter(test.err)
				if !slices.Equal(store.notes, test.want) || store.attempts != max(1, len(test.want)) {
					t.Errorf("written: %q in %d attempts, want %q", store.notes, store.attempts, test.want)
				}
			})
		})
	}
}

// A right that is missing may be granted, and what is to be told is told then.
func TestRefusedEventIsWrittenLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		granted := time.Now().Add(time.Hour)
		store := &eventStore{answer: func(int) error {
			if time.Now().After(granted) {
				return nil
			}
			return apierrors.NewForbidden(eventsv1.Resource("events"), "", errors.New(`cannot create resource "events"`))
		}}
		recorder, log := record(t, store)
		for _, name := range []string{"a", "b", "c"} {
			sayOf(recorder, name, "old")
		}
		time.Sleep(30 * time.Minute)
		sayOf(recorder, "b", "new")
		time.Sleep(30 * time.Minute)
		if _, attempts := store.seen(); attempts > 80 {
			t.Errorf("%d attempts in an hour, want fewer and fewer", attempts)
		}
		time.Sleep(2 * time.Minute)
		notes, _ := store.seen()
		if slices.Sort(notes); !slices.Equal(notes, []string{"new", "old", "old"}) {
			t.Errorf("written: %q, want the last about each", notes)
		}
		if !strings.Contains(log.String(), "Cannot write events") || !strings.Contains(log.String(), `cannot create resource`) {
			t.Errorf("the log does not say which right is missing: %s", log)
		}
		recorder.shutDown()
	})
}

// What is refused for what it is, or for its namespace, will be refused again.
func TestHopelessEventIsNotTriedAgain(t *testing.T) {
	closing := apierrors.NewForbidden(eventsv1.Resource("events"), "", errors.New("being terminated"))
	closing.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
	for _, refusal := range []error{
		closing, apierrors.NewNotFound(corev1.Resource("namespaces"), "shared"), apierrors.NewBadRequest("denied"),
		apierrors.NewInvalid(eventsv1.SchemeGroupVersion.WithKind("Event").GroupKind(), "", nil), apierrors.NewRequestEntityTooLargeError("no"),
	} {
		synctest.Test(t, func(t *testing.T) {
			store := &eventStore{answer: func(attempt int) error {
				if attempt > 1 {
					return nil
				}
				return refusal
			}}
			recorder, _ := record(t, store)
			say(recorder, "one")
			synctest.Wait()
			say(recorder, "two")
			synctest.Wait()
			notes, attempts := store.seen()
			if want := []string{"two"}; !slices.Equal(notes, want) || attempts != 2 {
				t.Errorf("%v: written: %q in %d attempts, want %q in 2", refusal, notes, attempts, want)
			}
			recorder.shutDown()
		})
	}
}

// What the API server fails at, such as an event that a broken webhook judges, holds up neither the others nor the end.
func TestEventAtWhichTheServerFailsDoesNotHoldUpOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &eventStore{refuses: "bad", answer: func(int) error {
			return apierrors.NewInternalError(errors.New("failed calling webhook"))
		}}
		recorder, _ := record(t, store)
		said := []string{"one", "bad", "two", "three"}
		for _, note := range said {
			sayOf(recorder, note, note)
		}
		// It may have its second turn before they are recorded: then they come 1 and 2 seconds, and a fifth, behind the first.
		time.Sleep(4 * time.Second)
		notes, _ := store.seen()
		if want := []string{"one", "two", "three"}; !slices.Equal(notes, want) {
			t.Errorf("written: %q, want %q", notes, want)
		}
		time.Sleep(time.Hour)
		began := time.Now()
		recorder.shutDown()
		if took := time.Since(began); took > 0 {
			t.Errorf("the end took %v", took)
		}
	})
}

func TestServerWithoutTimeGetsEventsLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &eventStore{answer: func(attempt int) error {
			if attempt > 12 {
				return nil
			}
			return apierrors.NewServiceUnavailable("etcd is away")
		}}
		recorder, _ := record(t, store)
		say(recorder, "one")
		time.Sleep(time.Hour)
		recorder.shutDown()
		if want := []string{"one"}; !slices.Equal(store.notes, want) {
			t.Errorf("written: %q, want %q", store.notes, want)
		}
	})
}

// TestEventsAreNotDropped: client-go's broadcaster keeps a thousand. They are written in the order of recording.
func TestEventsAreNotDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &eventStore{answer: func(int) error { time.Sleep(time.Millisecond); return nil }}
		recorder, _ := record(t, store)
		var want []string
		for i := range 3000 {
			want = append(want, fmt.Sprint(i))
			sayOf(recorder, want[i], want[i])
		}
		time.Sleep(time.Minute)
		recorder.shutDown()
		if !slices.Equal(store.notes, want) {
			t.Errorf("%d events were written, or in another order, want all of 3000", len(store.notes))
		}
	})
}

// While the API server is away, what is said about a source is replaced by what is said later for the same reason.
func TestLastEventOfAReasonIsWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &eventStore{answer: func(attempt int) error {
			time.Sleep(time.Millisecond)
			if attempt > 3 {
				return nil
			}
			return errors.New("connection refused")
		}}
		recorder, _ := record(t, store)
		say(recorder, "in a")
		synctest.Wait() // it is being written, in vain
		say(recorder, "in a and b")
		sayOf(recorder, "other", "in a")
		say(recorder, "in a, b and c")
		time.Sleep(time.Minute)
		recorder.shutDown()
		if want := []string{"in a, b and c", "in a"}; !slices.Equal(store.notes, want) {
			t.Errorf("written: %q, want %q", store.notes, want)
		}
	})
}

// An event has a name of its own, also where that of the source leaves no room for anything behind it.
func TestEventsOnASourceWithALongName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &eventStore{}
		recorder, _ := record(t, store)
		sayOf(recorder, strings.Repeat("a", 253), "one")
		recorder.shutDown()
		if len(store.names) != 1 || len(store.names[0]) > 253 || len(store.notes) != 1 {
			t.Errorf("written: %q by the names %q, want one event with a name of at most 253 characters", store.notes, store.names)
		}
	})
}
