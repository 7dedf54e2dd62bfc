package main

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mirror-controller/mirror-controller/cmd/kubectl-mirror/snapshot"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
	"github.com/mirror-controller/mirror-controller/mirror/plan/plantest"
)

// warned is a warning, so many seconds after the change of the source, as the API server's change of this number.
func warned(reason string, second int, version string) *corev1.Event {
	return &corev1.Event{
		ObjectMeta:          metav1.ObjectMeta{ResourceVersion: version, Annotations: map[string]string{}},
		InvolvedObject:      corev1.ObjectReference{UID: plantest.Source("platform", "settings").UID},
		ReportingController: "mirror-controller", Reason: reason, Type: corev1.EventTypeWarning,
		LastTimestamp: metav1.Unix(int64(1000+second), 0),
	}
}

// reported is the report that the content has arrived.
func reported(s *plan.Source, second int, version string, synced, held, blocked int) *corev1.Event {
	e := warned(plan.ReasonMirrored, second, version)
	e.Type = corev1.EventTypeNormal
	e.Annotations = map[string]string{
		plan.EventVersion: s.ConfigMap.ResourceVersion, plan.InstanceAnnotation: "default",
		plan.EventAnnotation(plan.StateSynced):  strconv.Itoa(synced),
		plan.EventAnnotation(plan.StateHeld):    strconv.Itoa(held),
		plan.EventAnnotation(plan.StateForeign): strconv.Itoa(blocked),
	}
	return e
}

// TestC70Judge compares a source with the reports about it. A report of another version of the source does not count,
// nor one of another object, reporter or instance.
func TestC70Judge(t *testing.T) {
	o := plan.NewOptions()
	o.CopyLabels = []string{"team"}
	rules := plan.NewRules(&o)
	source := func(options ...plantest.Option) *plan.Source {
		return rules.ParseSource(plantest.Source("platform", "settings", options...))
	}
	s, before := source(), source(func(cm *corev1.ConfigMap) { cm.ResourceVersion = "6" })
	staged := source(plantest.Annotation(plan.RolloutAnnotation, "tier=canary"))
	but := func(change func(*corev1.Event)) *corev1.Event {
		e := reported(s, 7, "1", 2, 0, 0)
		change(e)
		return e
	}
	heldBy := func(selector string) *corev1.Event {
		e := reported(s, 6, "1", 0, 0, 0)
		e.Reason, e.Message = plan.ReasonHeld, fmt.Sprintf("annotation %s=%q: ", plan.RolloutAnnotation, selector)
		return e
	}
	frozen := source(plantest.Annotation(plan.PausedAnnotation, "yes"))
	foreign, expiring := warned(plan.ReasonForeign, 5, "7"), warned(plan.ReasonExpiring, 5, "7")
	noTargets := warned(plan.ReasonNoTargets, 6, "8")
	type events = []*corev1.Event
	var out golden
	for _, test := range []struct {
		name   string
		source *plan.Source
		events events
	}{
		{"arrived", s, events{reported(s, 7, "1", 12, 0, 0)}},
		{"right after an edit", s, events{reported(before, 7, "1", 12, 0, 0)}},
		{"an older one fits", s, events{reported(s, 1, "9", 1, 0, 0), reported(before, 2, "8", 1, 0, 0)}},
		{"two of one second", s, events{reported(before, 2, "99", 1, 0, 0), reported(s, 2, "100", 1, 0, 0)}},
		{"of a former object", s, events{but(func(e *corev1.Event) { e.InvolvedObject.UID = "former" })}},
		{"of another reporter", s, events{but(func(e *corev1.Event) { e.ReportingController = "kubelet" })}},
		{"of another instance", s, events{but(func(e *corev1.Event) { e.Annotations[plan.InstanceAnnotation] = "two" })}},
		{"blocked", s, events{foreign, reported(s, 7, "1", 1, 0, 2)}},
		{"corrected, and still blocked", s,
			events{foreign, warned(plan.ReasonInvalidAnnotation, 6, "8"), reported(s, 7, "1", 1, 0, 2)}},
		{"not blocked any more", s, events{foreign, reported(s, 7, "1", 3, 0, 0)}},
		{"a target was blocked meanwhile", s, events{reported(s, 1, "1", 3, 0, 0), foreign}},
		{"an announcement is newer", s, events{reported(s, 1, "1", 3, 0, 0), expiring}},
		{"an announcement still holds", s,
			events{expiring, but(func(e *corev1.Event) { e.Annotations[plan.EventAnnotation(plan.StateExpiring)] = "4" })}},
		{"nothing expires any more", s, events{expiring, reported(s, 7, "1", 3, 0, 0)}},
		{"no target any more", s, events{reported(s, 1, "1", 3, 0, 0), expiring, noTargets}},
		{"no target ever", s, events{noTargets}},
		{"warnings alone", s, events{foreign, warned(plan.ReasonWriteFailed, 6, "8"), warned(plan.ReasonFight, 4, "5")}},
		{"held", staged, events{heldBy("tier=canary"), reported(s, 7, "1", 2, 3, 0)}},
		{"the selector was corrected", staged, events{heldBy("tier=canry"), reported(s, 7, "1", 0, 5, 0)}},
		{"all held", staged, events{reported(s, 7, "1", 0, 5, 0)}},
		{"the hold was removed", s, events{reported(s, 7, "1", 2, 3, 0)}},
		{"frozen", frozen, events{reported(s, 7, "1", 2, 0, 0)}},
		{"frozen, and warned of before", frozen, events{expiring, noTargets, warned(plan.ReasonInvalidAnnotation, 6, "8")}},
		{"forged numbers", s, events{but(func(e *corev1.Event) {
			e.Annotations[plan.EventAnnotation(plan.StateSynced)] = "many"
		})}},
		{"the clock is behind", s, events{reported(s, 99, "1", 2, 0, 0)}},
	} {
		fmt.Fprintf(&out, "=== %s\n", test.name)
		reports := snapshot.ReportsOf("default", test.events)[test.source.ConfigMap.UID]
		got := reports.Judge(test.source, "default", time.Unix(1010, 0))
		text := fmt.Sprintf("phase %d: %s; %s", phaseOf(got, allowed{}), got.Summary(), got.Note)
		if got.Warning != nil {
			text += "; " + got.Warning.Reason
		}
		fmt.Fprintln(&out, text)
	}
	out.compare(t, "judge")
}
