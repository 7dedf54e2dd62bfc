package main

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mirror-controller/mirror-controller/cmd/kubectl-mirror/snapshot"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
	"github.com/mirror-controller/mirror-controller/mirror/plan/plantest"
)

// eventOf returns an event about the source, so many seconds after its change.
func eventOf(s *plan.Source, second int, version, reason, text string) *corev1.Event {
	return &corev1.Event{
		ObjectMeta:          metav1.ObjectMeta{ResourceVersion: version, Annotations: map[string]string{}},
		InvolvedObject:      corev1.ObjectReference{UID: s.ConfigMap.UID},
		ReportingController: "mirror-controller", Reason: reason, Message: text, Type: corev1.EventTypeWarning,
		LastTimestamp: metav1.Unix(int64(1000+second), 0),
	}
}

// mirroredOf is the report that a content has arrived.
func mirroredOf(s *plan.Source, second int, version string, synced, held, blocked int) *corev1.Event {
	e := eventOf(s, second, version, plan.ReasonMirrored, fmt.Sprintf("Synced to %d; %d are blocked (see Foreign)", synced, blocked))
	e.Type = corev1.EventTypeNormal
	e.Annotations = map[string]string{
		plan.ChecksumAnnotation: s.Checksum, plan.EventPayload: s.Payload(), plan.InstanceAnnotation: "default",
		plan.EventSynced: strconv.Itoa(synced), plan.EventHeld: strconv.Itoa(held), plan.EventBlocked: strconv.Itoa(blocked),
	}
	return e
}

