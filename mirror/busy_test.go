package mirror

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/mirror-controller/mirror-controller/mirror/apitest"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// TestC85NamespaceThatStaysBusy: the writes in one namespace of 100 are answered
// as if another try could help, by a webhook that denies with such a code, and go
// on to be. After a minute the events about the source say so. When the answer
// changes, the copy comes.
func TestC85NamespaceThatStaysBusy(t *testing.T) {
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
			s.refuse(on[error](nil))
			s.within(time.Minute, "copy", func() bool { return s.countCopies("team-007", "value") == 1 })
		}))
	}
}

// TestC85BusyForEverybody: an API server that answers each write so, or is away,
// for ten minutes rejects nobody.
func TestC85BusyForEverybody(t *testing.T) {
	t.Parallel()
	for name, err := range map[string]error{
		"429":  apierrors.NewTooManyRequestsError("later"),
		"503":  apierrors.NewServiceUnavailable("later"),
		"away": errAway,
	} {
		t.Run(name, inScene(append(teams(100, "team-"), source()), func(t *testing.T, s scene) {
			time.Sleep(time.Minute)
			s.refuse(on(err, creates, updates))
			s.edit("platform", data("new"))
			time.Sleep(10 * time.Minute)
			s.wantMetric(0, "mirror_copies", "rejected")
			s.wantEventCount(0, plan.ReasonWriteFailed)
			s.refuse(on[error](nil))
			s.within(time.Minute, "copies", func() bool { return s.countCopies("team-", "new") == 100 })
			s.wantEventCount(0, plan.ReasonWriteFailed)
		}))
	}
}

// TestC85RestartOfTheAPIServer: the API server answers one write with 503 as it
// stops, and is away for two minutes. Then it carries out writes elsewhere, and
// answers one more so. Nobody is rejected.
func TestC85RestartOfTheAPIServer(t *testing.T) {
	inScene(append(teams(3, "team-"), source()), func(t *testing.T, s scene) {
		time.Sleep(time.Minute)
		busy := apierrors.NewServiceUnavailable("later")
		s.refuse(on[error](busy, request("update", "configmaps", "team-001")))
		s.edit("platform", data("new"))
		time.Sleep(40 * time.Millisecond) // one try
		s.refuse(on(errAway, anyCall))
		time.Sleep(2 * time.Minute)
		s.refuse(on[error](busy, request("update", "configmaps", "team-001")))
		s.edit("team-002", data("spoilt"))
		time.Sleep(30 * time.Second)
		s.refuse(on[error](nil))
		time.Sleep(5 * time.Minute)
		s.wantCopies(3, "team-", "new")
		s.wantEventCount(0, plan.ReasonWriteFailed)
	})(t)
}
