package snapshot_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mirror-controller/mirror-controller/cmd/kubectl-mirror/snapshot"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
	"github.com/mirror-controller/mirror-controller/mirror/plan/plantest"
)

const present = "7" // the resourceVersion of the source

// event is an event about the source of the default instance, so many seconds after the epoch.
func event(reason string, second int, options ...func(*corev1.Event)) *corev1.Event {
	e := &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{ResourceVersion: fmt.Sprint(1000 + second),
			Annotations: map[string]string{plan.InstanceAnnotation: "default"}},
		InvolvedObject:      corev1.ObjectReference{Namespace: "platform", Name: "settings"},
		ReportingController: "mirror-controller", Reason: reason, Type: corev1.EventTypeWarning,
		LastTimestamp: metav1.Unix(int64(second), 0),
	}
	for _, option := range options {
		option(e)
	}
	return e
}

// mirrored is a Mirrored of a version. counts are its annotations, such as "synced=2".
func mirrored(second int, version string, counts ...string) *corev1.Event {
	return event(plan.ReasonMirrored, second, func(e *corev1.Event) {
		e.Type, e.Annotations[plan.EventVersion] = corev1.EventTypeNormal, version
		for _, c := range counts {
			state, n, _ := strings.Cut(c, "=")
			e.Annotations["mirror-controller.github.io/"+state] = n
		}
	})
}

// TestC70Judge is the table of the help, by events alone. A Mirrored counts if it names the present version, and if no
// warning about targets is newer.
func TestC70Judge(t *testing.T) {
	o := plan.NewOptions()
	source := plantest.Source("platform", "settings", func(cm *corev1.ConfigMap) { cm.ResourceVersion = present })
	frozen := plantest.Source("platform", "settings", plantest.Annotation(plan.PausedAnnotation, "yes"))
	ofVersion := func(v string) func(*corev1.Event) {
		return func(e *corev1.Event) { e.Annotations[plan.EventVersion] = v }
	}
	of := func(instance string) func(*corev1.Event) {
		return func(e *corev1.Event) { e.Annotations[plan.InstanceAnnotation] = instance }
	}
	type events = []*corev1.Event
	const ends, goesOn = true, false
	for name, tc := range map[string]struct {
		source    *corev1.ConfigMap
		events    events
		want      string // summary and warning
		ends      bool
		code, lax int // of wait, and with --ignore-blocked; once it ends, or at the timeout
	}{
		"arrived":              {source, events{mirrored(5, present, "synced=12")}, "InSync, 12 synced", ends, 0, 0},
		"some held":            {source, events{mirrored(5, present, "synced=2", "held=38")}, "InSync, 2 synced, 38 held", ends, 0, 0},
		"all held":             {source, events{mirrored(5, present, "held=5")}, "InSync, 5 held", ends, 0, 0},
		"copies expire":        {source, events{mirrored(5, present, "synced=1", "expiring=2"), event("Expiring", 4)}, "InSync, 1 synced, 2 expiring; Expiring", ends, 0, 0},
		"after an edit":        {source, events{mirrored(5, "6", "synced=12")}, "Pending", goesOn, 1, 1},
		"after a revert":       {source, events{mirrored(2, "5", "synced=1"), mirrored(5, "6", "synced=1")}, "Pending", goesOn, 1, 1},
		"rejected":             {source, events{event("WriteFailed", 4), mirrored(5, present, "synced=1", "rejected=2")}, "Rejected, 1 synced, 2 rejected; WriteFailed", goesOn, 1, 0},
		"rejected and foreign": {source, events{event("WriteFailed", 4), mirrored(5, present, "foreign=1", "rejected=2")}, "Rejected, 1 foreign, 2 rejected; WriteFailed", goesOn, 1, 0},
		"foreign":              {source, events{event("Foreign", 4), mirrored(5, present, "synced=1", "foreign=2")}, "Blocked, 1 synced, 2 foreign; Foreign", ends, 1, 0},
		"superseded":           {source, events{event("Superseded", 4), mirrored(5, present, "superseded=2")}, "Blocked, 2 superseded; Superseded", ends, 1, 0},
		"fought over":          {source, events{event("Fight", 4), mirrored(5, present, "synced=1", "fight=1")}, "Blocked, 1 synced, 1 fight; Fight", ends, 1, 0},
		"a newer warning":      {source, events{mirrored(5, present, "synced=3"), event("Foreign", 6)}, "Pending; Foreign", goesOn, 1, 1},
		"a warning is over":    {source, events{event("Foreign", 4), event("InvalidAnnotation", 3), mirrored(5, present, "synced=3")}, "InSync, 3 synced", ends, 0, 0},
		"no target":            {source, events{event("NoTargets", 5, ofVersion(present))}, "NoTargets; NoTargets", ends, 1, 1},
		"no target before":     {source, events{event("NoTargets", 5, ofVersion("6"))}, "Pending; NoTargets", goesOn, 1, 1},
		"targets again":        {source, events{event("NoTargets", 5, ofVersion(present)), mirrored(6, present, "synced=1")}, "InSync, 1 synced", ends, 0, 0},
		"frozen":               {frozen, events{mirrored(5, present, "synced=2")}, "Frozen", ends, 1, 1},
		"no report":            {source, nil, "NotKnown", goesOn, 2, 2},
		"C82 another instance": {source, events{mirrored(5, present, "synced=2"), event("Foreign", 6, of("two"))}, "InSync, 2 synced", ends, 0, 0},
		"C82 its report":       {source, events{func() *corev1.Event { e := mirrored(5, present, "synced=2"); of("two")(e); return e }()}, "NotKnown", goesOn, 2, 2},
		"forged numbers":       {source, events{mirrored(5, present, "synced=many", "held=-1")}, "InSync", ends, 0, 0},
		"two of one second":    {source, events{mirrored(5, "6"), func() *corev1.Event { e := mirrored(5, present, "synced=1"); e.ResourceVersion = "10000"; return e }()}, "InSync, 1 synced", ends, 0, 0},
	} {
		s := plan.NewRules(&o).ParseSource(tc.source)
		got := snapshot.ReportsOf("default", tc.events)[plan.KeyOf(tc.source)].Judge(s, "default", time.Unix(10, 0))
		reason, _, _ := strings.Cut(got.Warning, ":")
		if text := strings.TrimSuffix(got.Summary()+"; "+reason, "; "); text != tc.want {
			t.Errorf("%s: got %q, want %q", name, text, tc.want)
		}
		for ignore, code := range map[bool]int{false: tc.code, true: tc.lax} {
			end, is := !got.GoesOn(ignore), map[bool]int{true: 0, false: 1}[got.Succeeds(ignore)]
			if got.Status == snapshot.NotKnown {
				is = 2
			}
			if is != code || !ignore && end != tc.ends {
				t.Errorf("%s, --ignore-blocked=%v: got the end %v, and code %d, want %v and %d", name, ignore, end, is, tc.ends, code)
			}
		}
	}
}
