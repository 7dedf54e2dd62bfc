package snapshot_test

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/mirror-controller/mirror-controller/cmd/kubectl-mirror/snapshot"
	"github.com/mirror-controller/mirror-controller/cmd/kubectl-mirror/snapshot/snapshottest"
	"github.com/mirror-controller/mirror-controller/mirror/plan/plantest"
)

// TestNewestWarning has warnings about a source in the second in which it was changed, before it, and after it.
func TestNewestWarning(t *testing.T) {
	changed := metav1.Unix(1000, 0)
	warning := func(after time.Duration, version string) *corev1.Event {
		return &corev1.Event{
			ObjectMeta:     metav1.ObjectMeta{Namespace: "platform", Name: "settings." + version, ResourceVersion: version},
			InvolvedObject: corev1.ObjectReference{UID: "source"},
			Reason:         version, Type: corev1.EventTypeWarning, LastTimestamp: metav1.NewTime(changed.Add(after)),
		}
	}
	for name, test := range map[string]struct {
		events []*corev1.Event
		newest string
	}{
		"before the change":          {[]*corev1.Event{warning(-time.Second, "1")}, ""},
		"in the same second":         {[]*corev1.Event{warning(0, "1")}, "1"},
		"later, and listed earlier":  {[]*corev1.Event{warning(time.Second, "1"), warning(0, "2")}, "1"},
		"two of the same second":     {[]*corev1.Event{warning(0, "10"), warning(0, "9")}, "10"},
		"a repetition of an old one": {[]*corev1.Event{warning(2*time.Second, "1"), warning(0, "2")}, "1"},
	} {
		s := snapshottest.New()
		source := s.Add(plantest.Source("platform", "settings"))
		source.UID, source.ManagedFields = "source", []metav1.ManagedFieldsEntry{{Time: &changed}}
		shown := s.Snapshot(t)
		client := fake.NewClientset()
		for _, e := range test.events {
			if err := client.Tracker().Add(e); err != nil {
				t.Fatal(err)
			}
		}
		sources := shown.Sources(types.NamespacedName{})
		if err := (&snapshot.Reader{Client: client}).AddWarnings(t.Context(), shown, "", sources); err != nil {
			t.Fatal(err)
		}
		if w := sources[0].Warning; w == nil && test.newest != "" || w != nil && w.Reason != test.newest {
			t.Errorf("%s: got the warning %v, want %q", name, w, test.newest)
		}
	}
}
