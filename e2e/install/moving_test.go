package install

import (
	"strings"
	"testing"

	"github.com/mirror-controller/mirror-controller/e2e/manual"
	"github.com/mirror-controller/mirror-controller/e2e/suite"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// otherTool is a tool that copies ConfigMaps, and the metadata that it leaves. HOME is the namespace of the source, and a and b
// have copies. Read in the code of emberstack/kubernetes-reflector, mittwald/kubernetes-replicator and kyverno/kyverno.
type otherTool struct {
	mark         string   // as the manual writes it
	marks        []string // annotations that the commands of the manual take away
	source, a, b string
}

var otherTools = map[string]otherTool{
	"reflector": {
		mark:  `annotations.reflector\.v1\.k8s\.emberstack\.com/reflects`,
		marks: []string{"reflector.v1.k8s.emberstack.com/reflects"},
		source: `
  annotations:
    reflector.v1.k8s.emberstack.com/reflection-allowed: "true"
    reflector.v1.k8s.emberstack.com/reflection-auto-enabled: "true"
    reflector.v1.k8s.emberstack.com/reflection-auto-namespaces: PREFIX.*`,
		a: reflected,
		b: reflected,
	},
	"replicator": {
		mark:  `annotations.replicator\.v1\.mittwald\.de/replicated-keys`,
		marks: []string{"replicator.v1.mittwald.de/replicate-to", "replicator.v1.mittwald.de/replicate-from"},
		source: `
  labels: {team: platform}
  annotations:
    replicator.v1.mittwald.de/replicate-to: PREFIX.*`,
		a: `
  labels: {team: platform}
  annotations:
    replicator.v1.mittwald.de/replicated-from-version: "1"
    replicator.v1.mittwald.de/replicated-keys: key`,
		b: `
  annotations:
    replicator.v1.mittwald.de/replicate-from: HOME/settings
    replicator.v1.mittwald.de/replicated-from-version: "1"
    replicator.v1.mittwald.de/replicated-keys: key`,
	},
	"kyverno": {
		mark:   `labels.generate\.kyverno\.io/source-name`,
		source: "\n  labels: {generate.kyverno.io/clone-source: \"\"}",
		a:      cloned,
		b:      cloned,
	},
}

const reflected = `
  annotations:
    reflector.v1.k8s.emberstack.com/auto-reflects: "True"
    reflector.v1.k8s.emberstack.com/reflected-version: "1"
    reflector.v1.k8s.emberstack.com/reflects: HOME/settings`

// cloned is what a rule with clone and synchronize makes of the source: a copy with all its labels, and with more.
const cloned = `
  labels:
    app.kubernetes.io/managed-by: kyverno
    generate.kyverno.io/clone-source: ""
    generate.kyverno.io/policy-name: clone-settings
    generate.kyverno.io/rule-name: clone-settings
    generate.kyverno.io/source-kind: ConfigMap
    generate.kyverno.io/source-name: settings
    generate.kyverno.io/source-namespace: HOME`

// objects returns the source and the copies of the tool.
func (o otherTool) objects(w *suite.World) string {
	object := func(namespace, data, metadata string) string {
		return "---\napiVersion: v1\nkind: ConfigMap\ndata: " + data +
			"\nmetadata:\n  name: settings\n  namespace: " + namespace + metadata + "\n"
	}
	return strings.NewReplacer("HOME", w.Home, "PREFIX", w.Prefix).Replace(object("HOME", "{key: new}", o.source) +
		object("PREFIXa", "{key: old, other: kept by replicator}", o.a) + object("PREFIXb", "{key: old}", o.b))
}

// kyvernoKind is as much of a CustomResourceDefinition as kyvernoPolicy takes, and that has what the commands are about.
const kyvernoKind = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: clusterpolicies.kyverno.io}
spec:
  group: kyverno.io
  names: {kind: ClusterPolicy, plural: clusterpolicies, singular: clusterpolicy}
  scope: Cluster
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
`

const kyvernoPolicy = `
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: other-tool}
spec: {rules: [{name: clone-settings, generate: {synchronize: true}}]}
`

// TestDocsMove moves a source with its copies from each of the other tools, and back, by the commands of the manual.
func TestDocsMove(t *testing.T) {
	t.Parallel()
	for name, tool := range otherTools {
		t.Run(name, func(t *testing.T) { // one at a time: the commands concern all namespaces
			move(suite.New(t, "a", "b", "c"), tool)
		})
	}
}

func move(w *suite.World, tool otherTool) {
	w.Helper()
	a, b := w.NS("a"), w.NS("b")
	sh(w, "kubectl apply -f - <<'END'\n"+tool.objects(w)+"END")
	foreign := w.Create(w.NS("c"), "settings")
	theirs := w.Copies("settings", a, b)
	w.Start()

	const shown = `annotations.reflector\.v1\.k8s\.emberstack\.com/reflects`
	sh(w, ofManual(w, manual.Commands(w, "deploy/docs/moving.md", "while read", shown, tool.mark)))
	sh(w, ofManual(w, manual.Commands(w, "deploy/docs/moving.md", "label configmap settings -n platform mirror=true")))
	source := w.Live(w.Home, "settings")
	w.WaitInSync(source, a, b)
	w.Eventually("the third is foreign", w.Noted("settings", "Foreign", w.NS("c")))
	w.SameObjects(theirs)
	for _, cm := range append(w.Copies("settings", a, b), source) {
		for _, mark := range tool.marks {
			if value, there := cm.Annotations[mark]; there {
				w.Errorf("%s/settings still has %s=%s", cm.Namespace, mark, value)
			}
		}
	}

	sh(w, ofManual(w, manual.Commands(w, "deploy/docs/moving.md", "mirror-controller.github.io/copy-")))
	released := w.Copies("settings", a, b)
	w.Settle(a, b)
	w.AllUntouched(append(released, foreign))
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
		if got := sh(w, command); got != want {
			t.Errorf("%s: got %q, want %q", command, got, want)
		}
	}
	sh(w, "kubectl create deployment other-tool --image=other-tool -n "+w.Home)
	sh(w, manual.Commands(t, "deploy/docs/moving.md", "--replicas=0", "-n NAMESPACE", "-n "+w.Home, "NAME", "other-tool"))
	ask("kubectl get deployment other-tool -n "+w.Home+" -o jsonpath='{.spec.replicas}'", "0")

	sh(w, "kubectl apply -f - <<'END'\n"+kyvernoKind+"END\n"+
		"kubectl wait crd clusterpolicies.kyverno.io --for=condition=Established\n"+
		"kubectl apply -f - <<'END'\n"+kyvernoPolicy+"END")
	commands := manual.Commands(t, "deploy/docs/moving.md", "kubectl delete clusterpolicy", "NAME", "other-tool")
	patch, remove, _ := strings.Cut(commands, "kubectl delete")
	sh(w, patch)
	ask("kubectl get clusterpolicy other-tool -o jsonpath='{.spec.rules[0].generate}'",
		`{"orphanDownstreamOnPolicyDelete":true,"synchronize":true}`)
	sh(w, "kubectl delete"+remove)
	ask("kubectl get clusterpolicy -o name", "")
}
