package e2e

import (
	"errors"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/mirror-controller/mirror-controller/e2e/cluster"
	"github.com/mirror-controller/mirror-controller/e2e/shipped"
)

// expectOnlyReads fails the test if the world's controllers sent any request since the mark but reads: dry-run requests count
// as writes.
func (w *world) expectOnlyReads(mark cluster.Mark) {
	w.Helper()
	all, _, err := w.cluster.Audit().Since(mark)
	if err != nil {
		w.Fatal(err)
	}
	reads := 0
	for _, e := range all {
		switch {
		case !strings.Contains(e.UserAgent+" ", "instance/"+w.instance+" "):
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
	w := newWorld(t, "a", "b", "foreign", "drift")
	w.create(w.ns("foreign"), "settings")
	src := w.createSource(w.home, "settings", withData(map[string]string{"key": "one"}))
	w.createSource(w.home, "frozen", withAnnotation("mirror-controller.github.io/namespace-prefix", "Team"))
	drift := w.start()
	w.waitInSync(src, w.ns("a"), w.ns("b"), w.ns("drift"))
	w.stop(drift)
	w.edit(w.ns("drift"), "settings", withKey("more", "x"))
	w.delete(w.ns("b"), "settings")

	mark := w.auditMark()
	p := w.startWith(shipped.RunOptions{Args: []string{"--dry-run", "-v=2", "--leader-elect", "--resync-period=200ms",
		"--metrics-bind-address=127.0.0.1:0"}})
	w.untilLogged(p, `"Would create 1, update 1" source="`+w.home+`/settings"`)
	w.waitMetrics("a dry run", p, map[string]float64{
		`mirror_copies{state="synced"}`: 1, `mirror_copies{state="pending"}`: 2, `mirror_copies{state="foreign"}`: 1,
		`mirror_writes_total{operation="create",result="success"}`: 0,
	})
	src = w.edit(w.home, "settings", withData(map[string]string{"key": "two"}))
	w.untilLogged(p, `"Would create 1, update 2" source="`+w.home+`/settings"`)
	w.createNamespace(w.ns("new"), nil)
	w.untilLogged(p, `"Would create 2, update 2" source="`+w.home+`/settings"`)
	gone := w.createSource(w.home, "gone")
	w.untilLogged(p, `"Would create 5" source="`+w.home+`/gone"`)
	w.delete(w.home, gone.Name)
	w.untilLogged(p, `"Would change nothing" source="`+w.home+`/gone"`)
	w.stop(p)
	w.expectOnlyReads(mark)
	if changes := strings.Count(p.Log(), "Would change a copy"); changes > 20 {
		t.Errorf("the log has %d lines about changes, want one for each change", changes)
	}

	before := w.auditMark()
	w.start()
	w.waitInSync(src, w.ns("a"), w.ns("b"), w.ns("drift"), w.ns("new"))
	var writes []string
	for _, e := range writesTo(w.requestsSince(before), "settings") {
		if e.Object.Namespace != w.ns("foreign") {
			writes = append(writes, e.Verb+" "+e.Object.Namespace)
		}
	}
	slices.Sort(writes)
	if want := []string{"create " + w.ns("b"), "create " + w.ns("new"), "update " + w.ns("a"), "update " + w.ns("drift")}; !slices.Equal(writes, want) {
		t.Errorf("writes: %q, want %q", writes, want)
	}
}

// TestDryRunReads with the permission to read alone.
func TestDryRunReads(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "a")
	w.createSource(w.home, "settings")
	reader := w.newAccount("reader", []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"configmaps", "namespaces"}, Verbs: []string{"get", "list", "watch"}},
	})
	p := w.startWith(shipped.RunOptions{Args: []string{"--dry-run", "--leader-elect"}, Kubeconfig: reader.kubeconfig})
	w.untilLogged(p, `"Would create 1" source="`+w.home+`/settings"`)
	w.stop(p)
	w.expectOnlyReads(w.mark)
}

// untilLogged waits until the controller has printed the text.
func (w *world) untilLogged(p *shipped.Process, text string) {
	w.Helper()
	w.until("the log says "+text, func() error {
		if !strings.Contains(p.Log(), text) {
			return errors.New("not yet: " + lastLines(p.Log(), 20))
		}
		return nil
	})
}
