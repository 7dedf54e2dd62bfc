package snapshot

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// Warning is what the controller has warned of about a source, as it stands in the event.
type Warning struct {
	Reason string    `json:"reason"`
	Note   string    `json:"note"`
	Last   time.Time `json:"last"`
}

// String returns the warning; empty if there is none.
func (w *Warning) String() string {
	if w == nil {
		return ""
	}
	return "Warning " + w.Reason + ": " + w.Note
}

// Reports are the newest events about one object, by reason.
type Reports map[string]*corev1.Event

// ReportsOf sorts events by the object that they are about, and all about objects of one name under goneUID, too. Only
// events of controllers count, and Mirrored only of the instance.
func ReportsOf(instance string, events []*corev1.Event) map[types.UID]Reports {
	all := map[types.UID]Reports{}
	for _, e := range events {
		isOurs := e.Reason != plan.ReasonMirrored || e.Annotations[plan.InstanceAnnotation] == instance
		if e.ReportingController != reporter || !isOurs {
			continue
		}
		is := e.InvolvedObject
		for _, about := range []types.UID{is.UID, goneUID(types.NamespacedName{Namespace: is.Namespace, Name: is.Name})} {
			if all[about] == nil {
				all[about] = Reports{}
			}
			if known := all[about][e.Reason]; known == nil || compareAge(e, known) > 0 {
				all[about][e.Reason] = e
			}
		}
	}
	return all
}

// goneUID stands for the UID of a source that is gone.
func goneUID(k types.NamespacedName) types.UID { return types.UID(k.String()) }

const reporter = "mirror-controller"

// number returns the number of targets in a state that Mirrored counts; 0 if there is none, or somebody has forged it.
func (r Reports) number(state plan.State) (n int) {
	if e := r[plan.ReasonMirrored]; e != nil {
		n, _ = strconv.Atoi(e.Annotations[plan.EventAnnotation(state)])
	}
	return n
}

// blocked returns the number of targets at which something is in the way.
func (r Reports) blocked() (n int) {
	for _, state := range plan.Blocking {
		n += r.number(state)
	}
	return n
}

// Warning returns the newest warning that is not over; nil if there is none. One about copies that expire comes first.
// After the last one comes a Mirrored in which nothing is blocked, and nothing expires.
func (r Reports) Warning() *Warning {
	var newest *corev1.Event
	for reason, e := range r {
		_, blocks := plan.Blocking[reason]
		holds := e.Type == corev1.EventTypeWarning && (r.isNew(reason) || blocks && r.blocked() > 0)
		if holds && reason != plan.ReasonExpiring && (newest == nil || compareAge(e, newest) > 0) {
			newest = e
		}
	}
	if r.expires() {
		newest = r[plan.ReasonExpiring]
	}
	if newest == nil {
		return nil
	}
	return &Warning{newest.Reason, newest.Message, newest.LastTimestamp.Time}
}

// expires reports whether copies expire.
func (r Reports) expires() bool {
	return r.isNew(plan.ReasonExpiring) || r[plan.ReasonExpiring] != nil && r.number(plan.StateExpiring) > 0
}

// isNew reports whether there is an event with this reason, and no newer report.
func (r Reports) isNew(reason string) bool {
	e, mirrored := r[reason], r[plan.ReasonMirrored]
	return e != nil && (mirrored == nil || compareAge(e, mirrored) > 0)
}

// isOutdated reports whether a warning about targets is newer than the report.
func (r Reports) isOutdated() bool {
	reasons := slices.Collect(maps.Keys(plan.Blocking))
	return slices.ContainsFunc(append(reasons, plan.ReasonNoTargets), r.isNew)
}

// isOfHold reports whether the source has the annotation which held targets by the newest report.
func (r Reports) isOfHold(s *plan.Source) bool {
	by, _ := s.Hold()
	held := r[plan.ReasonHeld]
	return s.HeldBy() != "" && (held == nil || strings.Contains(held.Message, by))
}

// Judge returns the state of a source by the reports.
func (r Reports) Judge(s *plan.Source, instance string, now time.Time) *Source {
	out := Unknown(s, fmt.Sprintf("no report of a controller of instance %s; events are kept for an hour", instance))
	status, note := StatusOf(s)
	if status != Frozen { // which tells by itself why, and its copies stay
		out.Warning = r.Warning()
	}
	if status != InSync {
		out.Status, out.Note = status, note
		return out
	}
	mirrored := r[plan.ReasonMirrored]
	if mirrored == nil {
		if r.isOutdated() {
			out.Status, out.Note = NotYet, "not yet: the controller has warned, and not reported since"
		}
		return out
	}
	synced, held, blocked := r.number(plan.StateSynced), r.number(plan.StateHeld), r.blocked()
	ago := duration.HumanDuration(max(0, now.Sub(mirrored.LastTimestamp.Time))) + " ago"
	switch {
	case mirrored.Annotations[plan.EventVersion] != s.ConfigMap.ResourceVersion:
		out.Status, out.Note = NotYet, "not yet: the newest report, "+ago+", is of another version"
		return out
	case held > 0 && !r.isOfHold(s):
		out.Status, out.Note = NotYet, "not yet: the newest report, "+ago+", is of targets held by another annotation"
		return out
	case blocked == 0 && r.isOutdated():
		out.Status, out.Note = NotYet, "not yet: the newest report, "+ago+", is older than the warning"
		return out
	}
	noun := map[bool]string{true: "namespace", false: "namespaces"}[synced == 1]
	out.Status, out.Note = InSync, fmt.Sprintf("in sync in %d %s, as the controller reported %s", synced, noun, ago)
	out.Counts[plan.StateSynced.Metric()], out.Counts[plan.StateHeld.Metric()] = synced, held
	out.Blocked, out.Reached = blocked, synced
	if held+blocked > 0 {
		out.Status = OutOfSync
		out.Note += fmt.Sprintf("; %d held, %d blocked", held, blocked)
	}
	if r.expires() {
		out.Status = OutOfSync
		out.Note += "; copies expire"
	}
	return out
}

// Unknown returns the state of a source of which nothing is known, and why.
func Unknown(s *plan.Source, why string) *Source {
	out := newSource(s.Key)
	out.Status, out.Note = NotKnown, "not known: "+why
	return out
}

// compareAge is positive if a is newer than b. Their times are in seconds, so the resourceVersion decides next.
func compareAge(a, b *corev1.Event) int {
	later, _ := resourceversion.CompareResourceVersion(a.ResourceVersion, b.ResourceVersion) // 0 for none
	return cmp.Or(a.LastTimestamp.Compare(b.LastTimestamp.Time), later)
}

// Reports returns what controllers have reported about objects of a namespace, or of all; with a UID about this one.
func (r *Reader) Reports(ctx context.Context, namespace string, uid types.UID) (map[types.UID]Reports, error) {
	with := fields.Set{"reportingComponent": reporter}
	if uid != "" {
		with["involvedObject.uid"] = string(uid)
	}
	var events []*corev1.Event
	o := metav1.ListOptions{FieldSelector: with.String()}
	err := each(ctx, r.Client.CoreV1().Events(namespace).List, o,
		func(e *corev1.Event) { events = append(events, e) })
	return ReportsOf(r.Rules.Instance(), events), err
}
