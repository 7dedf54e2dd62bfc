package snapshot

import (
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

// Reports are the newest events about one source, by reason.
type Reports map[string]*corev1.Event

// Reports returns what controllers of the instance have reported in a namespace, or in all, by source.
func (r *Reader) Reports(ctx context.Context, namespace string) (map[types.NamespacedName]Reports, error) {
	all := map[types.NamespacedName]Reports{}
	o := metav1.ListOptions{FieldSelector: "reportingComponent=mirror-controller"}
	err := each(ctx, r.Client.CoreV1().Events(namespace).List, o, func(e *corev1.Event) {
		about := types.NamespacedName{Namespace: e.InvolvedObject.Namespace, Name: e.InvolvedObject.Name}
		if all[about] == nil {
			all[about] = Reports{}
		}
		known := all[about][e.Reason]
		if e.Annotations[plan.InstanceAnnotation] == r.Rules.Instance() && (known == nil || isNewer(e, known)) {
			all[about][e.Reason] = e
		}
	})
	return all, err
}

// number returns the number of targets in a state by the newest Mirrored; 0 if none has it.
func (r Reports) number(state plan.State) (n int) {
	if e := r[plan.ReasonMirrored]; e != nil {
		n, _ = strconv.Atoi(e.Annotations[plan.EventAnnotation(state)])
	}
	return n
}

// warning returns the newest warning that is not over, as "Reason: text"; empty if there is none. One about copies that
// expire comes first. A warning is over when a newer Mirrored counts none of its targets.
func (r Reports) warning() string {
	var first *corev1.Event
	for reason, e := range r {
		state := plan.Warned[reason]
		if e.Type != corev1.EventTypeWarning || !r.isNew(reason) && r.number(state) == 0 {
			continue
		}
		if first == nil || state == plan.StateExpiring || first.Reason != plan.ReasonExpiring && isNewer(e, first) {
			first = e
		}
	}
	if first == nil {
		return ""
	}
	return first.Reason + ": " + first.Message
}

// isNew reports whether there is an event with this reason, and no newer Mirrored.
func (r Reports) isNew(reason string) bool {
	e, mirrored := r[reason], r[plan.ReasonMirrored]
	return e != nil && (mirrored == nil || isNewer(e, mirrored))
}

// counts reports whether the newest Mirrored has the numbers of a version of the source: no target was pending then,
// and no newer warning is about targets that it does not count. A warning that still holds is repeated.
func (r Reports) counts(version string) bool {
	mirrored := r[plan.ReasonMirrored]
	isNews := func(reason string) bool { return r.isNew(reason) && r.number(plan.Warned[reason]) == 0 }
	return mirrored != nil && mirrored.Annotations[plan.EventVersion] == version &&
		!slices.ContainsFunc(slices.Collect(maps.Keys(plan.Warned)), isNews)
}

// Learn adds what the reports show and no object does: which targets are rejected or fought over. Objects show each of
// these in another state, also in sync for a moment.
func (s *Source) Learn(r Reports) {
	if s.Status == Frozen { // which tells by itself why, and its copies stay
		return
	}
	s.Warning = r.warning()
	if s.Status == InSync && r.isNew(plan.ReasonFight) && r.number(plan.StateFight) == 0 {
		s.Status = Pending // until the next Mirrored counts it
	}
	reported, rejected, fought := 0, r.number(plan.StateRejected), r.number(plan.StateFight)
	for _, state := range plan.Counted {
		reported += r.number(state)
		if state != plan.StateRejected && state != plan.StateFight && r.number(state) > s.Count(state) {
			return // it has changed since
		}
	}
	if rejected+fought == 0 || s.Total() == 0 || reported != s.Count(plan.Counted...) || !r.counts(s.version) {
		return
	}
	s.take(r)
	for i, t := range s.Targets {
		if t.State == plan.StatePending.String() && fought == 0 {
			s.Targets[i] = Target{t.Namespace, plan.StateRejected.String(), "see " + plan.ReasonWriteFailed}
		}
	}
}

// take sets the numbers of targets to those that the newest Mirrored counts.
func (s *Source) take(r Reports) {
	for _, state := range plan.Counted {
		s.Counts[state.String()] = r.number(state)
	}
	maps.DeleteFunc(s.Counts, func(_ string, n int) bool { return n == 0 })
	s.setStatus()
}

// judge returns the state of a source by the reports alone, which are those of an instance.
func (r Reports) judge(s *plan.Source, instance string) *Source {
	out, version := newSource(s.Key), s.ConfigMap.ResourceVersion
	if out.Status, out.Note = StatusOf(s); out.Status != InSync {
		return out
	}
	out.Warning = r.warning()
	newest := r[plan.ReasonMirrored]
	switch none := r[plan.ReasonNoTargets]; {
	case len(r) == 0:
		out.Status = NotKnown
		out.Note = fmt.Sprintf("no report in the last hour: no controller of instance %s looks for sources here", instance)
		return out
	case r.isNew(plan.ReasonNoTargets) && none.Annotations[plan.EventVersion] == version:
		out.Status, newest = NoTargets, none
	case !r.counts(version):
		out.Status, out.Note = Pending, "the controller has not reported on this version, or has warned since"
		return out
	default:
		out.take(r)
	}
	out.Note = "as reported " + duration.HumanDuration(max(0, time.Since(newest.LastTimestamp.Time))) + " ago"
	return out
}

// isNewer reports whether a was written after b.
func isNewer(a, b *corev1.Event) bool {
	order, err := resourceversion.CompareResourceVersion(a.ResourceVersion, b.ResourceVersion)
	return err == nil && order > 0
}

// Reported returns the state of one source, or of those in a namespace, by what controllers have reported there.
func (r *Reader) Reported(ctx context.Context, asked types.NamespacedName) (all []*Source, err error) {
	reports, err := r.Reports(ctx, asked.Namespace)
	if err != nil {
		return nil, err
	}
	o := listOptions(r.Rules.Label()+"="+plan.SourceValue, asked.Name)
	err = each(ctx, r.Client.CoreV1().ConfigMaps(asked.Namespace).List, o, func(cm *corev1.ConfigMap) {
		if r.Rules.AsksToBeMirrored(cm) {
			all = append(all, reports[plan.KeyOf(cm)].judge(r.Rules.ParseSource(cm), r.Rules.Instance()))
		}
	})
	if expiring := reports[asked][plan.ReasonExpiring]; expiring != nil && len(all) == 0 {
		gone := newSource(asked)
		gone.Warning = reports[asked].warning()
		all = append(all, gone)
	}
	return all, err
}
