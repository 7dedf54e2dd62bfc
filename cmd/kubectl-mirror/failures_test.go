package main

import (
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mirror-controller/mirror-controller/mirror/plan/plantest"
)

const (
	failedInOne  = "Out of sync in namespace team-a: the API server rejects the write. Fix the cause; the controller retries. Error in team-a: exceeded quota: small"
	failedInTwo  = "Out of sync in 2 namespaces (team-a, team-b): the API server rejects the write. Fix the cause; the controller retries. Error in team-a: no (really)"
	failedInMany = "Out of sync in 7 namespaces (a, b, c, d, e and 2 more): the API server rejects the write. Fix the cause; the controller retries. Error in a: no"
)

// event returns an event on platform/settings, at so many seconds, and last seen then.
func event(reason, note string, at, last int64) eventsv1.Event {
	e := eventsv1.Event{
		Reason: reason, Note: note, EventTime: metav1.NewMicroTime(time.Unix(at, 0)),
		Regarding: corev1.ObjectReference{UID: "platform/settings"},
	}
	if last > at {
		e.Series = &eventsv1.EventSeries{LastObservedTime: metav1.NewMicroTime(time.Unix(last, 0))}
	}
	return e
}

func TestFailuresOfEvents(t *testing.T) {
	for name, test := range map[string]struct {
		events []eventsv1.Event
		want   []string
		more   bool
	}{
		"none":           {nil, nil, false},
		"one":            {[]eventsv1.Event{event("WriteFailed", failedInOne, 1, 0)}, []string{"team-a"}, false},
		"two":            {[]eventsv1.Event{event("WriteFailed", failedInTwo, 1, 0)}, []string{"team-a", "team-b"}, false},
		"many":           {[]eventsv1.Event{event("WriteFailed", failedInMany, 1, 0)}, []string{"a", "b", "c", "d", "e"}, true},
		"the newest":     {[]eventsv1.Event{event("WriteFailed", failedInTwo, 2, 0), event("WriteFailed", failedInOne, 1, 0)}, []string{"team-a", "team-b"}, false},
		"a series":       {[]eventsv1.Event{event("WriteFailed", failedInTwo, 2, 0), event("WriteFailed", failedInOne, 1, 3)}, []string{"team-a"}, false},
		"solved":         {[]eventsv1.Event{event("WriteFailed", failedInOne, 1, 2), event("Mirrored", "Synced to 2 namespaces", 3, 0)}, nil, false},
		"solved in part": {[]eventsv1.Event{event("WriteFailed", failedInOne, 1, 2), event("Mirrored", "Synced to 1 namespace, blocked in 1", 3, 0)}, []string{"team-a"}, false},
		"of two lines":   {[]eventsv1.Event{event("WriteFailed", failedInOne+"\nand so on", 1, 0)}, []string{"team-a"}, false},
		"another reason": {[]eventsv1.Event{event("WriteFailed", failedInOne, 1, 0), event("Foreign", "Not copied", 2, 0)}, []string{"team-a"}, false},
	} {
		got := failuresOf(test.events)["platform/settings"]
		if !slices.Equal(got.Namespaces, test.want) || got.More != test.more {
			t.Errorf("%s: got %+v, want %v, more %v", name, got, test.want, test.more)
		}
	}
}

// TestFailedTargets has an event that names two targets, of which one is in sync meanwhile, while a third is pending.
func TestFailedTargets(t *testing.T) {
	s := newScene()
	src := s.add(plantest.Source("platform", "settings"))
	s.copyOf(src, "team-b")
	snap, named := s.snapshot()
	all, err := snap.decideAll(false, false, named)
	if err != nil {
		t.Fatal(err)
	}
	snap.fail(all, failuresOf([]eventsv1.Event{event("WriteFailed", failedInTwo, 1, 0)}))
	r := newReport(snap, all, func(types.NamespacedName) bool { return true })
	expectPrinted(t, "status-failed", &oneReport{Settings: "flags", sourceReport: r.Sources[0]})
}
