package mirror

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/events"
)

// TestNothingIsLeftRunning ends a controller in each of its states. A bubble does not end, but panics and lists them,
// while goroutines of it are blocked: there are none when Run has returned.
func TestNothingIsLeftRunning(t *testing.T) {
	for name, tc := range map[string]struct {
		leads, loses bool
		want         error
	}{
		"stopped while it leads":      {leads: true},
		"the leadership is lost":      {leads: true, loses: true, want: ErrLeadershipLost},
		"stopped while it stands by":  {},
		"stopped before it was begun": {},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client := fake.NewClientset(namespace("platform"), namespace("team-a"), namespace("team-b"),
					sourceCM("platform", "settings"), configMap("team-b", "settings")) // one target is in trouble
				c := newTeamController(t, client)
				ctx, stop := context.WithCancel(t.Context())
				defer stop()
				term, lose := context.WithCancel(context.WithoutCancel(ctx))
				defer lose()
				begun := make(chan context.Context, 1)
				if tc.leads {
					begun <- term
				}
				if name == "stopped before it was begun" {
					stop()
				}
				ended := make(chan error, 1)
				go func() { ended <- c.Run(ctx, Leadership{Begun: begun, Valid: func() bool { return true }}) }()
				synctest.Wait()
				if _, err := client.CoreV1().ConfigMaps("team-a").Get(t.Context(), "settings", metav1.GetOptions{}); (err == nil) != tc.leads {
					t.Errorf("got error %v for the copy, want it made %v", err, tc.leads)
				}
				if tc.loses {
					lose()
				} else {
					stop()
				}
				if err := <-ended; !errors.Is(err, tc.want) {
					t.Errorf("got error %v, want %v", err, tc.want)
				}
			})
		})
	}
}

// newTeamController returns a controller of the namespaces team-*, which does nothing yet.
func newTeamController(t *testing.T, client kubernetes.Interface) *Controller {
	t.Helper()
	o := NewOptions()
	o.NamespacePrefixes = []string{"team-"}
	c, err := New(client, events.NewFakeRecorder(100), o)
	if err != nil {
		t.Fatal(err)
	}
	return c
}
