package main

import (
	"context"
	"fmt"
	"regexp"
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

// failure is what the newest event of a source says of copies that the API server rejects. No object shows that.
type failure struct {
	namespaces []string
	more       bool // the event does not name all
	text       string
}

// failedNote is the text of an event WriteFailed. It names one namespace, or the first few.
var failedNote = regexp.MustCompile(`(?s)^Out of sync in (?:namespace ([^:]+)|\d+ namespaces \(([^)]*?)(and \d+ more)?\)): the API server rejects the write; retrying\. (.*)$`)

// failuresOf returns the failures that events tell, by the UID of the source. An event that all copies are in sync ends them.
func failuresOf(events []eventsv1.Event) map[types.UID]failure {
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
	out := map[types.UID]failure{}
	for uid, e := range newest {
		if m := failedNote.FindStringSubmatch(e.Note); m != nil && e.Reason == mirror.ReasonWriteFailed {
			names := strings.FieldsFunc(m[1]+m[2], func(c rune) bool { return c == ',' || c == ' ' })
			out[uid] = failure{namespaces: names, more: m[3] != "", text: m[4]}
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
func (s *snapshot) fail(all map[string][]*decided, failures map[types.UID]failure) {
	for _, decisions := range all {
		for _, d := range decisions {
			if d.Source == nil || d.Op == plan.OpNone {
				continue
			}
			f, failed := failures[d.Source.ConfigMap.UID]
			if failed && (f.more || slices.Contains(f.namespaces, d.Key.Namespace)) {
				d.failure = "the API server rejects the copy, by the event on the source: " + mirror.Printable(f.text)
			}
		}
	}
}

// failures reads the events of the controller. known is false if the user may not.
func (c *cluster) failures(ctx context.Context) (found map[types.UID]failure, known bool, err error) {
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
