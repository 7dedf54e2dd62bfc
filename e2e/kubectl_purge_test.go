package e2e

import (
	"fmt"
	"strings"
	"syscall"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/mirror-controller/mirror-controller/e2e/faultproxy"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// purger is what purge takes.
var purger = []rbacv1.PolicyRule{
	may("", "configmaps", "list", "delete"), mayList("", "namespaces", "pods"),
	mayList("rbac.authorization.k8s.io", "clusterrolebindings"), may("coordination.k8s.io", "leases", "get"),
	mayList("admissionregistration.k8s.io", "validatingadmissionpolicybindings"),
}

// TestKubectlPurge deletes the copies of a source, and then of the instance, when the controller has stopped: nothing else, such as
// copies of a source of the same name, and nothing that has changed since the user saw the list.
func TestKubectlPurge(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "a", "b")
	a, b := w.ns("a"), w.ns("b")
	settings, other := w.createSource(w.home, "settings"), w.createSource(w.home, "other")
	p := w.start()
	w.waitInSync(settings, a, b)
	w.waitInSync(other, a, b)
	w.stop(p)
	foreign := w.create(a, "foreign", withLabel(w.label, plan.CopyValue))
	another := w.create(b, "foreign", append(w.marksOfCopy(w.home, b, "foreign"), withAnnotation(plan.InstanceAnnotation, "another"))...)

	if got := w.mirror("purge"); got.code != 2 || !strings.HasSuffix(got.err, "stdin is not a terminal, so nobody can be asked: give --yes") {
		t.Errorf("got exit code %d and stderr %q, want 2", got.code, got.err)
	}
	w.expectError(w.mirror("purge", "-n", a, "--yes"), "name a source, or leave it out to delete the copies of the whole instance")
	w.expectError(w.mirrorAs(w.cluster.AdminKubeconfig(), "purge", "--yes"), "choose one with --controller: ")
	kubeconfig := w.person("purger", purger...)
	of := func(source string, names ...string) string {
		text := "COPY  SOURCE\n"
		for _, name := range names {
			text += "team-" + name + "  platform/" + name[2:] + "\n"
		}
		return fmt.Sprintf("%sTo be deleted: %d copies of %s, instance %s.", text, len(names), source, w.instance)
	}
	w.expect(w.byController(kubeconfig, "purge", "--dry-run"), 0, strings.ReplaceAll(shown(t, "purge --dry-run"), "instance default", "instance "+w.instance))
	theirs := w.create(w.elsewhere("other"), "settings", w.marksOfCopy(a, "other-"+w.home, "settings")...)
	d := w.converse(kubeconfig, "purge", w.home+"/settings")
	d.await(question)
	w.expect(d.typed(""), 1, of("platform/settings", "a/settings", "b/settings"))
	w.waitInSync(settings, a, b)
	w.waitInSync(other, a, b)

	d = w.converse(kubeconfig, "purge", w.home+"/settings")
	d.await(question)
	released := w.edit(b, "settings", withoutAnnotation(plan.CopyAnnotation))
	got := d.typed("y")
	if want := "Deleted 1 of 2 copies; changed since they were listed, and left alone: 1. Run the command again."; got.code != 1 ||
		!strings.HasSuffix(got.err, want) {
		t.Errorf("got exit code %d and %q, want 1 and %q", got.code, got.err, want)
	}
	w.absent("settings", a)
	w.untouched(theirs)
	w.delete(theirs.Namespace, "settings")
	w.expect(w.byController(kubeconfig, "purge", w.home+"/settings", "--yes"), 0, "Nothing to delete: there is no copy of platform/settings.")

	got = w.byController(kubeconfig, "purge", "--yes")
	w.expect(got, 0, of("platform/other", "a/other", "b/other"))
	if want := "Deleted 2 of 2 copies."; !strings.HasSuffix(got.err, want) {
		t.Errorf("stderr is %q, want a line %q", got.err, want)
	}
	w.absent("other", a, b)
	w.untouched(foreign)
	w.untouched(another)
	w.untouched(released)
	w.untouched(settings)
	w.untouched(other)
}

// TestKubectlPurgeInterrupted interrupts a purge while deletions are in flight, which count, and repeats it.
func TestKubectlPurgeInterrupted(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "a")
	a := w.ns("a")
	var names []string
	for i := range 60 {
		names = append(names, fmt.Sprintf("copy-%02d", i))
		w.create(a, names[i], w.marksOfCopy(w.home, a, names[i])...)
	}
	slow := newProxiedAs(t, w, w.reader("purger", purger...))
	held := slow.proxy.Inject(faultproxy.Rule{Verbs: []string{"delete"}, Skip: 5, Fault: faultproxy.Fault{Kind: faultproxy.Hold}})
	d := w.converse(slow.proxy.Kubeconfig(), "purge", "--yes")
	slow.await("all places are taken", func() bool { return held.Held() == 32 })
	if err := d.cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	d.await("Interrupted: waiting for the deletions in flight.\n")
	held.Stop()
	got := d.end()
	left := 0
	for _, name := range names {
		if w.live(a, name) != nil {
			left++
		}
	}
	want := fmt.Sprintf("Interrupted. Deleted %d of 60 copies; left: %d. To go on, run the command again.", 60-left, left)
	if got.code != 1 || !strings.HasSuffix(got.err, want) || left == 0 || left > 60-5-32 {
		t.Errorf("got exit code %d and %q, %d copies left, want 1, %q, and some", got.code, got.err, left, want)
	}
	got = w.mirror("purge", "--yes", "-o", "name")
	if want := fmt.Sprintf("Deleted %d of %d copies.", left, left); got.code != 0 || !strings.HasSuffix(got.err, want) ||
		strings.Count(got.out, " -n team-a") != left {
		t.Errorf("got exit code %d, %q and\n%s\nwant 0, %q and the names", got.code, got.err, got.out, want)
	}
	w.absent("copy-59", a)
}

// TestKubectlPurgeClosedPipe has the reader of the list go away: the program ends by the signal, says nothing, and deletes nothing.
func TestKubectlPurgeClosedPipe(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "a")
	there := w.create(w.ns("a"), "settings", w.marksOfCopy(w.home, w.ns("a"), "settings")...)
	cmd := w.cluster.Command(w.ctx, plugin(), append(w.args(), "purge", "--yes", "--kubeconfig="+w.cluster.AdminKubeconfig())...)
	var problems strings.Builder
	cmd.Stderr = &problems
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = out.Close()
	}
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	err = cmd.Wait()
	if status := cmd.ProcessState.Sys().(syscall.WaitStatus); status.Signal() != syscall.SIGPIPE || problems.String() != "Settings: flags\n" {
		t.Errorf("got %v and %q, want SIGPIPE and no more than the settings", err, problems.String())
	}
	w.untouched(there)
}
