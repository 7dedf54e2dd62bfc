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
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// reports are what controllers of one instance have reported about a source.
type reports struct {
	// newest has the newest event of each reason, by reason.
	newest map[string]*corev1.Event
	// decisive is the newest event that names a version of the source: Mirrored,
	// or one by which nothing is mirrored, such as NoTargets. So stands the
	// source. The other events, such as Foreign, are about some targets. Whenever
	// such a warning ends, the controller sends the decisive event again.
	decisive *corev1.Event
}

// readReports returns the reports about the sources that a key names, as for
// [Reader.Sources].
func (r *Reader) readReports(
	ctx context.Context, key types.NamespacedName,
) (map[types.NamespacedName]*reports, error) {
	all := map[types.NamespacedName]*reports{}
	add := func(e *corev1.Event) {
		about := e.InvolvedObject
		source := types.NamespacedName{Namespace: about.Namespace, Name: about.Name}
		isOurs := e.Annotations[plan.InstanceAnnotation] == r.Rules.Instance()
		isOfCopy := e.Reason == plan.ReasonRestored
		if !isOurs || isOfCopy || key.Name != "" && key != source {
			return
		}
		if all[source] == nil {
			all[source] = &reports{newest: map[string]*corev1.Event{}}
		}
		all[source].add(e)
	}
	selector := "reportingComponent=mirror-controller"
	return all, each(ctx, r.Client.CoreV1().Events(key.Namespace).List,
		metav1.ListOptions{FieldSelector: selector}, add)
}

func (r *reports) add(e *corev1.Event) {
	if isNewer(e, r.newest[e.Reason]) {
		r.newest[e.Reason] = e
	}
	if versionOf(e) != "" && isNewer(e, r.decisive) {
		r.decisive = e
	}
}

// isNewer reports whether a was written after b, or there is no b. The times of
// events have whole seconds, so they do not order them.
func isNewer(a, b *corev1.Event) bool {
	if b == nil {
		return true
	}
	order, err := resourceversion.CompareResourceVersion(a.ResourceVersion, b.ResourceVersion)
	return err == nil && order > 0
}

// versionOf returns the version of the source that an event names; empty if it
// names none.
func versionOf(e *corev1.Event) string { return e.Annotations[plan.EventVersion] }

// count returns the number of targets in a state by an event; 0 if the event
// does not have it.
func count(e *corev1.Event, state plan.State) int {
	n, _ := strconv.Atoi(e.Annotations[plan.EventAnnotation(state)])
	return n
}

// isOver reports whether the decisive event has been written after another one,
// and counts none of the targets that the other one is about.
func (r *reports) isOver(e *corev1.Event) bool { return !isNewer(e, r.decisive) && !r.counts(e) }

// counts reports whether the decisive event counts some of the targets that
// another event is about. That one may have been written before or, as it is
// repeated while it holds, after the decisive one.
func (r *reports) counts(e *corev1.Event) bool {
	isCounted := func(s plan.State) bool {
		return s.Event() == e.Reason && count(r.decisive, s) > 0
	}
	return e == r.decisive || r.decisive != nil && slices.ContainsFunc(plan.Counted, isCounted)
}

// isPast reports whether the time of the last deletion is over that an event
// announces. It is for sources that are gone: no report follows on these. Of
// another source the next report ends the event, so that it is shown as long as
// deletions are late.
func isPast(e *corev1.Event) bool {
	until, err := time.Parse(time.RFC3339, e.Annotations[plan.EventUntil])
	return err == nil && until.Before(time.Now())
}

