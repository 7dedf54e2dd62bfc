package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/mirror-controller/mirror-controller/mirror"
)

var resource = corev1.Resource("events")

// eventServer is an API server for events.
type eventServer struct {
	typedcorev1.EventInterface
	events  []*corev1.Event
	refuses []error // the answers to the next requests
	serves  bool    // what it refuses, too: an answer is lost
	hangs   bool    // no answer comes
}

// answer serves a request, refuses it or hangs.
func (s *eventServer) answer(ctx context.Context, serve func() (*corev1.Event, error)) (*corev1.Event, error) {
	switch {
	case s.hangs:
		<-ctx.Done()
		return nil, ctx.Err()
	case len(s.refuses) == 0:
		return serve()
	case s.serves:
		_, _ = serve()
	}
	err := s.refuses[0]
	s.refuses = s.refuses[1:]
	return nil, err
}

func (s *eventServer) find(name string) int {
	return slices.IndexFunc(s.events, func(e *corev1.Event) bool { return e.Name == name })
}

// CreateWithEventNamespaceWithContext implements [typedcorev1.EventExpansion].
func (s *eventServer) CreateWithEventNamespaceWithContext(ctx context.Context, e *corev1.Event) (*corev1.Event, error) {
	return s.answer(ctx, func() (*corev1.Event, error) {
		switch {
		case s.find(e.Name) >= 0:
			return nil, apierrors.NewAlreadyExists(resource, e.Name)
		case len(validation.NameIsDNSSubdomain(e.Name, false)) > 0, e.ResourceVersion != "":
			return nil, apierrors.NewBadRequest("an invalid name, or a resourceVersion of an event that is to be created")
		}
		made := e.DeepCopy()
		made.ResourceVersion = "1"
		s.events = append(s.events, made)
		return made, nil
	})
}

// PatchWithEventNamespaceWithContext implements [typedcorev1.EventExpansion].
func (s *eventServer) PatchWithEventNamespaceWithContext(ctx context.Context, e *corev1.Event, patch []byte) (
	*corev1.Event, error) {
	return s.answer(ctx, func() (*corev1.Event, error) {
		i := s.find(e.Name)
		switch {
		case len(patch) == 0:
			return nil, apierrors.NewBadRequest("an empty patch")
		case i < 0:
			return nil, apierrors.NewNotFound(resource, e.Name)
		}
		patched := &corev1.Event{}
		old, err := json.Marshal(s.events[i])
		if err == nil {
			patch, err = strategicpatch.StrategicMergePatch(old, patch, patched)
		}
		s.events[i] = patched
		return patched, errors.Join(err, json.Unmarshal(patch, patched))
	})
}

// texts are those of the events with their counts, in the order of their creation.
func (s *eventServer) texts() (all []string) {
	for _, e := range s.events {
		all = append(all, fmt.Sprintf("%s x%d", e.Message, e.Count))
	}
	return all
}

// testEvents runs the test in a bubble, with a sender to the server.
func testEvents(t *testing.T, test func(t *testing.T, server *eventServer, send func(text string) error)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		server := &eventServer{}
		sender := senderTo(t, server)
		test(t, server, func(text string) error { return sender.Send(t.Context(), foreign("settings", text)) })
	})
}

func senderTo(t *testing.T, server *eventServer) *eventSender {
	t.Helper()
	sender, err := newEventSender(server)
	noError(t, err)
	return sender
}

// foreign is an event about the source of this name.
func foreign(name, text string) mirror.Event {
	return mirror.Event{Regarding: types.NamespacedName{Namespace: "shared", Name: name}, UID: "1",
		Type: corev1.EventTypeWarning, Reason: "Foreign", Note: text, Annotations: map[string]string{"instance": "default"}}
}

// expectTexts fails the test unless the server has these events, each with its count.
func expectTexts(t *testing.T, server *eventServer, want ...string) {
	t.Helper()
	if got := server.texts(); !slices.Equal(got, want) {
		t.Errorf("got events %q, want %q", got, want)
	}
}

// TestEvent has the whole event, also about a source with the longest name.
func TestEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, now := &eventServer{}, metav1.NewTime(time.Now().Truncate(time.Second))
		sender := senderTo(t, server)
		host, err := os.Hostname()
		noError(t, err)
		for _, source := range []string{"settings", strings.Repeat("a", 253)} {
			noError(t, sender.Send(t.Context(), foreign(source, "text")))
			got := server.events[len(server.events)-1]
			if source == "settings" && !strings.HasPrefix(got.Name, "settings.") {
				t.Errorf("got the name %q, want one that begins with that of the source", got.Name)
			}
			want := &corev1.Event{
				ObjectMeta: metav1.ObjectMeta{Namespace: "shared", Name: got.Name, ResourceVersion: "1",
					Annotations: map[string]string{"instance": "default"}},
				InvolvedObject: corev1.ObjectReference{
					APIVersion: "v1", Kind: "ConfigMap", Namespace: "shared", Name: source, UID: "1"},
				Type: "Warning", Reason: "Foreign", Message: "text", Count: 1,
				FirstTimestamp: got.FirstTimestamp, LastTimestamp: got.FirstTimestamp,
				Source:              corev1.EventSource{Component: "mirror-controller", Host: host},
				ReportingController: "mirror-controller", ReportingInstance: host,
			}
			if !got.FirstTimestamp.Equal(&now) || !reflect.DeepEqual(got, want) {
				t.Errorf("got at %v\n%+v\nwant at %v\n%+v", got.FirstTimestamp, got, now, want)
			}
		}
	})
}

