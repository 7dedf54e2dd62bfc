package snapshot_test

import (
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/mirror-controller/mirror-controller/cmd/kubectl-mirror/snapshot"
	"github.com/mirror-controller/mirror-controller/cmd/kubectl-mirror/snapshot/snapshottest"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
	"github.com/mirror-controller/mirror-controller/mirror/plan/plantest"
)

// TestNewestEvents has events about a source in the second in which it was changed, before it, and after it.
func TestNewestEvents(t *testing.T) {
	changed := metav1.Unix(1000, 0)
	warning := func(after time.Duration, suffix string) *corev1.Event {
		return &corev1.Event{
			ObjectMeta:     metav1.ObjectMeta{Namespace: "platform", Name: "settings." + suffix},
			InvolvedObject: corev1.ObjectReference{UID: "source"},
			Reason:         suffix, Type: corev1.EventTypeWarning, Count: 1, LastTimestamp: metav1.NewTime(changed.Add(after)),
		}
	}
	for name, test := range map[string]struct {
		events      []*corev1.Event
		newest      string // that the status of the source shows
		newestFirst []string
	}{
		"before the change":          {[]*corev1.Event{warning(-time.Second, "1")}, "", []string{"1"}},
		"in the same second":         {[]*corev1.Event{warning(0, "1")}, "1", []string{"1"}},
		"later, and listed earlier":  {[]*corev1.Event{warning(time.Second, "1"), warning(0, "2")}, "1", []string{"1", "2"}},
		"two of the same second":     {[]*corev1.Event{warning(0, "2"), warning(0, "1")}, "2", []string{"2", "1"}},
		"a repetition of an old one": {[]*corev1.Event{warning(2*time.Second, "1"), warning(0, "2")}, "1", []string{"1", "2"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := snapshottest.New()
			source := s.Add(plantest.Source("platform", "settings"))
			source.UID, source.ManagedFields = "source", []metav1.ManagedFieldsEntry{{Time: &changed}}
			shown := s.Snapshot(t)
			reader := &snapshot.Reader{Client: fake.NewClientset(), Options: &s.Options, Rules: plan.NewRules(&s.Options)}
			for _, e := range test.events {
				_, err := reader.Client.CoreV1().Events("platform").Create(t.Context(), e, metav1.CreateOptions{})
				noError(t, err)
			}
			sources := shown.Sources(&s.Options, types.NamespacedName{})
			noError(t, reader.AddWarnings(t.Context(), shown, "", sources))
			if w := sources[0].Warning; w == nil && test.newest != "" || w != nil && w.Reason != test.newest {
				t.Errorf("got the warning %v, want %q", w, test.newest)
			}
			var reasons []string
			reported, err := reader.Reported(t.Context(), source)
			noError(t, err)
			for _, e := range reported {
				reasons = append(reasons, e.Reason)
			}
			if !slices.Equal(reasons, test.newestFirst) {
				t.Errorf("got %q, want %q", reasons, test.newestFirst)
			}
		})
	}
}

func noError(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
