package e2e

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mirror-controller/mirror-controller/e2e/cluster"
	"github.com/mirror-controller/mirror-controller/e2e/shipped"
)

// once runs a controller with --once until it ends, and returns its exit code and what it printed.
func (w *world) once(o shipped.RunOptions) (code int, printed string) {
	w.Helper()
	o.Args = append(slices.Clone(o.Args), "--once")
	p := w.startWith(o)
	w.wait("the end of --once", p.Done())
	return p.ExitCode(), p.Log()
}

// expectOnce fails the test unless a controller with --once ends with this exit code and prints these lines, each whole, and
// next to each other.
func (w *world) expectOnce(code int, o shipped.RunOptions, lines ...string) {
	w.Helper()
	got, printed := w.once(o)
	if want := "\n" + strings.Join(lines, "\n") + "\n"; got != code || !strings.Contains("\n"+printed, want) {
		w.Errorf("exit code %d, want %d and the lines%sin\n%s", got, code, want, printed)
	}
}

func flags(args ...string) shipped.RunOptions { return shipped.RunOptions{Args: args} }

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

	w.expectOnce(1, flags("--dry-run", "--leader-elect"), // of the frozen source
		w.home+"/frozen: no targets",
		"  Frozen: an annotation is malformed, so no copy of this source is created, updated or deleted. Fix the "+
			`annotation mirror-controller.github.io/namespace-prefix="Team": prefix "Team": must be the beginning of a namespace name: `+
			"lower-case letters, digits and '-', with a letter or digit first")
	w.expectOnlyReads(mark)
	w.delete(w.home, "frozen")
	w.expectOnce(0, flags("--dry-run"),
		w.home+"/settings: 4 pending, 1 foreign",
		"  "+w.ns("a")+": would update", "  "+w.ns("b")+": would create",
		"  "+w.ns("drift")+": would update", "  "+w.ns("new")+": would create", "  "+w.ns("foreign")+": foreign",
		"Changes that a run would make: create 2, update 2.")
	w.expectOnlyReads(mark)
	before := w.auditMark()
	w.expectOnce(0, flags(), w.home+"/settings: 4 synced, 1 foreign", "  "+w.ns("foreign")+": foreign", "Changes: create 2, update 2.")
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
	w.expectOnce(0, flags(), w.home+"/settings: 4 synced, 1 foreign", "  "+w.ns("foreign")+": foreign", "Changes: none.")
}

// TestDryRunReads with the permission to read alone.
func TestDryRunReads(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "a")
	w.createSource(w.home, "settings")
	reader := w.newAccount("reader", []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"configmaps", "namespaces"}, Verbs: []string{"get", "list", "watch"}},
	})
	w.expectOnce(0, shipped.RunOptions{Args: []string{"--dry-run", "--leader-elect"}, Kubeconfig: reader.kubeconfig},
		w.home+"/settings: 1 pending", "  "+w.ns("a")+": would create", "Changes that a run would make: create 1.")
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

// TestOnceFails for what is not in sync in the end, with exit code 1.
func TestOnceFails(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "a", "full")
	w.create(w.ns("full"), "other")
	w.fullQuota(w.ns("full"))
	src := w.createSource(w.home, "settings")
	code, printed := w.once(flags())
	for _, want := range []string{w.home + "/settings: 1 synced, 1 failed\n", "  " + w.ns("full") + ": failed: ", "exceeded quota", "Changes: create 1.\n", "not in sync: 1 failed"} {
		if !strings.Contains(printed, want) {
			t.Errorf("it does not print %q", want)
		}
	}
	if code != 1 {
		t.Errorf("exit code %d, want 1", code)
	}
	w.waitInSync(src, w.ns("a"))
	w.edit(w.ns("a"), "settings", func(cm *corev1.ConfigMap) { cm.Finalizers = []string{"example.com/keep"} })
	w.delete(w.ns("a"), "settings")
	const limit = 3 * time.Second
	w.until("it ends at the timeout", func() error { // a slow machine may have compared nothing by then
		began := time.Now()
		code, printed := w.once(flags("--once-timeout=" + limit.String()))
		want := w.home + "/settings: 1 pending, 1 failed\n  " + w.ns("a") + ": pending\n"
		if took := time.Since(began); code != 1 || took < limit || !strings.Contains(printed, want) {
			return fmt.Errorf("exit code %d after %v, want 1 after %v, and %q in\n%s", code, took, limit, want, printed)
		}
		return nil
	})
	w.edit(w.ns("a"), "settings", func(cm *corev1.ConfigMap) { cm.Finalizers = nil })
}

