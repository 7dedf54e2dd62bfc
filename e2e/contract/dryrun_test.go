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

// TestDryRunWritesNothing while sources, copies and namespaces change, with everything that usually writes: a lease, events, a
// self-check. Then the controller makes the very changes that the dry run has named.
func TestDryRunWritesNothing(t *testing.T) {
	t.Parallel()
	w := suite.New(t, "a", "b", "foreign", "drift")
	w.Create(w.NS("foreign"), "settings")
	src := w.CreateSource(w.Home, "settings", suite.WithData(map[string]string{"key": "one"}))
	w.CreateSource(w.Home, "frozen", suite.WithAnnotation("mirror-controller.github.io/namespace-prefix", "Team"))
	drift := w.Start()
	w.WaitInSync(src, w.NS("a"), w.NS("b"), w.NS("drift"))
	w.Stop(drift)
	w.Edit(w.NS("drift"), "settings", suite.WithKey("more", "x"))
	w.Delete(w.NS("b"), "settings")

	mark := w.AuditMark()
	p := w.StartWith(shipped.RunOptions{Args: []string{"--dry-run", "-v=2", "--leader-elect", "--resync-period=200ms",
		"--metrics-bind-address=127.0.0.1:0"}})
	w.WaitLog(p, `"Would create 1, update 1" source="`+w.Home+`/settings"`)
	w.WaitMetrics("a dry run", p, map[string]float64{
		`mirror_copies{state="synced"}`: 1, `mirror_copies{state="pending"}`: 2, `mirror_copies{state="foreign"}`: 1,
		`mirror_writes_total{operation="create",result="success"}`: 0,
	})
	src = w.Edit(w.Home, "settings", suite.WithData(map[string]string{"key": "two"}))
	w.WaitLog(p, `"Would create 1, update 2" source="`+w.Home+`/settings"`)
	w.CreateNamespace(w.NS("new"), nil)
	w.WaitLog(p, `"Would create 2, update 2" source="`+w.Home+`/settings"`)
	gone := w.CreateSource(w.Home, "gone")
	w.WaitLog(p, `"Would create 5" source="`+w.Home+`/gone"`)
	w.Delete(w.Home, gone.Name)
	w.WaitLog(p, `"Would change nothing" source="`+w.Home+`/gone"`)
	w.Stop(p)
	expectOnlyReads(w, mark)
	if changes := strings.Count(p.Log(), "Would change a copy"); changes > 20 {
		t.Errorf("the log has %d lines about changes, want one for each change", changes)
	}

	w.Start()
	w.WaitInSync(src, w.NS("a"), w.NS("b"), w.NS("drift"), w.NS("new"))
	w.Settle(w.NS("a"))
	w.ExpectWrites("settings", "create "+w.NS("a"), "create "+w.NS("b"), "create "+w.NS("drift"), // before the dry run
		"create "+w.NS("b"), "create "+w.NS("new"), "update "+w.NS("a"), "update "+w.NS("drift"))
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
