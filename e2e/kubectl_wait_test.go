package e2e

import (
	"bufio"
	"strings"
	"syscall"
	"testing"
)

// TestKubectlWait waits while there is no controller, for one that comes, and for what is blocked.
func TestKubectlWait(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "a", "b")
	a, b := w.ns("a"), w.ns("b")
	w.createSource(w.home, "settings")
	settings := w.home + "/settings"
	got := w.mirror("wait", settings, "--timeout=3s")
	for strings.Contains(got.err, "over before the cluster was read") { // on a slow machine
		got = w.mirror("wait", settings, "--timeout=3s")
	}
	w.expect(got, 1, shown(t, "wait platform/settings --timeout=3s"))
	if !strings.Contains(got.err, "platform/settings: 0 of 2 in sync\nTimed out after 3s") {
		t.Errorf("stderr is %q", got.err)
	}
	done := make(chan answer)
	kubeconfig := w.reader("reader", mayList("", "configmaps", "namespaces"))
	go func() { done <- w.byFlags(kubeconfig, "wait", settings) }()
	w.start()
	w.expect(<-done, 0, "platform/settings: InSync, 2 synced")

	mine := w.create(a, "other")
	other := w.createSource(w.home, "other")
	const blocked = `
platform/other: OutOfSync, 1 synced, 1 foreign
TARGET  STATE  REASON
team-a  foreign  a foreign ConfigMap of this name is there`
	w.expect(w.byFlags(kubeconfig, "wait", "other", "-n", w.home, "--ignore-blocked"), 0, blocked)
	if err := w.inSync(other, b); err != nil {
		t.Error(err)
	}
	w.expect(w.byFlags(kubeconfig, "wait", "other", "-n", w.home), 1, blocked)
	w.untouched(mine)
	w.expectError(w.byFlags(kubeconfig, "wait", "nothing", "-n", w.home), "no source platform/nothing")
	w.expectError(w.byFlags(kubeconfig, "wait", settings, "--timeout=0s"), "--timeout=0s: must be more than 0")
}

// TestKubectlStatusWatch has what changes printed again, until the user interrupts.
func TestKubectlStatusWatch(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "a")
	source := w.createSource(w.home, "settings")
	cmd := w.cluster.Command(w.ctx, plugin(), append(w.args(), "status", w.home+"/settings", "--watch", "--kubeconfig="+w.cluster.AdminKubeconfig())...)
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
			if w.anonymous(lines.Text()) == want {
				return
			}
		}
		t.Fatalf("the output ended without %q", want)
	}
	await("team-a  pending  there is no copy yet")
	w.start()
	w.waitInSync(source, w.ns("a"))
	await("platform/settings: InSync, 1 synced")
	if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("it ended with %v, want exit code 0", err)
	}
}
