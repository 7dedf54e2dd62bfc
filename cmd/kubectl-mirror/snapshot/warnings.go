package snapshot

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/duration"
)

// Warning is what the controller has last warned of about a source, as it stands in the event.
type Warning struct {
	Reason string    `json:"reason"`
	Note   string    `json:"note"`
	Last   time.Time `json:"last"`
}

// String returns the warning, with its age if it is more than a minute old.
func (w *Warning) String() string {
	age := ""
	if d := time.Since(w.Last); d > time.Minute {
		age = " " + duration.HumanDuration(d) + " ago"
	}
	return "Warning " + w.Reason + age + ": " + w.Note
}

// AddWarnings adds the newest warning to each source that is not in sync, if it is younger than the last change of the source.
// The sources are in the namespace; empty: in any.
func (r *Reader) AddWarnings(ctx context.Context, s *Snapshot, namespace string, sources []*Source) error {
	if !slices.ContainsFunc(sources, func(s *Source) bool { return !s.IsInSync() }) {
		return nil
	}
	newest := map[types.UID]*Warning{}
	err := r.eachEvent(ctx, namespace, fields.Set{"type": corev1.EventTypeWarning}, func(e *corev1.Event) {
		uid := e.InvolvedObject.UID
		if w := newest[uid]; w == nil || Last(e).After(w.Last) {
			newest[uid] = &Warning{e.Reason, e.Message, Last(e)}
		}
	})
	if err != nil {
		return err
	}
	for _, source := range sources {
		found := s.View(source.Name).FindAny(source.Key())
		if found == nil || source.IsInSync() {
			continue
		}
		uid := found.ConfigMap.UID
		if w := newest[uid]; w != nil && w.Last.After(s.names[source.Name].changed[uid]) {
			source.Warning = w
		}
	}
	return nil
}

// Reported returns the newest event of each reason about a ConfigMap, the newest one first.
func (r *Reader) Reported(ctx context.Context, cm *corev1.ConfigMap) (out []*corev1.Event, err error) {
	newest := map[string]*corev1.Event{}
	err = r.eachEvent(ctx, cm.Namespace, fields.Set{"involvedObject.uid": string(cm.UID)}, func(e *corev1.Event) {
		if known := newest[e.Reason]; known == nil || Last(e).After(Last(known)) {
			newest[e.Reason] = e
		}
	})
	return slices.SortedFunc(maps.Values(newest), func(a, b *corev1.Event) int { return Last(b).Compare(Last(a)) }), err
}

// eachEvent calls each for every event of the controller in a namespace, or in all, that has the fields.
func (r *Reader) eachEvent(ctx context.Context, namespace string, with fields.Set, each func(*corev1.Event)) error {
	with["reportingComponent"] = "mirror-controller"
	err := Each(ctx, r.Client.CoreV1().Events(namespace).List, metav1.ListOptions{FieldSelector: with.String()}, each)
	if err != nil {
		return fmt.Errorf("list events: %w", err)
	}
	return nil
}

// Last returns when an event happened last.
func Last(e *corev1.Event) time.Time {
	if e.Series != nil {
		return e.Series.LastObservedTime.Time
	}
	return e.EventTime.Time
}
