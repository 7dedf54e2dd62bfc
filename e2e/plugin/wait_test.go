package plugin

import (
	"bufio"
	"strings"
	"syscall"
	"testing"

	"github.com/mirror-controller/mirror-controller/e2e/suite"
)

// TestKubectlWait waits while there is no controller, for one that comes, and for what is blocked.
func TestKubectlWait(t *testing.T) {
	t.Parallel()
	w := suite.New(t, "a", "b")
	a, b := w.NS("a"), w.NS("b")
	w.CreateSource(w.Home, "settings")
	settings := w.Home + "/settings"
	got := kubectlMirror(w, "wait", settings, "--timeout=3s")
	for strings.Contains(got.err, "over before the cluster was read") { // on a slow machine
		got = kubectlMirror(w, "wait", settings, "--timeout=3s")
	}
	expect(w, got, 1, shown(t, "wait platform/settings --timeout=3s"))
	if !strings.Contains(got.err, "platform/settings: 0 of 2 in sync\nTimed out after 3s") {
		t.Errorf("stderr is %q", got.err)
	}
	done := make(chan answer)
	kubeconfig := newReader(w, "reader", mayList("", "configmaps", "namespaces"))
	go func() { done <- byFlags(w, kubeconfig, "wait", settings) }()
	w.Start()
	expect(w, <-done, 0, "platform/settings: InSync, 2 synced")

	mine := w.Create(a, "other")
	other := w.CreateSource(w.Home, "other")
	const blocked = `
platform/other: OutOfSync, 1 synced, 1 foreign
TARGET  STATE  REASON
team-a  foreign  a foreign ConfigMap of this name is there`
	expect(w, byFlags(w, kubeconfig, "wait", "other", "-n", w.Home, "--ignore-blocked"), 0, blocked)
	if err := w.InSync(other, b); err != nil {
		t.Error(err)
	}
	expect(w, byFlags(w, kubeconfig, "wait", "other", "-n", w.Home), 1, blocked)
	w.Untouched(mine)
	expectError(w, byFlags(w, kubeconfig, "wait", "nothing", "-n", w.Home), "no source platform/nothing")
	expectError(w, byFlags(w, kubeconfig, "wait", settings, "--timeout=0s"), "--timeout=0s: must be more than 0")
}

// TestKubectlStatusWatch has what changes printed again, until a signal ends it. It is not SIGINT, which a program ignores that a
// shell has started in the background, as it may have the tests.
func TestKubectlStatusWatch(t *testing.T) {
	t.Parallel()
	w := suite.New(t, "a")
	source := w.CreateSource(w.Home, "settings")
	cmd := w.Cluster.Command(w.Context(), plugin(), append(w.Args(), "status", w.Home+"/settings", "--watch", "--kubeconfig="+w.Cluster.AdminKubeconfig())...)
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	await := func(want string) {
		t.Helper()
		for lines.Scan() {
			if anonymous(w, lines.Text()) == want {
				return
			}
		}
		t.Fatalf("the output ended without %q", want)
	}
	await("team-a  pending  there is no copy yet")
	w.Start()
	w.WaitInSync(source, w.NS("a"))
	await("platform/settings: InSync, 1 synced")
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	if status := cmd.ProcessState.Sys().(syscall.WaitStatus); status.Signal() != syscall.SIGTERM {
		t.Errorf("it ended with %v, want SIGTERM", cmd.ProcessState)
	}
}
