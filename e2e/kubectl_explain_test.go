package e2e

import (
	"strings"
	"testing"

	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// TestKubectlExplain has the verdicts on a namespace and a ConfigMap as they change, and as what does.
func TestKubectlExplain(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "a", "b")
	a, b := w.ns("a"), w.ns("b")
	source := w.createSource(w.home, "settings")
	mine := w.create(b, "settings")
	kubeconfig := w.reader("reader", mayList("", "configmaps", "namespaces"))
	verdict := func(want string, args ...string) string {
		t.Helper()
		got := w.mirrorAs(kubeconfig, append(append([]string{"explain"}, args...), w.args()...)...)
		if first, _, _ := strings.Cut(got.out, "\n"); got.code != 0 || first != want {
			t.Errorf("%q: got exit code %d and %q, want 0 and %q\nstderr: %s", args, got.code, first, want, got.err)
		}
		return got.out
	}
	verdict("There is no ConfigMap team-a/settings: a copy of platform/settings is to be created.", a+"/settings")
	w.start()
	w.waitInSync(source, a)
	verdict("ConfigMap team-a/settings is a copy of platform/settings, and in sync.", a+"/settings")
	verdict("ConfigMap platform/settings is a source: 1 synced, 1 foreign.", "settings", "-n", w.home)
	verdict("ConfigMap team-b/settings is foreign, so platform/settings is not copied there. Delete or rename it, or hand it over "+
		"(this REPLACES ITS DATA): kubectl mirror adopt team-b/settings", b+"/settings")
	w.untouched(mine)
	verdict("Namespace team-a is a target.", a)
	verdict("ConfigMap platform/other is neither a source nor a copy.", w.create(w.home, "other").Namespace+"/other")

	w.labelNamespace(a, w.label, plan.OptOutValue)
	w.waitGone("settings", a)
	if got, want := verdict("Namespace team-a is no target.", a), strings.TrimSpace(shown(t, "explain team-a")); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	verdict("There is no ConfigMap team-a/settings, and no source wants a copy there.", a+"/settings")
	w.expectError(w.mirror("explain"), "explain needs one argument: kubectl mirror explain NAMESPACE/NAME")
}