// TestEachTextArrives: a source that changes every 10 seconds has each of its texts in an event of its own, as it is.
func TestEachTextArrives(t *testing.T) {
	testEvents(t, func(t *testing.T, server *eventServer, send func(string) error) {
		var want []string
		for i := range 200 {
			want = append(want, fmt.Sprintf("text %d x1", i))
			noError(t, send(fmt.Sprint("text ", i)))
			time.Sleep(10 * time.Second)
		}
		expectTexts(t, server, want...)
	})
}

// TestRepeatedTextIsCounted on the event that has it, and begins another one when that is gone.
func TestRepeatedTextIsCounted(t *testing.T) {
	testEvents(t, func(t *testing.T, server *eventServer, send func(string) error) {
		for range 3 {
			noError(t, send("text"))
			time.Sleep(10 * time.Second)
		}
		expectTexts(t, server, "text x3")
		server.events = nil
		noError(t, send("text"))
		noError(t, send("text"))
		expectTexts(t, server, "text x5")
	})
}

// TestSendReturnsRefusals, and an event that is sent again then arrives. An answer that no retry can change is none.
func TestSendReturnsRefusals(t *testing.T) {
	kind := corev1.SchemeGroupVersion.WithKind("Event").GroupKind()
	terminating := apierrors.NewForbidden(resource, "", errors.New("being terminated"))
	terminating.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
	for name, test := range map[string]struct {
		refusal error
		returns bool
	}{
		"namespace terminating": {terminating, false},
		"namespace gone":        {apierrors.NewNotFound(corev1.Resource("namespaces"), "shared"), false},
		"permission missing":    {apierrors.NewForbidden(resource, "", errors.New("cannot create")), true},
		"invalid":               {apierrors.NewInvalid(kind, "", nil), true},
		"webhook fails":         {apierrors.NewInternalError(errors.New("webhook")), true},
		"no answer":             {errors.New("connection refused"), true},
	} {
		t.Run(name, func(t *testing.T) {
			testEvents(t, func(t *testing.T, server *eventServer, send func(string) error) {
				server.refuses = []error{test.refusal}
				if err := send("text"); (err != nil) != test.returns {
					t.Errorf("got error %v, want one: %v", err, test.returns)
				}
				noError(t, send("text"))
				if len(server.events) != 1 {
					t.Errorf("got events %q, want one", server.texts())
				}
			})
		})
	}
}

// TestLostAnswer: an event that is sent again because an answer was lost is there once, also if it arrives only after
// the patch of the second try.
func TestLostAnswer(t *testing.T) {
	testEvents(t, func(t *testing.T, server *eventServer, send func(string) error) {
		server.refuses, server.serves = []error{errors.New("connection reset")}, true
		if send("text") == nil {
			t.Error("got no error, want that of the answer")
		}
		noError(t, send("text"))
		expectTexts(t, server, "text x2")
		server.refuses = []error{apierrors.NewNotFound(resource, ""), apierrors.NewAlreadyExists(resource, "")}
		noError(t, send("text"))
		if len(server.refuses) > 0 {
			t.Error("it made no event where there was none to patch")
		}
	})
}

// TestEventsHeldBack: of hundreds at once about one source those that are too many are sent later, and none is dropped.
func TestEventsHeldBack(t *testing.T) {
	testEvents(t, func(t *testing.T, server *eventServer, send func(string) error) {
		held := 0
		for i := range 300 {
			for send(fmt.Sprint("text ", i)) != nil {
				held++
				time.Sleep(time.Second)
			}
		}
		if held == 0 || held > 20 {
			t.Errorf("held back %d times", held)
		}
	})
}

// TestSendEnds when its context does, and after 15 seconds without an answer.
func TestSendEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &eventServer{hangs: true}
		sender := senderTo(t, server)
		for _, limit := range []time.Duration{time.Second, time.Hour} {
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			began := time.Now()
			err := sender.Send(ctx, foreign("settings", "text"))
			cancel()
			if took, want := time.Since(began), min(limit, eventTimeout); err == nil || took != want {
				t.Errorf("got error %v after %v, want one after %v", err, took, want)
			}
		}
	})
}
