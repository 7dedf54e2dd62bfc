package install

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/mirror-controller/mirror-controller/e2e/manual"
	"github.com/mirror-controller/mirror-controller/e2e/suite"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// ofManual returns commands of the manual with the names of the world.
func ofManual(w *suite.World, commands string) string {
	return strings.NewReplacer("-l mirror=", "-l "+w.Label+"=", "-l 'mirror!=", "-l '"+w.Label+"!=",
		" mirror=true", " "+w.Label+"=true", " mirror-\n", " "+w.Label+"-\n",
		"-n platform", "-n "+w.Home, "=platform/", "="+w.Home+"/").Replace(commands)
}

// TestDocsCopies does with copies what the manual says: it asks for the events on the source, and for the owner of a
// copy. It keeps one as an ordinary ConfigMap, which the controller leaves alone, and then all of them.
func TestDocsCopies(t *testing.T) {
	t.Parallel()
	w := suite.New(t, "a", "b")
	a, b := w.NS("a"), w.NS("b")
	source := w.CreateSource(w.Home, "settings")
	p := w.Start()
	w.WaitInSync(source, a, b)
	w.WaitEvent(w.Home, "settings", "Mirrored")
	shows := func(commands, want string) {
		t.Helper()
		if out := w.Sh(commands); !strings.Contains(out, want) {
			t.Errorf("%s: no %q in %s", commands, want, out)
		}
	}
	shows(ofManual(w, manual.Commands(t, "deploy/docs/publish.md", "kubectl events")), "Mirrored")
	owner := manual.Commands(t, "deploy/docs/receive.md", "--show-managed-fields", "team-a", a)
	shows(owner, plan.SourceAnnotation+": "+w.Home+"/settings\n")
	shows(owner, "manager: mirror-controller\n")

	w.Sh(ofManual(w, manual.Commands(t, "deploy/docs/receive.md", "team-a mirror-\n", "team-a", a)))
	w.WaitEvent(w.Home, "settings", "Foreign", a)
	released := []*corev1.ConfigMap{w.Edit(a, "settings", suite.WithData(map[string]string{"key": "mine"}))}
	w.WaitInSync(w.Edit(w.Home, "settings", suite.WithData(map[string]string{"key": "two"})), b)
	w.Settle(a)
	w.Untouched(released...)
	w.Stop(p)

	w.Sh(ofManual(w, manual.Commands(t, "deploy/docs/operate.md", "mirror=copy mirror-\n")))
	released = append(released, w.Live(b, "settings"))
	for _, cm := range released {
		if cm.Labels[w.Label] != "" || cm.Annotations[plan.CopyAnnotation] != "" {
			t.Errorf("%s is still a copy: %v, %v", cm.Namespace, cm.Labels, cm.Annotations)
		}
	}
	w.Start()
	w.WaitEvent(w.Home, "settings", "Foreign", a, b)
	w.Untouched(released...)
}

// TestDocsFluxLabel publishes the source of the manual that Flux watches: its copies have the label by which Flux does
// so.
func TestDocsFluxLabel(t *testing.T) {
	t.Parallel()
	w := suite.New(t, "a")
	const page, label = "deploy/docs/gitops.md", "reconcile.fluxcd.io/watch"
	const flag = "--copy-label=" + label
	w.Start(manual.Inline(t, page, flag))
	source := manual.Find(t, page, "name: cluster-vars").Text
	w.Sh("kubectl apply -f - <<'END'\n" +
		strings.NewReplacer("namespace: platform", "namespace: "+w.Home, "mirror: ", w.Label+": ").Replace(source) + "END")
	w.WaitInSync(w.Live(w.Home, "cluster-vars"), w.NS("a"))
	if got := w.Live(w.NS("a"), "cluster-vars").Labels[label]; got != "Enabled" {
		t.Errorf("the copy has the label %s=%q, want Enabled", label, got)
	}
}

// TestDocsReadme creates the source that the README shows, and compares the copy with the one that it shows.
func TestDocsReadme(t *testing.T) {
	t.Parallel()
	w := suite.New(t, "a")
	w.Start()
	var src corev1.ConfigMap
	written := manual.Find(t, "README.md", `mirror: "true"`+"\ndata:").Text
	if err := yaml.UnmarshalStrict([]byte(written), &src); err != nil {
		t.Fatal(err)
	}
	w.WaitInSync(w.CreateSource(w.Home, src.Name, suite.WithData(src.Data)), w.NS("a"))
	made := w.Live(w.NS("a"), src.Name)
	shown, err := yaml.Marshal(corev1.ConfigMap{
		TypeMeta: src.TypeMeta, Data: made.Data, BinaryData: made.BinaryData, Immutable: made.Immutable,
		ObjectMeta: metav1.ObjectMeta{
			Namespace: made.Namespace, Name: made.Name, Labels: made.Labels, Annotations: made.Annotations},
	})
	if err != nil {
		t.Fatal(err)
	}
	names := strings.NewReplacer(": "+w.Instance+"\n", ": default\n",
		w.Home, "platform", w.Prefix, "team-", w.Label, "mirror")
	got := names.Replace(string(shown))
	want := manual.Find(t, "README.md", "mirror: copy\n").Text
	if got != want {
		t.Errorf("got the copy\n%swant that of the README\n%s", got, want)
	}
}

// TestDocsViewer binds the role of component viewer by the command of the manual. It permits nothing but reading. The
// tests of the plug-in show that it permits enough.
func TestDocsViewer(t *testing.T) {
	t.Parallel()
	w := suite.New(t)
	w.Sh("kubectl apply -f " + suite.Deployed("components/viewer/rbac.yaml"))
	verbs := w.Sh("kubectl get clusterrole mirror-controller-viewer -o jsonpath='{.rules[*].verbs[*]}'")
	for verb := range strings.FieldsSeq(verbs) {
		if verb != "get" && verb != "list" {
			t.Errorf("it permits to %s", verb)
		}
	}
	w.Sh(manual.Commands(t, "deploy/docs/kubectl-mirror.md", "--group=mirror-operators"))
	w.Until("the role is bound", func() error {
		ask := "kubectl auth can-i list configmaps -A --as=anybody --as-group=mirror-operators"
		return w.Cluster.Shell(w.Context(), ask).Run()
	})
}
