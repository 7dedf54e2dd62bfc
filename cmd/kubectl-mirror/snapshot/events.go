package snapshot

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// Reports are the newest events about one object, by reason.
type Reports map[string]*corev1.Event

// ReportsOf sorts the events of controllers of an instance by the object that they are about, and all about objects of
// one name under [GoneUID], too.
func ReportsOf(instance string, events []*corev1.Event) map[types.UID]Reports {
	all := map[types.UID]Reports{}
	for _, e := range events {
		if e.ReportingController != reporter || e.Annotations[plan.InstanceAnnotation] != instance {
			continue
		}
		is := e.InvolvedObject
		for _, about := range []types.UID{is.UID, GoneUID(types.NamespacedName{Namespace: is.Namespace, Name: is.Name})} {
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

// GoneUID stands for the UID of a source that is gone.
func GoneUID(k types.NamespacedName) types.UID { return types.UID(k.String()) }

const reporter = "mirror-controller"

// number returns the number of targets in a state by the newest Mirrored; 0 if there is none, or somebody has forged it.
func (r Reports) number(state plan.State) (n int) {
	if e := r[plan.ReasonMirrored]; e != nil {
		n, _ = strconv.Atoi(e.Annotations[plan.EventAnnotation(state)])
	}
	return max(n, 0)
}

// warning returns the newest warning that is not over, as "Reason: text"; empty if there is none. One about copies that
// expire comes first. A warning is over when a newer Mirrored counts none of its targets.
func (r Reports) warning() string {
	var newest *corev1.Event
	for reason, e := range r {
		state, counts := plan.Blocking[reason]
		if reason == plan.ReasonExpiring {
			state, counts = plan.StateExpiring, true
		}
		holds := e.Type == corev1.EventTypeWarning && (r.isNew(reason) || counts && r.number(state) > 0)
		isFirst := newest == nil || reason == plan.ReasonExpiring ||
			newest.Reason != plan.ReasonExpiring && compareAge(e, newest) > 0
		if holds && isFirst {
			newest = e
		}
	}
	if newest == nil {
		return ""
	}
	return newest.Reason + ": " + newest.Message
}

// isNew reports whether there is an event with this reason, and no newer Mirrored.
func (r Reports) isNew(reason string) bool {
	e, mirrored := r[reason], r[plan.ReasonMirrored]
	return e != nil && (mirrored == nil || compareAge(e, mirrored) > 0)
}

// counts reports whether the newest Mirrored has the numbers of a version of the source: no target was pending then,
// and no warning about targets came later.
func (r Reports) counts(version string) bool {
	mirrored := r[plan.ReasonMirrored]
	return mirrored != nil && mirrored.Annotations[plan.EventVersion] == version &&
		!slices.ContainsFunc(slices.Collect(maps.Keys(plan.Blocking)), r.isNew)
}

// Learn adds what the reports show and no object does: targets that are rejected or fought over count as pending without
// them.
func (s *Source) Learn(r Reports) {
	if s.Count(plan.StateExpiring) == 0 {
		delete(r, plan.ReasonExpiring) // that is over
	}
	if s.Status == Frozen { // which tells by itself why, and its copies stay
		return
	}
	s.Warning = r.warning()
	pending, rejected := s.Count(plan.StatePending), r.number(plan.StateRejected)
	if fought := r.number(plan.StateFight); pending > 0 && pending == rejected+fought && r.counts(s.version) {
		s.Counts[plan.StatePending.String()] = 0
		s.Counts[plan.StateRejected.String()], s.Counts[plan.StateFight.String()] = rejected, fought
		s.settle()
	}
}

// Judge returns the state of a source by the reports alone.
func (r Reports) Judge(s *plan.Source, instance string, now time.Time) *Source {
	out, version := newSource(s.Key), s.ConfigMap.ResourceVersion
	if out.Status, out.Note = StatusOf(s); out.Status != InSync {
		return out
	}
	out.Warning = r.warning()
	newest := r[plan.ReasonMirrored]
	switch none := r[plan.ReasonNoTargets]; {
	case len(r) == 0:
		out.Status = NotKnown
		out.Note = fmt.Sprintf("no report of a controller of instance %s; events are kept for an hour", instance)
		return out
	case r.isNew(plan.ReasonNoTargets) && none.Annotations[plan.EventVersion] == version:
		out.Status, newest = NoTargets, none
	case !r.counts(version):
		out.Status, out.Note = Pending, "the controller has not reported on this version, or has warned since"
		return out
	default:
		for _, state := range Counted {
			out.Counts[state.String()] = r.number(state)
		}
		out.settle()
	}
	out.Note = fmt.Sprintf("as the controller reported %s ago", duration.HumanDuration(max(0, now.Sub(newest.LastTimestamp.Time))))
	return out
}

// Left returns the state of a source that is gone by the reports about its name; nil if copies of it do not expire.
func (r Reports) Left(k types.NamespacedName) *Source {
	if r[plan.ReasonExpiring] == nil {
		return nil
	}
	out := newSource(k)
	out.Warning = r.warning()
	return out
}

// compareAge is positive if a is newer than b. Their times are in seconds, so the resourceVersion decides next.
func compareAge(a, b *corev1.Event) int {
	later, _ := resourceversion.CompareResourceVersion(a.ResourceVersion, b.ResourceVersion) // 0 for none
	return cmp.Or(a.LastTimestamp.Compare(b.LastTimestamp.Time), later)
}

// Reports returns what controllers have reported about objects of a namespace, or of all.
func (r *Reader) Reports(ctx context.Context, namespace string) (map[types.UID]Reports, error) {
	var events []*corev1.Event
	o := metav1.ListOptions{FieldSelector: "reportingComponent=" + reporter}
	err := each(ctx, r.Client.CoreV1().Events(namespace).List, o, func(e *corev1.Event) { events = append(events, e) })
	return ReportsOf(r.Rules.Instance(), events), err
}
