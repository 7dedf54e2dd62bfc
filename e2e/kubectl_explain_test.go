package e2e

import (
	"strings"
	"testing"

	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// TestKubectlExplain has the verdicts on a namespace and a ConfigMap as they change, and hands two ConfigMaps over by the commands
// that explain prints.
func TestKubectlExplain(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "a", "b", "c")
	a, b, c := w.ns("a"), w.ns("b"), w.ns("c")
	source := w.createSource(w.home, "settings", withData(map[string]string{"key": "public"}))
	mine := w.create(b, "settings", withData(map[string]string{"key": "secret"}))
	w.create(c, "settings", setImmutable)
	kubeconfig := w.reader("reader", mayList("", "configmaps", "namespaces"), may("", "configmaps", "get"))
	verdict := func(want string, args ...string) string {
		t.Helper()
		got := w.byFlags(kubeconfig, append([]string{"explain"}, args...)...)
		if first, _, _ := strings.Cut(got.out, "\n"); got.code != 0 || first != want {
			t.Errorf("%q: got exit code %d and %q, want 0 and %q\nstderr: %s", args, got.code, first, want, got.err)
		}
		return got.out
	}
	verdict("There is no ConfigMap team-a/settings: a copy of platform/settings is to be created.", a+"/settings")
	w.start()
	w.waitInSync(source, a)
	verdict("ConfigMap team-a/settings is a copy of platform/settings, and in sync.", "configmap/settings", "-n", a)
	verdict("ConfigMap platform/settings is a source: 1 synced, 2 foreign.", "settings", "-n", w.home)
	verdict("ConfigMap platform/other is neither a source nor a copy.", w.create(w.home, "other").Namespace+"/other")

	handOver := func(namespace, warning string) {
		t.Helper()
		of := w.anonymous(namespace)
		command := "kubectl annotate -n " + of + " configmap settings mirror-controller.github.io/adopt=true"
		out := verdict("ConfigMap "+of+"/settings is foreign, so platform/settings is not copied there. Delete or rename it, or hand it over ("+
			warning+"): "+command, namespace+"/settings")
		if !strings.Contains(out, "+  key: public\n") {
			t.Errorf("got\n%s\nwant a diff", out)
		}
		w.untouched(mine)
		if out, err := w.cluster.Shell(w.ctx, strings.Replace(command, of, namespace, 1)).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v, %s", command, err, out)
		}
		w.waitInSync(source, namespace)
	}
	handOver(c, "this REPLACES ITS DATA; it is immutable, so it is deleted and created again, without the labels and annotations of others")
	handOver(b, "this REPLACES ITS DATA")

	verdict("Namespace team-a is a target.", "namespace/"+a)
	w.labelNamespace(a, w.label, plan.OptOutValue)
	w.waitGone("settings", a)
	if got, want := verdict("Namespace team-a is no target.", "ns/"+a), strings.TrimSpace(shown(t, "explain namespace/team-a")); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	verdict("There is no ConfigMap team-a/settings, and no source wants a copy there.", a+"/settings")
	w.expectError(w.mirror("explain"), "explain has 0 arguments, must be: kubectl mirror explain [NAMESPACE/]NAME | namespace/NAME")
}