// Sources returns how the sources stand that a key names, by what controllers
// of the instance have reported. A key without a name stands for the sources of
// its namespace, and an empty one for those of the whole cluster: of these,
// sources that the flags do not allow may be those of other controllers, and
// are left out unless there is a report.
//
// A source that is gone is there as long as its copies expire. If the key names
// it, it is there as long as the API server keeps the report of that.
func (r *Reader) Sources(ctx context.Context, key types.NamespacedName) (all []*Source, err error) {
	reported, err := r.readReports(ctx, key)
	if err != nil {
		return nil, err
	}
	add := func(cm *corev1.ConfigMap) {
		if !r.Rules.AsksToBeMirrored(cm) {
			return
		}
		source := plan.KeyOf(cm)
		about := reported[source]
		delete(reported, source)
		if about != nil || key.Namespace != "" || r.Rules.AllowsSource(source.Namespace) {
			all = append(all, r.sourceOf(source, cm.ResourceVersion, about))
		}
	}
	isSource := r.Rules.Label() + "=" + plan.SourceValue
	err = each(ctx, r.Client.CoreV1().ConfigMaps(key.Namespace).List,
		listOptions(isSource, key.Name), add)
	for source, about := range reported { // those that are left are gone
		e := about.newest[plan.ReasonExpiring]
		if e != nil && !about.isOver(e) && (key.Name != "" || !isPast(e)) {
			all = append(all, goneSource(source, e))
		}
	}
	slices.SortFunc(all, func(a, b *Source) int { return compareKeys(a.Key(), b.Key()) })
	return all, err
}

// sourceOf returns how a version of a source stands by the reports about the
// source; nil: there are none.
func (r *Reader) sourceOf(key types.NamespacedName, version string, about *reports) *Source {
	s := newSource(key)
	planned := "kubectl mirror plan " + key.String() + r.Flags
	unreported := "none runs, none looks for sources here, or events are refused in this namespace: " +
		planned + " shows what is to be done"
	if about == nil {
		s.Status = NotKnown
		s.Note = fmt.Sprintf("no controller of instance %s has reported on it in the last hour: %s",
			r.Rules.Instance(), unreported)
		return s
	}
	isSettled := about.decisive != nil && versionOf(about.decisive) == version
	for _, reason := range slices.Sorted(maps.Keys(about.newest)) { // Expiring is the first
		e := about.newest[reason]
		isNews := isNewer(e, about.decisive) && !about.counts(e)
		isSettled = isSettled && !isNews
		isOfOtherVersion := versionOf(e) != "" && (e != about.decisive || versionOf(e) != version)
		isOver := isOfOtherVersion || about.isOver(e)
		if !isOver && reason != plan.ReasonMirrored { // the status has its numbers
			s.add(e)
		}
	}
	if !isSettled {
		s.Status = Pending
		s.Note = "no controller has reported on this version; if that stays so, " + unreported
		return s
	}
	s.Reported = about.decisive.LastTimestamp
	s.take(about.decisive)
	s.Status = cmp.Or(statusOf[about.decisive.Reason], s.statusOfTargets())
	waiting := about.decisive.Annotations[plan.EventWaiting]
	switch {
	case waiting != "":
		s.Note = fmt.Sprintf("another source of this name waits for %s of the targets, and takes them "+
			"over when this one goes: %s names it", waiting, planned)
	case s.Total() != s.Count(plan.StateSynced):
		s.Note = planned + " shows single targets"
	}
	return s
}

// goneSource returns how a source stands that is gone, by an Expiring.
func goneSource(key types.NamespacedName, e *corev1.Event) *Source {
	s := newSource(key)
	s.Status = Gone
	if isPast(e) {
		s.Note = "it is no source any more: its copies in scope were to be deleted by " +
			e.Annotations[plan.EventUntil]
		return s
	}
	s.Note = "it is no source any more: its copies in scope are deleted at the end of the grace"
	s.add(e)
	s.take(e)
	return s
}

// add adds an event that can still hold.
func (s *Source) add(e *corev1.Event) {
	s.Messages = append(s.Messages, Message{e.Reason, e.Message})
	s.Until = cmp.Or(s.Until, e.Annotations[plan.EventFrom])
}

// take takes over the numbers of targets that an event has.
func (s *Source) take(e *corev1.Event) {
	for _, state := range plan.Counted {
		if n := count(e, state); n != 0 {
			s.Counts[state.String()] = n
		}
	}
}
