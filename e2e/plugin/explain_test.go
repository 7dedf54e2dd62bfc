package plugin

import (
	"strings"
	"testing"

	"github.com/mirror-controller/mirror-controller/e2e/suite"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// TestKubectlExplain has the verdicts on a namespace and a ConfigMap as they change, and hands two ConfigMaps over by the
// commands that explain prints.
func TestKubectlExplain(t *testing.T) {
	t.Parallel()
	w := suite.New(t, "a", "b", "c")
	a, b, c := w.NS("a"), w.NS("b"), w.NS("c")
	source := w.CreateSource(w.Home, "settings", suite.WithData(map[string]string{"key": "public"}))
	mine := w.Create(b, "settings", suite.WithData(map[string]string{"key": "secret"}))
	w.Create(c, "settings", suite.SetImmutable)
	kubeconfig := newReader(w, "reader", mayList("", "configmaps", "namespaces"), may("", "configmaps", "get"))
	verdict := func(want string, args ...string) string {
		t.Helper()
		got := byFlags(w, kubeconfig, append([]string{"explain"}, args...)...)
		if first, _, _ := strings.Cut(got.out, "\n"); got.code != 0 || first != want {
			t.Errorf("%q: got exit code %d and %q, want 0 and %q\nstderr: %s", args, got.code, first, want, got.err)
		}
		return got.out
	}
	verdict("There is no ConfigMap team-a/settings: a copy of platform/settings is to be created.", a+"/settings")
	w.Start()
	w.WaitInSync(source, a)
	verdict("ConfigMap team-a/settings is a copy of platform/settings, and in sync.", "configmap/settings", "-n", a)
	verdict("ConfigMap platform/settings is a source: 1 synced, 2 foreign.", "settings", "-n", w.Home)
	verdict("ConfigMap platform/other is neither a source nor a copy.", w.Create(w.Home, "other").Namespace+"/other")

	handOver := func(namespace, warning string) {
		t.Helper()
		of := anonymous(w, namespace)
		command := "kubectl annotate -n " + of + " configmap settings mirror-controller.github.io/adopt=true"
		out := verdict("ConfigMap "+of+"/settings is foreign, so platform/settings is not copied there. Delete or rename it, or hand it over ("+
			warning+"): "+command, namespace+"/settings")
		if !strings.Contains(out, "+  key: public\n") {
			t.Errorf("got\n%s\nwant a diff", out)
		}
		w.Untouched(mine)
		if out, err := w.Cluster.Shell(w.Context(), strings.Replace(command, of, namespace, 1)).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v, %s", command, err, out)
		}
		w.WaitInSync(source, namespace)
	}
	handOver(c, "this REPLACES ITS DATA; it is immutable, so it is deleted and created again, without the labels and annotations of others")
	handOver(b, "this REPLACES ITS DATA")

	verdict("Namespace team-a is a target.", "namespace/"+a)
	w.LabelNamespace(a, w.Label, plan.OptOutValue)
	w.WaitGone("settings", a)
	if got, want := verdict("Namespace team-a is no target.", "ns/"+a), strings.TrimSpace(shown(t, "explain namespace/team-a")); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	verdict("There is no ConfigMap team-a/settings, and no source wants a copy there.", a+"/settings")
	verdict("There is no ConfigMap team-a/cm, and no source wants a copy there.", "cm", "-n", a)
	expect(w, byFlags(w, kubeconfig, "explain", "configmaps/settings", "-n", a, "-o", "name"), 0, "configmap/settings -n team-a")
	expect(w, byFlags(w, kubeconfig, "explain", "namespaces/"+a, "-o", "name"), 0, "namespace/team-a")
	expectError(w, kubectlMirror(w, "explain"), "explain has 0 arguments, must be: kubectl mirror explain [NAMESPACE/]NAME | namespace/NAME")
}