// TestC70Judge compares a source with the reports about it.
func TestC70Judge(t *testing.T) {
	o := plan.NewOptions()
	o.CopyLabels = []string{"team"}
	rules := plan.NewRules(&o)
	s := rules.ParseSource(plantest.Source("platform", "settings"))
	labelled := rules.ParseSource(plantest.Source("platform", "settings", plantest.Label("team", "x")))
	before := rules.ParseSource(plantest.Source("platform", "settings", plantest.Data("key", "before")))
	staged := rules.ParseSource(plantest.Source("platform", "settings", plantest.Annotation(plan.RolloutAnnotation, "tier=canary")))
	frozen := rules.ParseSource(plantest.Source("platform", "settings", plantest.Annotation(plan.PausedAnnotation, "yes")))
	with := func(e *corev1.Event, change func(*corev1.Event)) *corev1.Event { change(e); return e }
	foreign := eventOf(s, 5, "7", plan.ReasonForeign, "Not copied")
	for name, test := range map[string]struct {
		source    *plan.Source
		byPayload bool
		events    []*corev1.Event
		want      string // the beginning of the note
		warning   string // the reason of the newest one
		phase     phase
		code      int
	}{
		"arrived":              {s, false, []*corev1.Event{mirroredOf(s, 7, "1", 12, 0, 0)}, "in sync in 12 namespaces, as the controller reported 3s ago", "", waitDone, 0},
		"no report":            {s, false, nil, "not known: no report of a controller of instance default", "", waitOn, 2},
		"right after an edit":  {s, false, []*corev1.Event{mirroredOf(before, 7, "1", 12, 0, 0)}, "not yet: the newest report, 3s ago, is of other content", "", waitOn, 1},
		"an older one fits":    {s, false, []*corev1.Event{mirroredOf(s, 1, "9", 1, 0, 0), mirroredOf(before, 2, "8", 1, 0, 0)}, "not yet: ", "", waitOn, 1},
		"the newer one fits":   {s, false, []*corev1.Event{mirroredOf(s, 2, "8", 1, 0, 0), mirroredOf(before, 1, "9", 1, 0, 0)}, "in sync in 1 namespace, ", "", waitDone, 0},
		"two of one second":    {s, false, []*corev1.Event{mirroredOf(before, 2, "99", 1, 0, 0), mirroredOf(s, 2, "100", 1, 0, 0)}, "in sync in ", "", waitDone, 0},
		"of a former object":   {s, false, []*corev1.Event{with(mirroredOf(s, 7, "1", 1, 0, 0), func(e *corev1.Event) { e.InvolvedObject.UID = "former" })}, "not known: ", "", waitOn, 2},
		"of another reporter":  {s, false, []*corev1.Event{with(mirroredOf(s, 7, "1", 1, 0, 0), func(e *corev1.Event) { e.ReportingController = "kubelet" })}, "not known: ", "", waitOn, 2},
		"of another instance":  {s, false, []*corev1.Event{with(mirroredOf(s, 7, "1", 1, 0, 0), func(e *corev1.Event) { e.Annotations[plan.InstanceAnnotation] = "two" })}, "not known: no report of a controller of instance default; events are kept for an hour. A controller of another instance has reported: --instance=two", "", waitOn, 2},
		"a label was changed":  {labelled, false, []*corev1.Event{mirroredOf(s, 7, "1", 1, 0, 0)}, "not yet: ", "", waitOn, 1},
		"flags are not known":  {labelled, true, []*corev1.Event{mirroredOf(s, 7, "1", 1, 0, 0)}, "in sync in ", "", waitDone, 0},
		"the payload differs":  {s, true, []*corev1.Event{mirroredOf(before, 7, "1", 1, 0, 0)}, "not yet: ", "", waitOn, 1},
		"blocked":              {s, false, []*corev1.Event{foreign, mirroredOf(s, 7, "1", 1, 0, 2)}, "in sync in 1 namespace, as the controller reported 3s ago; 0 held, 2 blocked", "Foreign", waitBlocked, 1},
		"not blocked any more": {s, false, []*corev1.Event{foreign, mirroredOf(s, 7, "1", 3, 0, 0)}, "in sync in ", "", waitDone, 0},
		"a warning is newer":   {s, false, []*corev1.Event{mirroredOf(before, 1, "1", 3, 0, 0), foreign}, "not yet: ", "Foreign", waitOn, 1},
		"warnings alone":       {s, false, []*corev1.Event{foreign, eventOf(s, 6, "8", plan.ReasonWriteFailed, "no"), eventOf(s, 4, "5", plan.ReasonForeign, "old")}, "not known: ", "WriteFailed", waitOn, 2},
		"held":                 {staged, false, []*corev1.Event{mirroredOf(s, 7, "1", 2, 3, 0)}, "in sync in 2 namespaces, as the controller reported 3s ago; 3 held, 0 blocked", "", waitDone, 1},
		"all held":             {staged, false, []*corev1.Event{mirroredOf(s, 7, "1", 0, 5, 0)}, "in sync in ", "", waitHeld, 1},
		"the hold was removed": {s, false, []*corev1.Event{mirroredOf(s, 7, "1", 2, 3, 0)}, "not yet: by the newest report, 3s ago, targets were held", "", waitOn, 1},
		"frozen":               {frozen, false, []*corev1.Event{mirroredOf(s, 7, "1", 2, 0, 0)}, "its copies stay as they are until its annotation is fixed", "", waitBlocked, 1},
		"forged numbers":       {s, false, []*corev1.Event{with(mirroredOf(s, 7, "1", 2, 0, 0), func(e *corev1.Event) { e.Annotations[plan.EventSynced] = "many" })}, "in sync in 0 namespaces, ", "", waitDone, 0},
		"the clock is behind":  {s, false, []*corev1.Event{mirroredOf(s, 99, "1", 2, 0, 0)}, "in sync in 2 namespaces, as the controller reported 0s ago", "", waitDone, 0},
	} {
		reports := snapshot.ReportsOf("default", test.events)[test.source.ConfigMap.UID]
		r := &report{InSync: true, one: true}
		r.add(reports.Judge(test.source, test.byPayload, "default", time.Unix(1010, 0)), nil)
		got := r.Sources[0]
		warning := ""
		if got.Warning != nil {
			warning = got.Warning.Reason
		}
		code := map[error]int{nil: 0, errNo: 1, errUnknown: 2}[r.end()]
		if !strings.HasPrefix(got.Note, test.want) || warning != test.warning || phaseOf(got.Source, allowed{}) != test.phase || code != test.code {
			t.Errorf("%s: got %q, warning %q, phase %v and exit code %d, want %q, %q, %v and %d",
				name, got.Note, warning, phaseOf(got.Source, allowed{}), code, test.want, test.warning, test.phase, test.code)
		}
	}
}
