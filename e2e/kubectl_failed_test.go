package e2e

import (
	"strings"
	"testing"
)

// TestKubectlStatusOfRejected has the API server reject a copy: the controller's event tells that, to whom may read events.
func TestKubectlStatusOfRejected(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "bad", "good")
	bad, good := w.ns("bad"), w.ns("good")
	run, lift := refuseByQuota(w, bad)
	w.startWith(run)
	source := w.createSource(w.home, "settings")
	w.waitInSync(source, good)
	w.waitEvent(w.home, "settings", "WriteFailed")
	got := w.mirror("wait", "settings")
	lines := strings.Split(got.out, "\n")
	if want := "team-bad  failed  the API server rejects the copy, by the event on the source: team-bad: "; got.code != 1 || len(lines) != 3 ||
		lines[0] != "platform/settings: OutOfSync, 1 synced, 1 failed" ||
		!strings.HasPrefix(lines[2], want) || !strings.Contains(lines[2], "exceeded quota: no-more") {
		t.Errorf("got exit code %d and\n%s\nwant 1, and a line with %q", got.code, got.out, want)
	}
	for of, state := range map[string]string{
		bad + "/settings":    "There is no ConfigMap team-bad/settings: a copy of platform/settings is to be created, but the API server rejects the copy",
		bad:                  "platform/settings  failed  the API server rejects the copy",
		w.home + "/settings": "team-bad  failed  the API server rejects the copy",
	} {
		if got := w.mirror("explain", of); !strings.Contains(got.out, state) || !strings.Contains(got.out, "exceeded quota: no-more") {
			t.Errorf("explain %s: got\n%s\nwant in it %q and the quota", of, got.out, state)
		}
	}
	got = w.mirrorAs(w.reader("reader", mayList("", "configmaps", "namespaces")), append([]string{"status"}, w.args()...)...)
	w.expect(got, 1, `
NAMESPACE  NAME  STATUS  TARGETS  SYNCED  PENDING  FOREIGN  SUPERSEDED  FAILED  OUT-OF-SCOPE  EXPIRING
platform  settings  OutOfSync  2  1  1  0  0  0  0  0`)
	if want := "Not checked: whether the API server rejects pending copies, because you may not list events.events.k8s.io"; !strings.HasSuffix(got.err, want) {
		t.Errorf("stderr is %q, want a line %q", got.err, want)
	}
	lift()
	w.waitInSync(source, bad)
	w.expect(w.mirror("wait", "settings"), 0, "platform/settings: InSync, 2 synced")
}
