package install

import (
	"errors"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mirror-controller/mirror-controller/e2e/manual"
	"github.com/mirror-controller/mirror-controller/e2e/plugin"
	"github.com/mirror-controller/mirror-controller/e2e/suite"
)

// TestDocsViewer binds the role of component viewer by the command of the manual, and asks for each of its permissions as one of
// the group. kubectl asks for a resource by the name that the API server has, so a rule with another name permits nothing.
func TestDocsViewer(t *testing.T) {
	t.Parallel()
	w := suite.New(t)
	rules := plugin.ViewerRules(w)
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: plugin.ViewerRole}, Rules: rules}
	if _, err := w.Admin.RbacV1().ClusterRoles().Create(w.Context(), role, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	bind := manual.Commands(t, "deploy/docs/kubectl-mirror.md", "--group=mirror-operators")
	if out, err := w.Cluster.Shell(w.Context(), bind).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v, %s", bind, err, out)
	}
	ask := func(verb, resource string) string {
		out, _ := w.Cluster.KubectlCommand(w.Context(), "auth", "can-i", verb, resource, "--all-namespaces",
			"--as=anybody", "--as-group=mirror-operators").CombinedOutput()
		return string(out)
	}
	w.Until("the role is bound", func() error {
		if answer := ask("list", "configmaps"); answer != "yes\n" {
			return errors.New(answer)
		}
		return nil
	})
	for _, rule := range rules {
		for _, resource := range rule.Resources {
			resource = strings.TrimSuffix(resource+"."+rule.APIGroups[0], ".")
			if len(rule.ResourceNames) > 0 {
				resource += "/" + rule.ResourceNames[0]
			}
			for _, verb := range rule.Verbs {
				reads := slices.Contains([]string{"get", "list", "watch"}, verb) || resource == "subjectaccessreviews.authorization.k8s.io"
				if answer := ask(verb, resource); answer != "yes\n" || !reads {
					t.Errorf("%s %s: is %q, want a permission to read", verb, resource, answer)
				}
			}
		}
	}
}
