package policies

import (
	"errors"
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mirror-controller/mirror-controller/e2e/suite"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// TestC17PruneNeedsItsAnnotation narrows the prefix in flag and annotation, and sets the flag --prune: the policy keeps the
// copy that is out of scope now, until the annotation allows its deletion too.
func TestC17PruneNeedsItsAnnotation(t *testing.T) {
	t.Parallel()
	w := At(suite.New(t, "a", "b"))
	source := w.CreateSource(w.Home, "settings")
	p := w.Start()
	w.WaitInSync(source, w.NS("a"), w.NS("b"))
	copies := w.Copies("settings", w.NS("a"), w.NS("b"))
	w.Stop(p)

	remove := func() error {
		return w.as(w.Installed.User).CoreV1().ConfigMaps(w.NS("b")).Delete(w.Context(), "settings", DryDelete)
	}
	expectAnswer(t, confined, "", remove())
	setSetting(w.World, "namespace-prefix", w.NS("a"))
	w.Until("the policy knows the prefix", func() error { return InForce(confined, remove()) })
	p = w.StartExactly("--namespace-prefix="+w.NS("a"), "--prune", "--metrics-bind-address=127.0.0.1:0")
	w.Until("the policy refuses the deletion", func() error {
		got, err := w.Scrape(p)
		if err == nil && got[`mirror_writes_total{operation="delete",result="rejected"}`] == 0 {
			err = errors.New("none was sent")
		}
		return err
	})
	w.AllUntouched(copies)

	setSetting(w.World, "prune", "true")
	w.WaitGone("settings", w.NS("b"))
	w.AllUntouched(copies[:1])
}

// setSetting changes what the policies know of a flag of the world.
func setSetting(w *suite.World, flag, value string) {
	w.Helper()
	patch := fmt.Sprintf(`{"metadata": {"annotations": {"%s/%s": %q}}}`, plan.Domain, flag, value)
	bindings := w.Admin.RbacV1().ClusterRoleBindings()
	_, err := bindings.Patch(w.Context(), w.Account(), types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	if err != nil {
		w.Fatal(err)
	}
}
