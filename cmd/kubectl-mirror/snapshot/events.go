package snapshot

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/apimachinery/pkg/util/resourceversion"
)

// reporter is the reporting component of the events of a controller.
const reporter = "mirror-controller"

// Warning is what the controller has last warned of about a source, as it stands in the event.
type Warning struct {
	Reason string    `json:"reason"`
	Note   string    `json:"note"`
	Last   time.Time `json:"last"`
}

// WarningOf returns the warning that an event is.
func WarningOf(e *corev1.Event) *Warning { return &Warning{e.Reason, e.Message, e.LastTimestamp.Time} }

// String returns the warning, with its age if it is more than a minute old.
func (w *Warning) String() string {
	age := ""
	if d := time.Since(w.Last); d > time.Minute {
		age = " " + duration.HumanDuration(d) + " ago"
	}
	return "Warning " + w.Reason + age + ": " + w.Note
}

// AddWarnings adds the newest warning to each source that is not in sync, if it is not older than the last change of the
// source. The sources are in the namespace; empty: in any.
func (r *Reader) AddWarnings(ctx context.Context, s *Snapshot, namespace string, sources []*Source) error {
	if !slices.ContainsFunc(sources, func(s *Source) bool { return !s.IsInSync() }) {
		return nil
	}
	newest := map[types.UID]*corev1.Event{}
	err := r.eachEvent(ctx, namespace, fields.Set{"type": corev1.EventTypeWarning}, func(e *corev1.Event) {
		uid := e.InvolvedObject.UID
		if known := newest[uid]; known == nil || CompareAge(e, known) > 0 {
			newest[uid] = e
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
		if e := newest[uid]; e != nil && !e.LastTimestamp.Time.Before(s.names[source.Name].changed[uid]) {
			source.Warning = WarningOf(e)
		}
	}
	return nil
}

// Events returns what controllers have reported about a ConfigMap.
func (r *Reader) Events(ctx context.Context, cm *corev1.ConfigMap) (out []*corev1.Event, err error) {
	err = r.eachEvent(ctx, cm.Namespace, fields.Set{"involvedObject.uid": string(cm.UID)}, func(e *corev1.Event) { out = append(out, e) })
	return out, err
}

// eachEvent calls f for every event of controllers in a namespace, or in all, that has the fields.
func (r *Reader) eachEvent(ctx context.Context, namespace string, with fields.Set, f func(*corev1.Event)) error {
	with["reportingComponent"] = reporter
	err := each(ctx, r.Client.CoreV1().Events(namespace).List, metav1.ListOptions{FieldSelector: with.String()}, f)
	if err != nil {
		return fmt.Errorf("list events: %w", err)
	}
	return nil
}

// Concerns reports whether an event is of a controller, and about this very object.
func Concerns(e *corev1.Event, uid types.UID) bool {
	return e.ReportingController == reporter && e.InvolvedObject.UID == uid
}

// CompareAge is positive if a is newer than b. Their times are in seconds, so the resourceVersion decides next.
func CompareAge(a, b *corev1.Event) int {
	later, _ := resourceversion.CompareResourceVersion(a.ResourceVersion, b.ResourceVersion) // 0 for none
	return cmp.Or(a.LastTimestamp.Compare(b.LastTimestamp.Time), later)
}
