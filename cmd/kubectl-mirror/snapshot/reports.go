package snapshot

import (
	"context"
	"fmt"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// warned are the states of targets that warnings are about, by their reasons.
var warned = func() map[string]plan.State {
	all := map[string]plan.State{}
	for _, s := range plan.Counted {
		if s.IsWarned() {
			all[s.Event()] = s
		}
	}
	return all
}()

// Reports are the newest events about one source, by reason. Mirrored has the
// number of targets in each state; each warning is about some targets.
type Reports map[string]*corev1.Event

// Reports returns what controllers of the instance have reported in a
// namespace, or in all if that is empty, by source.
func (r *Reader) Reports(
	ctx context.Context, namespace string,
) (map[types.NamespacedName]Reports, error) {
	all := map[types.NamespacedName]Reports{}
	add := func(e *corev1.Event) {
		source := types.NamespacedName{
			Namespace: e.InvolvedObject.Namespace,
			Name:      e.InvolvedObject.Name,
		}
		if all[source] == nil {
			all[source] = Reports{}
		}
		newest := all[source][e.Reason]
		isOurs := e.Annotations[plan.InstanceAnnotation] == r.Rules.Instance()
		if isOurs && (newest == nil || isNewer(e, newest)) {
			all[source][e.Reason] = e
		}
	}
	return all, each(ctx, r.Client.CoreV1().Events(namespace).List,
		metav1.ListOptions{FieldSelector: "reportingComponent=mirror-controller"}, add)
}

// isNewer reports whether a was written after b. The times of events have whole
// seconds, so they do not order them.
func isNewer(a, b *corev1.Event) bool {
	order, err := resourceversion.CompareResourceVersion(a.ResourceVersion, b.ResourceVersion)
	return err == nil && order > 0
}

// SourcesByReports returns the statuses of one source, or of those in a
// namespace, by what controllers have reported there. A source that is gone is
// there if the key names it and its copies expire.
func (r *Reader) SourcesByReports(
	ctx context.Context, key types.NamespacedName,
) (all []*Source, err error) {
	reports, err := r.Reports(ctx, key.Namespace)
	if err != nil {
		return nil, err
	}
	add := func(cm *corev1.ConfigMap) {
		if r.Rules.AsksToBeMirrored(cm) {
			parsed := r.Rules.ParseSource(cm)
			all = append(all, reports[parsed.Key].judge(parsed, r.Rules.Instance()))
		}
	}
	err = each(ctx, r.Client.CoreV1().ConfigMaps(key.Namespace).List,
		listOptions(r.Rules.Label()+"="+plan.SourceValue, key.Name), add)
	if len(all) == 0 && reports[key][plan.ReasonExpiring] != nil {
		gone := newSource(key)
		gone.Warning = reports[key].warning()
		all = append(all, gone)
	}
	return all, err
}

// judge returns the status of a source by the reports alone, which are those of
// an instance.
func (r Reports) judge(parsed *plan.Source, instance string) *Source {
	source := newSource(parsed.Key)
	source.Status, source.Note = StatusOf(parsed)
	if source.Status != InSync {
		return source
	}
	source.Warning = r.warning()
	version := parsed.ConfigMap.ResourceVersion
	newest := r[plan.ReasonMirrored]
	noTargets := r[plan.ReasonNoTargets]
	switch {
	case len(r) == 0:
		source.Status = NotKnown
		source.Note = fmt.Sprintf("no report in the last hour: "+
			"no controller of instance %s looks for sources here", instance)
		return source
	case r.sinceMirrored(plan.ReasonNoTargets) &&
		noTargets.Annotations[plan.EventVersion] == version:
		source.Status = NoTargets
		newest = noTargets
	case r.isAbout(version):
		source.take(r)
	default:
		source.Status = Pending
		source.Note = "the controller has not reported on this version, or has warned since"
		return source
	}
	age := duration.HumanDuration(max(0, time.Since(newest.LastTimestamp.Time)))
	source.Note = "as reported " + age + " ago"
	return source
}

// Learn adds what the reports show and no object does: which targets are
// rejected or fought over. Objects show each of these in another state, also in
// sync for a moment.
func (s *Source) Learn(r Reports) {
	if s.Status == Frozen { // the note has the reason, and its copies stay
		return
	}
	s.Warning = r.warning()
	fought := r.count(plan.StateFight)
	if s.Status == InSync && fought == 0 && r.sinceMirrored(plan.ReasonFight) {
		s.Status = Pending // until the next Mirrored counts it
	}
	hasMore := r.count(plan.StateRejected)+fought > 0 && r.isAbout(s.version)
	if !hasMore || s.Total() == 0 || !s.agreesWith(r) {
		return
	}
	s.take(r)
	for i, t := range s.Targets {
		// With a fight, too, a pending target may be the one or the other.
		if t.State == plan.StatePending.String() && fought == 0 {
			s.Targets[i].State = plan.StateRejected.String()
			s.Targets[i].Reason = "see " + plan.ReasonWriteFailed
		}
	}
}

// agreesWith reports whether the objects can still be those that the newest
// Mirrored counts. Then there are as many targets in all. A target that
// Mirrored counts as rejected or fought over shows in another state, such as
// pending, so no other state has fewer targets than Mirrored counts.
func (s *Source) agreesWith(r Reports) bool {
	reported := 0
	for _, state := range plan.Counted {
		reported += r.count(state)
		isHidden := state == plan.StateRejected || state == plan.StateFight
		if !isHidden && r.count(state) > s.Count(state) {
			return false
		}
	}
	return reported == s.Count(plan.Counted...)
}

// take sets the numbers of targets to those that the newest Mirrored counts.
func (s *Source) take(r Reports) {
	clear(s.Counts)
	for _, state := range plan.Counted {
		if n := r.count(state); n != 0 {
			s.Counts[state.String()] = n
		}
	}
	s.setStatus()
}

// count returns the number of targets in a state by the newest Mirrored; 0 if
// there is none.
func (r Reports) count(state plan.State) (n int) {
	mirrored := r[plan.ReasonMirrored]
	if mirrored != nil {
		n, _ = strconv.Atoi(mirrored.Annotations[plan.EventAnnotation(state)])
	}
	return n
}

// sinceMirrored reports whether there is an event with this reason, and no
// newer Mirrored.
func (r Reports) sinceMirrored(reason string) bool {
	e := r[reason]
	mirrored := r[plan.ReasonMirrored]
	return e != nil && (mirrored == nil || isNewer(e, mirrored))
}

// isAbout reports whether the newest Mirrored has the numbers of a version of
// the source: no target was pending then, and no newer warning is about targets
// that it does not count. A warning that still holds is repeated, so it may be
// newer.
func (r Reports) isAbout(version string) bool {
	for reason, state := range warned {
		if r.sinceMirrored(reason) && r.count(state) == 0 {
			return false
		}
	}
	mirrored := r[plan.ReasonMirrored]
	return mirrored != nil && mirrored.Annotations[plan.EventVersion] == version
}

// warning returns the newest warning that is not over, as "Reason: text"; empty
// if there is none. One about copies that expire comes first: data will be
// gone. A warning is over when a newer Mirrored counts none of its targets.
func (r Reports) warning() string {
	var first *corev1.Event
	for reason, e := range r {
		state := warned[reason]
		isOver := !r.sinceMirrored(reason) && r.count(state) == 0
		if e.Type != corev1.EventTypeWarning || isOver {
			continue
		}
		if first == nil || state == plan.StateExpiring ||
			first.Reason != plan.ReasonExpiring && isNewer(e, first) {
			first = e
		}
	}
	if first == nil {
		return ""
	}
	return first.Reason + ": " + first.Message
}
