package plugin

import (
	"fmt"
	"strings"
	"syscall"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/mirror-controller/mirror-controller/e2e/faultproxy"
	"github.com/mirror-controller/mirror-controller/e2e/suite"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// purger is what purge takes.
var purger = []rbacv1.PolicyRule{
	may("", "configmaps", "list", "delete"), mayList("", "namespaces"),
	mayList("rbac.authorization.k8s.io", "clusterrolebindings"), may("coordination.k8s.io", "leases", "get"),
	mayList("apps", "deployments"),
}

// TestKubectlPurge deletes the copies of a source, and then of the instance, when the controller has stopped: nothing else,
// such as copies of a source of the same name, and nothing that has changed since the user saw the list.
func TestKubectlPurge(t *testing.T) {
	t.Parallel()
	w := suite.New(t, "a", "b")
	a, b := w.NS("a"), w.NS("b")
	settings, other := w.CreateSource(w.Home, "settings"), w.CreateSource(w.Home, "other")
	p := w.Start()
	w.WaitInSync(settings, a, b)
	w.WaitInSync(other, a, b)
	w.Stop(p)
	foreign := w.Create(a, "foreign", suite.WithLabel(w.Label, plan.CopyValue))
	another := w.Create(b, "foreign", append(w.MarksOfCopy(w.Home, b, "foreign"), suite.WithAnnotation(plan.InstanceAnnotation, "another"))...)

	if got := kubectlMirror(w, "purge"); got.code != 2 || !strings.HasSuffix(got.err, "stdin is not a terminal, so nobody can be asked: give --yes") {
		t.Errorf("got exit code %d and stderr %q, want 2", got.code, got.err)
	}
	expectError(w, kubectlMirror(w, "purge", "-n", a, "--yes"), "name a source, or leave it out to delete the copies of the whole instance")
	expectError(w, mirrorAs(w, w.Cluster.AdminKubeconfig(), "purge", "--yes"), "choose one with --controller: ")
	kubeconfig := newPerson(w, "purger", purger...)
	of := func(source string, names ...string) string {
		text := "COPY  SOURCE\n"
		for _, name := range names {
			text += "team-" + name + "  platform/" + name[2:] + "\n"
		}
		return fmt.Sprintf("%sTo be deleted: %d copies of %s, instance %s.", text, len(names), source, w.Instance)
	}
	expect(w, byController(w, kubeconfig, "purge", "--dry-run"), 0, strings.ReplaceAll(shown(t, "purge --dry-run"), "instance default", "instance "+w.Instance))
	theirs := w.Create(w.Elsewhere("other"), "settings", w.MarksOfCopy(a, "other-"+w.Home, "settings")...)
	d := converse(w, kubeconfig, "purge", w.Home+"/settings")
	d.await(question)
	expect(w, d.typed(""), 1, of("platform/settings", "a/settings", "b/settings"))
	w.WaitInSync(settings, a, b)
	w.WaitInSync(other, a, b)

	d = converse(w, kubeconfig, "purge", w.Home+"/settings")
	d.await(question)
	released := w.Edit(b, "settings", suite.WithoutAnnotation(plan.CopyAnnotation))
	got := d.typed("y")
	if want := "Deleted 1 of 2 copies; changed since they were listed, and left alone: 1. Run the command again."; got.code != 1 ||
		!strings.HasSuffix(got.err, want) {
		t.Errorf("got exit code %d and %q, want 1 and %q", got.code, got.err, want)
	}
	w.Absent("settings", a)
	w.Untouched(theirs)
	w.Delete(theirs.Namespace, "settings")
	expect(w, byController(w, kubeconfig, "purge", w.Home+"/settings", "--yes"), 0, "Nothing to delete: there is no copy of platform/settings.")

	got = byController(w, kubeconfig, "purge", "--yes")
	expect(w, got, 0, of("platform/other", "a/other", "b/other"))
	if want := "Deleted 2 of 2 copies."; !strings.HasSuffix(got.err, want) {
		t.Errorf("stderr is %q, want a line %q", got.err, want)
	}
	w.Absent("other", a, b)
	w.Untouched(foreign)
	w.Untouched(another)
	w.Untouched(released)
	w.Untouched(settings)
	w.Untouched(other)
}

// TestKubectlPurgeInterrupted interrupts a purge while deletions are in flight, and repeats it.
func TestKubectlPurgeInterrupted(t *testing.T) {
	t.Parallel()
	w := suite.New(t, "a")
	a := w.NS("a")
	var names []string
	for i := range 60 {
		names = append(names, fmt.Sprintf("copy-%02d", i))
		w.Create(a, names[i], w.MarksOfCopy(w.Home, a, names[i])...)
	}
	slow := suite.NewProxiedAs(t, w, newReader(w, "purger", purger...))
	held := slow.Proxy.Inject(faultproxy.Rule{Verbs: []string{"delete"}, Skip: 5, Fault: faultproxy.Fault{Kind: faultproxy.Hold}})
	d := converse(w, slow.Proxy.Kubeconfig(), "purge", "--yes")
	slow.Await("all places are taken", func() bool { return held.Held() == 32 })
	if err := d.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	d.end()
	if w.Live(a, "copy-59") == nil {
		t.Error("the last copy is gone, too")
	}
	if got := kubectlMirror(w, "purge", "--yes", "-o", "name"); got.code != 0 || !strings.Contains(got.out, "configmap/copy-59 -n team-a") {
		t.Errorf("got exit code %d, %q and\n%s\nwant 0, and the last name", got.code, got.err, got.out)
	}
	w.Absent("copy-59", a)
}

// TestKubectlPurgeClosedPipe has the reader of the list go away: the program ends by the signal, says nothing, and deletes
// nothing.
func TestKubectlPurgeClosedPipe(t *testing.T) {
	t.Parallel()
	w := suite.New(t, "a")
	there := w.Create(w.NS("a"), "settings", w.MarksOfCopy(w.Home, w.NS("a"), "settings")...)
	cmd := w.Cluster.Command(w.Context(), plugin(), append(w.Args(), "purge", "--yes", "--kubeconfig="+w.Cluster.AdminKubeconfig())...)
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
	w.Untouched(there)
}
