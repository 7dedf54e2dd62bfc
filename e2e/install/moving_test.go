package install

import (
	"strings"
	"testing"

	"github.com/mirror-controller/mirror-controller/e2e/manual"
	"github.com/mirror-controller/mirror-controller/e2e/suite"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// otherTool is a tool that copies ConfigMaps. Its file in testdata has a source in HOME, and copies as the tool leaves
// them: read in the code of emberstack/kubernetes-reflector, mittwald/kubernetes-replicator and kyverno/kyverno.
type otherTool struct {
	mark  string   // as the manual writes it
	marks []string // annotations that the commands of the manual take away
}

var otherTools = map[string]otherTool{
	"reflector": {`annotations.reflector\.v1\.k8s\.emberstack\.com/reflects`,
		[]string{"reflector.v1.k8s.emberstack.com/reflects"}},
	"replicator": {`annotations.replicator\.v1\.mittwald\.de/replicated-keys`,
		[]string{"replicator.v1.mittwald.de/replicate-to", "replicator.v1.mittwald.de/replicate-from"}},
	"kyverno": {`labels.generate\.kyverno\.io/source-name`, nil},
}

// TestDocsMove moves a source with its copies from each of the other tools, and back, by the commands of the manual.
func TestDocsMove(t *testing.T) {
	t.Parallel()
	for name, tool := range otherTools {
		t.Run(name, func(t *testing.T) {
			move(suite.NewAlone(t, "a", "b", "c"), name, tool) // the commands reach every namespace of a cluster
		})
	}
}

func move(w *suite.World, name string, tool otherTool) {
	w.Helper()
	a, b := w.NS("a"), w.NS("b")
	outside := w.CreateNamespace("outside-"+w.Instance, nil).Name
	for _, targets := range []string{"PREFIX/" + w.Prefix, "PREFIX[ab]/" + outside} {
		w.Sh("sed 's/HOME/" + w.Home + "/; s/" + targets + "/' testdata/" + name + ".yaml | kubectl apply -f -")
	}
	foreign := w.Create(w.NS("c"), "settings")
	theirs := w.Copies("settings", a, b)
	w.Start()

	const shown = `annotations.reflector\.v1\.k8s\.emberstack\.com/reflects`
	w.Sh(ofManual(w, manual.Commands(w, "deploy/docs/moving.md", "github.io/adopt=true", shown, tool.mark)))
	publish := manual.Commands(w, "deploy/docs/moving.md", "label configmap settings -n platform mirror=true")
	w.Sh(ofManual(w, publish))
	source := w.Live(w.Home, "settings")
	w.WaitInSync(source, a, b)
	w.WaitEvent(w.Home, "settings", "Foreign", w.NS("c"))
	w.SameObjects(theirs)
	w.Sh(ofManual(w, manual.Commands(w, "deploy/docs/moving.md", "github.io/adopt-")))
	ordinary := w.Live(outside, "settings")
	if _, adopt := ordinary.Annotations[plan.AdoptAnnotation]; adopt || ordinary.Labels[w.Label] != "" {
		w.Errorf("%s/settings is no ordinary ConfigMap: %v", outside, ordinary)
	}
	for _, cm := range append(w.Copies("settings", a, b), source, ordinary) {
		for _, mark := range tool.marks {
			if value, there := cm.Annotations[mark]; there {
				w.Errorf("%s/settings still has %s=%s", cm.Namespace, mark, value)
			}
		}
	}

	w.Sh(ofManual(w, manual.Commands(w, "deploy/docs/moving.md", "mirror-controller.github.io/copy-")))
	released := w.Copies("settings", a, b)
	w.Settle(a, b)
	w.Untouched(append(released, foreign)...)
	w.SameObjects(theirs)
	for _, cm := range released {
		if _, ours := cm.Annotations[plan.CopyAnnotation]; ours || cm.Labels[w.Label] != "" || cm.Data["key"] != "new" {
			w.Errorf("%s/settings is not released: %v", cm.Namespace, cm)
		}
		if got, want := cm.Annotations["reflector.v1.k8s.emberstack.com/reflects"], w.Home+"/settings"; got != want {
			w.Errorf("%s/settings reflects %q, want %q", cm.Namespace, got, want)
		}
	}
	if w.Live(w.Home, "settings").Labels[w.Label] != "" {
		w.Error("settings is still a source")
	}
}

// TestDocsStopOtherTool runs the commands by which the manual stops the other tools.
func TestDocsStopOtherTool(t *testing.T) {
	t.Parallel()
	w := suite.New(t)
	ask := func(command, want string) {
		t.Helper()
		if got := w.Sh(command); got != want {
			t.Errorf("%s: got %q, want %q", command, got, want)
		}
	}
	w.Sh("kubectl create deployment other-tool --image=other-tool -n " + w.Home)
	w.Sh(manual.Commands(t, "deploy/docs/moving.md", "--replicas=0",
		"-n NAMESPACE", "-n "+w.Home, "NAME", "other-tool"))
	ask("kubectl get deployment other-tool -n "+w.Home+" -o jsonpath='{.spec.replicas}'", "0")

	w.Sh("kubectl apply -f testdata/kyverno-kind.yaml\n" +
		"kubectl wait crd clusterpolicies.kyverno.io --for=condition=Established --timeout=2m\n" +
		"kubectl apply -f testdata/kyverno-policy.yaml")
	commands := manual.Commands(t, "deploy/docs/moving.md", "kubectl delete clusterpolicy", "NAME", "other-tool")
	patch, remove, _ := strings.Cut(commands, "kubectl delete")
	w.Sh(patch)
	ask("kubectl get clusterpolicy other-tool -o jsonpath='{.spec.rules[0].generate}'",
		`{"orphanDownstreamOnPolicyDelete":true,"synchronize":true}`)
	w.Sh("kubectl delete" + remove)
	ask("kubectl get clusterpolicy -o name", "")
}
