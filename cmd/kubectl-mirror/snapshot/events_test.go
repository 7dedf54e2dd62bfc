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
	for name, tc := range map[string]struct {
		source       *corev1.ConfigMap
		events, want string // summary and warning
	}{
		"in sync":   {settings, "Mirrored version=7 synced=12", "InSync, 12 synced"},
		"some held": {settings, "Mirrored version=7 synced=2 held=38", "InSync, 2 synced, 38 held"},
		"frozen":    {frozen, "Mirrored version=7 synced=2", "Frozen"},
		"some expire": {settings, "Expiring; Mirrored version=7 synced=1 expiring=2",
			"InSync, 1 synced, 2 expiring; Expiring"},
		"blocked, and some expire": {settings, "Expiring; Foreign; Mirrored version=7 foreign=1 expiring=2",
			"Blocked, 1 foreign, 2 expiring; Expiring"},
		"an older version": {settings, "Mirrored version=6 synced=12", "Pending"},
		"a revert":         {settings, "Mirrored version=7; Mirrored version=6 synced=1", "Pending"},
		"a revert, in a list of another order": {settings,
			"Mirrored version=6; Mirrored version=7; Mirrored version=6", "Pending"},
		"rejected": {settings, "WriteFailed; Mirrored version=7 synced=1 rejected=2",
			"Rejected, 1 synced, 2 rejected; WriteFailed"},
		"rejected, and a foreign object": {settings, "WriteFailed; Mirrored version=7 foreign=1 rejected=2",
			"Rejected, 1 foreign, 2 rejected; WriteFailed"},
		"a foreign object": {settings, "Foreign; Mirrored version=7 synced=1 foreign=2",
			"Blocked, 1 synced, 2 foreign; Foreign"},
		"superseded":      {settings, "Superseded; Mirrored version=7 superseded=2", "Blocked, 2 superseded; Superseded"},
		"a fight":         {settings, "Fight; Mirrored version=7 synced=1 fight=1", "Blocked, 1 synced, 1 fight; Fight"},
		"a newer warning": {settings, "Mirrored version=7 synced=3; Foreign", "Pending; Foreign"},
		"a warning that is repeated": {settings, "Mirrored version=7 synced=3 foreign=1; Foreign",
			"Blocked, 3 synced, 1 foreign; Foreign"},
		"newly out of scope":     {settings, "Mirrored version=7 synced=3; OutOfScope", "Pending; OutOfScope"},
		"a warning that is over": {settings, "Foreign; Mirrored version=7 synced=3", "InSync, 3 synced"},
		"copies out of scope": {settings, "OutOfScope; Mirrored version=7 synced=3 out_of_scope=1",
			"InSync, 3 synced, 1 out_of_scope; OutOfScope"},
		"no targets":                     {settings, "NoTargets version=7", "NoTargets; NoTargets"},
		"no targets of an older version": {settings, "NoTargets version=6", "Pending; NoTargets"},
		"no targets, and then one": {settings, "NoTargets version=7; Mirrored version=7 synced=1",
			"InSync, 1 synced"},
		"a reserved name":       {plantest.Source("platform", "kube-root-ca.crt"), "", "ReservedName"},
		"a source out of scope": {elsewhere, "", "OutOfScope"},
		"no event":              {settings, "", "NotKnown"},
		"C82 a warning of another instance": {settings, "Mirrored version=7 synced=2; Foreign instance=two",
			"InSync, 2 synced"},
		"C82 only another instance": {settings, "Mirrored version=7 synced=2 instance=two", "NotKnown"},
		"a forged number":           {settings, "Mirrored version=7 synced=many", "InSync"},
	} {
		t.Run(name, func(t *testing.T) {
			client := fake.NewClientset(tc.source)
			for i, text := range strings.Split(tc.events, "; ") {
				if text != "" && client.Tracker().Add(event(tc.source, i, text)) != nil {
					t.Fatal("got an event of the same name")
				}
			}
			reader := &snapshot.Reader{Client: client, Rules: plan.NewRules(&o)}
			all, err := reader.SourcesByReports(t.Context(), plan.KeyOf(tc.source))
			if err != nil || len(all) != 1 {
				t.Fatalf("got %d sources, %v", len(all), err)
			}
			got := all[0]
			reason, _, _ := strings.Cut(got.Warning, ":")
			if text := strings.TrimSuffix(got.Summary()+"; "+reason, "; "); text != tc.want {
				t.Errorf("got %q, want %q", text, tc.want)
			}
		})
	}
}
