package mirror

import (
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/mirror-controller/mirror-controller/mirror/plan"
	"github.com/mirror-controller/mirror-controller/mirror/plan/plantest"
)

// TestC64CountsOfManySources: each of a hundred sources of one name is superseded everywhere but in its own namespace, and the
// winner is not. So it stays when one of them is edited.
func TestC64CountsOfManySources(t *testing.T) {
	const n = 100
	objects := []runtime.Object{}
	for i := range n {
		namespace := fmt.Sprintf("team-%03d", i)
		objects = append(objects, plantest.Namespace(namespace), sourceIn(namespace, plantest.CreatedAt(int64(1+i))))
	}
	cluster(t, objects, func(t *testing.T, s scene) {
		time.Sleep(time.Minute)
		check := func(what string) {
			t.Helper()
			// Each but the first selects all but its own namespace, and the second wins that of the first.
			if got, want := s.value("mirror_copies", "superseded"), float64((n-1)*(n-1)-1); got != want {
				t.Errorf("%s: got %v superseded, want %v", what, got, want)
			}
			if got := s.reported(plan.ReasonSuperseded); got != n-1 {
				t.Errorf("%s: got %d events, want one for each but the winner", what, got)
			}
		}
		check("at first")
		s.edit("team-050", plantest.Data("key", "new"))
		time.Sleep(time.Minute)
		check("after an edit")
	})
}
