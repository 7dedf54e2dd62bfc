package e2e

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// TestKubectlAdopt hands ConfigMaps over: without a controller, against the user's will, behind the user's back, as a user with
// the permissions for it only, and one that is immutable.
func TestKubectlAdopt(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "a", "b", "c")
	a, b, c := w.ns("a"), w.ns("b"), w.ns("c")
	source := w.createSource(w.home, "settings", withData(map[string]string{"key": "public", "new": "1", "same": "as before"}))
	theirs := withData(map[string]string{"key": "secret", "mine": "12345", "same": "as before"})
	mine := w.create(a, "settings", theirs)
	w.create(b, "settings", theirs)
	w.create(c, "settings", theirs, setImmutable)
	const keys = `
KEY  CHANGE  BYTES  BYTES THEN
key  replaced  6  6
mine  removed  5  0
new  added  0  1
same  unchanged  9  9`

	got := w.mirror("adopt", a+"/settings")
	w.expect(got, 2, "ConfigMap team-a/settings becomes a copy of platform/settings."+keys)
	if !strings.HasSuffix(got.err, "stdin is not a terminal, so nobody can be asked: give --yes") {
		t.Errorf("stderr is %q", got.err)
	}
	got = w.mirror("adopt", "settings", "-n", b, "--yes", "--timeout=1s")
	w.expect(got, 1, "ConfigMap team-b/settings becomes a copy of platform/settings."+keys)
	if want := "Timed out after 1s: ConfigMap team-b/settings is handed over, and no controller has taken it yet: does one run? " +
		"To take it back: kubectl -n team-b annotate configmap settings mirror-controller.github.io/adopt-"; !strings.HasSuffix(got.err, want) {
		t.Errorf("stderr is %q, want a line %q", got.err, want)
	}
	if label := w.live(b, "settings").Labels[w.label]; label != plan.CopyValue {
		t.Errorf("the label is %q: a controller would find the ConfigMap only when it looks again", label)
	}
	w.start()
	w.waitInSync(source, b)

	d := w.converse(w.cluster.AdminKubeconfig(), "adopt", a+"/settings")
	d.await("Replace the data of ConfigMap " + a + "/settings?" + question)
	w.expect(d.typed("no"), 1, "ConfigMap team-a/settings becomes a copy of platform/settings."+keys)
	w.untouched(mine)

	d = w.converse(w.cluster.AdminKubeconfig(), "adopt", a+"/settings")
	d.await(question)
	mine = w.edit(a, "settings", withKey("mine", "newer"))
	got = d.typed("y")
	if want := "kubectl mirror: ConfigMap team-a/settings was changed meanwhile, and is not handed over: run the command again"; got.code != 2 ||
		!strings.HasSuffix(got.err, want) {
		t.Errorf("got exit code %d and %q, want 2 and %q", got.code, got.err, want)
	}
	w.untouched(mine)

	kubeconfig := w.person("adopter", may("", "configmaps", "list", "get", "patch"), may("", "namespaces", "list"),
		mayList("rbac.authorization.k8s.io", "clusterrolebindings"))
	d = w.converse(kubeconfig, "adopt", a+"/settings", "--diff")
	d.await(question)
	got = d.typed("y")
	if !strings.Contains(got.out, "-  key: secret\n") || !strings.Contains(got.out, "+  key: public\n") {
		t.Errorf("got\n%s\nwant a diff", got.out)
	}
	if want := "ConfigMap team-a/settings is a copy of platform/settings now."; got.code != 0 || !strings.HasSuffix(got.err, want) {
		t.Errorf("got exit code %d and %q, want 0 and %q", got.code, got.err, want)
	}
	w.waitInSync(source, a)

	w.expect(w.mirror("adopt", c+"/settings", "--yes"), 0, shown(t, "adopt team-c/settings --yes"))
	w.waitInSync(source, c)
	w.expectError(w.mirrorAs(w.reader("reader", mayList("", "configmaps", "namespaces")),
		append([]string{"adopt", a + "/settings", "--yes"}, w.args()...)...), "get ConfigMap ")
}

// TestKubectlAdoptRefuses has what cannot be adopted refused before anything is written.
func TestKubectlAdoptRefuses(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "a", "out")
	a, out := w.ns("a"), w.ns("out")
	w.labelNamespace(out, w.label, plan.OptOutValue)
	for _, name := range []string{"held", "source", "foreign", "copied", "everywhere"} {
		w.createSource(w.home, name)
	}
	w.createSource(w.home, "narrow", withAnnotation(plan.PrefixAnnotation, out))
	hold := func(cm *corev1.ConfigMap) { cm.Finalizers = []string{"example.com/hold"} }
	for _, test := range []struct {
		there *corev1.ConfigMap
		want  string
	}{
		{w.create(a, "held", hold), "team-a/held has the finalizer example.com/hold, and cannot be handed over with one"},
		{w.create(out, "everywhere"), `team-out/everywhere is in no target: this does not hold: "It has not opted out by the label mirror=false." ` +
			`(label mirror="false")`},
		{w.create(w.elsewhere("other"), "everywhere"), `other-platform/everywhere is in no target: this does not hold: ` +
			`"Its name begins with a --namespace-prefix." (--namespace-prefix=team-)`},
		{w.create(a, "unknown"), "team-a/unknown has the name of no copy: no source has the name unknown and the label mirror=true"},
		{w.create(a, "narrow"), "team-a/narrow has the name of no copy: platform/narrow does not want one there: this does not hold: " +
			`"The source's annotation mirror-controller.github.io/namespace-prefix allows it." (mirror-controller.github.io/namespace-prefix="team-out")`},
		{w.createSource(a, "source"), "team-a/source is a source itself, superseded in its namespace by platform/source: a source is never overwritten. " +
			"To withdraw it: kubectl -n team-a label configmap source mirror-"},
		{w.create(a, "foreign", append(w.marksOfCopy(w.home, a, "foreign"), withAnnotation(plan.InstanceAnnotation, "another"))...),
			"team-a/foreign is a copy of another instance, another: its controller keeps it"},
		{w.create(a, "copied", w.marksOfCopy(w.home, a, "copied")...), "team-a/copied is already a copy of platform/copied"},
	} {
		got := w.mirror("adopt", test.there.Namespace+"/"+test.there.Name, "--yes")
		if want := controllerSettings + "\nRefused: ConfigMap " + test.want; got.code != 1 || got.out != "" || got.err != want {
			t.Errorf("got exit code %d, %q and\n%s\nwant 1 and\n%s", got.code, got.out, got.err, want)
		}
		w.untouched(test.there)
	}
	w.edit(a, "held", func(cm *corev1.ConfigMap) { cm.Finalizers = nil })
	w.expectError(w.mirror("adopt", a+"/nothing", "--yes"), "there is no ConfigMap team-a/nothing to hand over")
	w.expectError(w.mirror("adopt", "held", "--yes"), `"held": must be NAMESPACE/NAME, or a name beside --namespace`)
	w.expectError(w.mirror("adopt"), "adopt needs one argument: kubectl mirror adopt NAMESPACE/NAME")
}
