package install

import (
	"fmt"
	"slices"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mirror-controller/mirror-controller/e2e/manual"
	"github.com/mirror-controller/mirror-controller/e2e/plugin"
	"github.com/mirror-controller/mirror-controller/e2e/suite"
)

// TestDocsViewer binds the role of component viewer by the command of the manual. It permits nothing but reading. The tests of the
// plug-in show that it permits enough.
func TestDocsViewer(t *testing.T) {
	t.Parallel()
	w := suite.New(t)
	rules := plugin.ViewerRules(w)
	for _, rule := range rules {
		for _, verb := range rule.Verbs {
			if !slices.Contains([]string{"get", "list"}, verb) {
				t.Errorf("it permits to %s %v", verb, rule.Resources)
			}
		}
	}
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: plugin.ViewerRole}, Rules: rules}
	if _, err := w.Admin.RbacV1().ClusterRoles().Create(w.Context(), role, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	sh(w, manual.Commands(t, "deploy/docs/kubectl-mirror.md", "--group=mirror-operators"))
	w.Until("the role is bound", func() error {
		out, err := w.Cluster.KubectlCommand(w.Context(), "auth", "can-i", "list", "configmaps", "--all-namespaces",
			"--as=anybody", "--as-group=mirror-operators").CombinedOutput()
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	})
}
