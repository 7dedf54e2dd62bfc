package mirror

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/mirror-controller/mirror-controller/mirror/apitest"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// TestNamespaceThatStaysBusy: the writes in one namespace of 100 are answered
// as if another try could help, by a webhook that denies with such a code, and
// go on to be. After a minute the events about the source say so. Fault F12.
func TestNamespaceThatStaysBusy(t *testing.T) {
	skipKnownFault(t)
	resource := corev1.Resource("configmaps")
	for name, err := range map[string]error{
		"404": apierrors.NewNotFound(resource, "settings"),
		"409": apierrors.NewConflict(resource, "settings", errAway),
		"429": apierrors.NewTooManyRequestsError("later"),
		"503": apierrors.NewServiceUnavailable("later"),
	} {
		t.Run(name, inScene(teams(100, "team-"), func(t *testing.T, s scene) {
			s.refuse(func(c apitest.Call) error {
				if c.Namespace == "team-007" && c.IsWrite() {
					return err
				}
				return nil
			})
			s.write(source())
			// The API server carries out writes elsewhere meanwhile.
			for range 4 {
				time.Sleep(20 * time.Second)
				s.edit("team-000", data("spoilt"))
			}
			time.Sleep(5 * time.Minute)
			s.wantCopies(99, "team-", "value")
			s.wantNote(plan.ReasonWriteFailed, "team-007")
			s.wantMirrored("99 namespaces; 1 is blocked (see WriteFailed)")
			s.wantMetric(1, "mirror_copies", "rejected")
		}))
	}
}