// TestOnceDeletes the copies of sources that are gone, and supersedes.
func TestOnceDeletes(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "a", "b")
	w.createSource(w.home, "settings")
	w.expectOnce(0, flags(), w.home+"/settings: 2 synced", "Changes: create 2.")
	w.delete(w.home, "settings")
	other := w.elsewhere("other")
	w.createSource(other, "second")
	w.waitYounger(w.live(other, "second"))
	w.createSource(w.home, "second")
	w.expectOnce(0, flags("--dry-run"), w.home+"/settings: 2 pending", "  "+w.ns("a")+": would delete", "  "+w.ns("b")+": would delete",
		other+"/second: 2 pending", "  "+w.ns("a")+": would create", "  "+w.ns("b")+": would create",
		"Changes that a run would make: create 2, delete 2.")
	w.expectOnce(0, flags(), w.home+"/second: 2 superseded", "  "+w.ns("a")+": superseded by "+other+"/second", "  "+w.ns("b")+": superseded by "+other+"/second",
		other+"/second: 2 synced", "Changes: create 2, delete 2.")
	w.absent("settings", w.ns("a"), w.ns("b"))
}

// TestOncePruneBlocked says how many copies stay.
func TestOncePruneBlocked(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	targets := w.createMany(12)
	source := w.createSource(w.home, "settings")
	w.expectOnce(0, flags(), w.home+"/settings: 12 synced", "Changes: create 12.")
	for _, dry := range []string{"--dry-run=true", "--dry-run=false"} {
		p := w.startExactly("--namespace-prefix="+w.ns("typo-"), "--once", dry)
		w.wait("the end of --once", p.Done())
		if !strings.Contains(p.Log(), "Not deleted because of --prune-limit: 12 copies out of scope of the flags.\n") || p.ExitCode() != 1 {
			t.Errorf("exit code %d, want 1 and the prune limit in\n%s", p.ExitCode(), p.Log())
		}
	}
	w.waitInSync(source, targets...)
	p := w.startExactly("--namespace-prefix="+w.ns("typo-"), "--once", "--dry-run", "--prune-limit=100%")
	w.wait("the end of --once", p.Done())
	if !strings.Contains(p.Log(), "Changes that a run would make: delete 12.\n") || p.ExitCode() != 0 {
		t.Errorf("exit code %d, want 0 and the deletions in\n%s", p.ExitCode(), p.Log())
	}
}

// TestOnceWaitsForLease of another process, up to --once-timeout, and gives it back.
func TestOnceWaitsForLease(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "a")
	src := w.createSource(w.home, "settings")
	me := w.newCandidate("pipeline")
	elects := w.elects("--once-timeout=3s")
	elects.Kubeconfig = me.kubeconfig
	holder, seconds, now := "somebody", int32(3600), metav1.NowMicro()
	lease, err := w.admin.CoordinationV1().Leases(w.home).Create(w.ctx, &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: leaseName},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: &holder, LeaseDurationSeconds: &seconds, AcquireTime: &now, RenewTime: &now},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	w.until("it names the holder of the Lease", func() error { // a slow machine may not have read it by then
		code, printed := w.once(elects)
		if code != 1 || !strings.Contains(printed, "--once-timeout=3s exceeded: nothing was compared: somebody holds the Lease") {
			return fmt.Errorf("exit code %d, want 1 and the holder of the Lease in\n%s", code, printed)
		}
		return nil
	})
	w.absent("settings", w.ns("a"))
	elects.Args = append(elects.Args, "--once-timeout=3m")
	elects.Args = append(elects.Args, "--once")
	p := w.startWith(elects)
	w.waitLog(p, "Standing by")
	none := ""
	lease.Spec.HolderIdentity = &none
	if _, err := w.admin.CoordinationV1().Leases(w.home).Update(w.ctx, lease, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	w.wait("the end of --once", p.Done())
	if printed := p.Log(); p.ExitCode() != 0 || !strings.Contains(printed, w.home+"/settings: 1 synced") || !strings.Contains(printed, "Changes: create 1.") {
		t.Errorf("exit code %d, want 0 and the copy in\n%s", p.ExitCode(), printed)
	}
	w.waitInSync(src, w.ns("a"))
	if lease, err = w.admin.CoordinationV1().Leases(w.home).Get(w.ctx, leaseName, metav1.GetOptions{}); err != nil || *lease.Spec.HolderIdentity != "" {
		t.Errorf("the lease was not given back: %v, %v", lease.Spec, err)
	}
}
