package contract

import (
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/mirror-controller/mirror-controller/e2e/cluster"
	"github.com/mirror-controller/mirror-controller/e2e/shipped"
	"github.com/mirror-controller/mirror-controller/e2e/suite"
)

// expectOnlyReads fails the test if the world's controllers sent any request since the mark but reads: dry-run requests count
// as writes.
func expectOnlyReads(w *suite.World, mark cluster.Mark) {
	w.Helper()
	all, _, err := w.Cluster.Audit().Since(mark)
	if err != nil {
		w.Fatal(err)
	}
	reads := 0
	for _, e := range all {
		switch {
		case !strings.Contains(e.UserAgent+" ", "instance/"+w.Instance+" "):
		case e.Verb == "get" || e.Verb == "list" || e.Verb == "watch":
			reads++
		default:
			w.Errorf("a dry run sent %v", e)
		}
	}
	if reads == 0 {
		w.Error("the audit log has no reads of the dry run")
	}
}

// TestDryRunReads with the permission to read alone.
func TestDryRunReads(t *testing.T) {
	t.Parallel()
	w := suite.New(t, "a")
	w.CreateSource(w.Home, "settings")
	reader := w.NewAccount("reader", []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"configmaps", "namespaces"}, Verbs: []string{"get", "list", "watch"}},
	})
	p := w.StartWith(shipped.RunOptions{Args: []string{"--dry-run", "--leader-elect"}, Kubeconfig: reader.Kubeconfig})
	w.WaitLog(p, `"Would create 1" source="`+w.Home+`/settings"`)
	w.Stop(p)
	expectOnlyReads(w, w.Mark)
}
