package snapshot_test

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/mirror-controller/mirror-controller/cmd/kubectl-mirror/snapshot"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
	"github.com/mirror-controller/mirror-controller/mirror/plan/plantest"
)

// event parses an event, such as "Mirrored version=7 synced=2": a reason, and annotations. The order is that of time.
func event(about *corev1.ConfigMap, order int, text string) *corev1.Event {
	fields := strings.Fields(text)
	e := &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: about.Namespace, Name: fmt.Sprint(order * 2 % 3), // a list goes by it
			ResourceVersion: fmt.Sprint(8 + order), Annotations: map[string]string{plan.InstanceAnnotation: "default"}},
		InvolvedObject: corev1.ObjectReference{Namespace: about.Namespace, Name: about.Name},
		Reason:         fields[0], Type: map[bool]string{true: "Normal", false: "Warning"}[fields[0] == plan.ReasonMirrored],
	}
	for _, annotation := range fields[1:] {
		key, value, _ := strings.Cut(annotation, "=")
		e.Annotations["mirror-controller.github.io/"+key] = value
	}
	return e
}

// TestC70Judge judges sources of version 7 by events alone. A Mirrored counts if it names that version and no warning
// about targets is newer. C82: what another instance reports does not count.
func TestC70Judge(t *testing.T) {
	o := plan.NewOptions()
	o.SourceNamespaces = []string{"platform"}
	settings, elsewhere := plantest.Source("platform", "settings"), plantest.Source("dev", "settings")
	frozen := plantest.Source("platform", "frozen", plantest.Annotation(plan.PausedAnnotation, "yes"))
	for _, tc := range []struct {
		source       *corev1.ConfigMap
		events, want string // summary and warning
	}{
		{settings, "Mirrored version=7 synced=12", "InSync, 12 synced"},
		{settings, "Mirrored version=7 synced=2 held=38", "InSync, 2 synced, 38 held"},
		{settings, "Expiring; Mirrored version=7 synced=1 expiring=2", "InSync, 1 synced, 2 expiring; Expiring"},
		{settings, "Expiring; Foreign; Mirrored version=7 foreign=1 expiring=2", "Blocked, 1 foreign, 2 expiring; Expiring"},
		{settings, "Mirrored version=6 synced=12", "Pending"},
		{settings, "Mirrored version=7; Mirrored version=6 synced=1", "Pending"},            // a revert
		{settings, "Mirrored version=6; Mirrored version=7; Mirrored version=6", "Pending"}, // the newest is not the last
		{settings, "WriteFailed; Mirrored version=7 synced=1 rejected=2", "Rejected, 1 synced, 2 rejected; WriteFailed"},
		{settings, "WriteFailed; Mirrored version=7 foreign=1 rejected=2", "Rejected, 1 foreign, 2 rejected; WriteFailed"},
		{settings, "Foreign; Mirrored version=7 synced=1 foreign=2", "Blocked, 1 synced, 2 foreign; Foreign"},
		{settings, "Superseded; Mirrored version=7 superseded=2", "Blocked, 2 superseded; Superseded"},
		{settings, "Fight; Mirrored version=7 synced=1 fight=1", "Blocked, 1 synced, 1 fight; Fight"},
		{settings, "Mirrored version=7 synced=3; Foreign", "Pending; Foreign"},
		{settings, "Mirrored version=7 synced=3 foreign=1; Foreign", "Blocked, 3 synced, 1 foreign; Foreign"}, // repeated
		{settings, "Mirrored version=7 synced=3; OutOfScope", "Pending; OutOfScope"},
		{settings, "Foreign; Mirrored version=7 synced=3", "InSync, 3 synced"}, // the warning is over
		{settings, "OutOfScope; Mirrored version=7 synced=3 out_of_scope=1", "InSync, 3 synced, 1 out_of_scope; OutOfScope"},
		{settings, "NoTargets version=7", "NoTargets; NoTargets"},
		{settings, "NoTargets version=6", "Pending; NoTargets"},
		{settings, "NoTargets version=7; Mirrored version=7 synced=1", "InSync, 1 synced"},
		{frozen, "Mirrored version=7 synced=2", "Frozen"},
		{plantest.Source("platform", "kube-root-ca.crt"), "", "ReservedName"},
		{elsewhere, "", "OutOfScope"},
		{settings, "", "NotKnown"},
		{settings, "Mirrored version=7 synced=2; Foreign instance=two", "InSync, 2 synced"},
		{settings, "Mirrored version=7 synced=2 instance=two", "NotKnown"},
		{settings, "Mirrored version=7 synced=many", "InSync"}, // forged
	} {
		client := fake.NewClientset(tc.source)
		for i, text := range strings.Split(tc.events, "; ") {
			if text != "" && client.Tracker().Add(event(tc.source, i, text)) != nil {
				t.Fatalf("%s: got an event of the same name", tc.events)
			}
		}
		reader := &snapshot.Reader{Client: client, Rules: plan.NewRules(&o)}
		all, err := reader.SourcesByReports(t.Context(), plan.KeyOf(tc.source))
		if err != nil || len(all) != 1 {
			t.Fatalf("%s: got %d sources, %v", tc.events, len(all), err)
		}
		got := all[0]
		reason, _, _ := strings.Cut(got.Warning, ":")
		if text := strings.TrimSuffix(got.Summary()+"; "+reason, "; "); text != tc.want {
			t.Errorf("%s: got %q, want %q", tc.events, text, tc.want)
		}
	}
}
