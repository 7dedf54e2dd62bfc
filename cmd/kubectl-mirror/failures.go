package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mirror-controller/mirror-controller/mirror"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// failuresOf returns what events say about rejected copies, by the UID of the source. An event that all copies are in sync ends it.
func failuresOf(events []eventsv1.Event) map[types.UID]mirror.Rejection {
	newest := map[types.UID]*eventsv1.Event{}
	for i := range events {
		e := &events[i]
		ends := e.Reason == mirror.ReasonMirrored && !strings.Contains(e.Note, "blocked in")
		if e.Reason != mirror.ReasonWriteFailed && !ends {
			continue
		}
		if last := newest[e.Regarding.UID]; last == nil || lastSeen(e).After(lastSeen(last)) {
			newest[e.Regarding.UID] = e
		}
	}
	out := map[types.UID]mirror.Rejection{}
	for uid, e := range newest {
		if r, ok := mirror.ParseRejection(e.Note); ok && e.Reason == mirror.ReasonWriteFailed {
			out[uid] = r
		}
	}
	return out
}

// lastSeen returns when an event happened last.
func lastSeen(e *eventsv1.Event) time.Time {
	if e.Series != nil {
		return e.Series.LastObservedTime.Time
	}
	return e.EventTime.Time
}

// fail marks the targets at which the API server rejects the copy. Targets in sync, and deletions, are not among them.
func (s *snapshot) fail(all map[string][]*decided, failures map[types.UID]mirror.Rejection) {
	for _, decisions := range all {
		for _, d := range decisions {
			if d.Source == nil || d.Op == plan.OpNone {
				continue
			}
			f, failed := failures[d.Source.ConfigMap.UID]
			if failed && (f.More || slices.Contains(f.Namespaces, d.Key.Namespace)) {
				d.failure = "the API server rejects the copy, by the event on the source: " + printable(f.Text)
			}
		}
	}
}

// failures reads the events of the controller. known is false if the user may not.
func (c *cluster) failures(ctx context.Context) (found map[types.UID]mirror.Rejection, known bool, err error) {
	o := metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector("reportingController", "mirror-controller").String(),
		Limit:         largestPage,
	}
	var events []eventsv1.Event
	for {
		page, err := c.client.EventsV1().Events(metav1.NamespaceAll).List(ctx, o)
		switch {
		case apierrors.IsForbidden(err):
			return nil, false, nil
		case err != nil:
			return nil, false, fmt.Errorf("list events: %w", err)
		}
		events = append(events, page.Items...)
		if page.Continue == "" {
			return failuresOf(events), true, nil
		}
		o.Continue = page.Continue
	}
}
