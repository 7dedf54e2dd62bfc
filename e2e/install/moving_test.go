package install

import (
	"strings"
	"testing"

	"github.com/mirror-controller/mirror-controller/e2e/manual"
	"github.com/mirror-controller/mirror-controller/e2e/suite"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// otherTool is a tool that copies ConfigMaps, with objects as it leaves them. HOME is the namespace of the source, and a and b
// have copies. Read in the code of emberstack/kubernetes-reflector, mittwald/kubernetes-replicator and kyverno/kyverno.
type otherTool struct {
	mark    string // as the manual writes it
	marks   []string
	objects string
}

var otherTools = map[string]otherTool{
	"reflector": {
		mark:  `annotations.reflector\.v1\.k8s\.emberstack\.com/reflects`,
		marks: []string{"reflector.v1.k8s.emberstack.com/reflects"},
		objects: `
apiVersion: v1
kind: ConfigMap
metadata:
  name: settings
  namespace: HOME
  annotations:
    reflector.v1.k8s.emberstack.com/reflection-allowed: "true"
    reflector.v1.k8s.emberstack.com/reflection-auto-enabled: "true"
    reflector.v1.k8s.emberstack.com/reflection-auto-namespaces: PREFIX.*
data: {key: new}
---
apiVersion: v1
kind: ConfigMap
metadata:
  name: settings
  namespace: PREFIXa
  annotations:
    reflector.v1.k8s.emberstack.com/auto-reflects: "True"
    reflector.v1.k8s.emberstack.com/reflected-at: "2026-01-02T03:04:05.0000000+00:00"
    reflector.v1.k8s.emberstack.com/reflected-version: "1"
    reflector.v1.k8s.emberstack.com/reflects: HOME/settings
data: {key: old}
---
apiVersion: v1
kind: ConfigMap
metadata:
  name: settings
  namespace: PREFIXb
  annotations:
    reflector.v1.k8s.emberstack.com/auto-reflects: "False"
    reflector.v1.k8s.emberstack.com/reflected-at: "2026-01-02T03:04:05.0000000+00:00"
    reflector.v1.k8s.emberstack.com/reflected-version: "1"
    reflector.v1.k8s.emberstack.com/reflects: HOME/settings
data: {key: old}
`},
	"replicator": {
		mark:  `annotations.replicator\.v1\.mittwald\.de/replicated-keys`,
		marks: []string{"replicator.v1.mittwald.de/replicate-to", "replicator.v1.mittwald.de/replicate-from"},
		objects: `
apiVersion: v1
kind: ConfigMap
metadata:
  name: settings
  namespace: HOME
  labels: {team: platform}
  annotations:
    replicator.v1.mittwald.de/replicate-to: PREFIX.*
data: {key: new}
---
apiVersion: v1
kind: ConfigMap
metadata:
  name: settings
  namespace: PREFIXa
  labels: {team: platform}
  annotations:
    replicator.v1.mittwald.de/replicated-at: "2026-01-02T03:04:05Z"
    replicator.v1.mittwald.de/replicated-from-version: "1"
    replicator.v1.mittwald.de/replicated-keys: key
data: {key: old, other: kept by replicator}
---
apiVersion: v1
kind: ConfigMap
metadata:
  name: settings
  namespace: PREFIXb
  annotations:
    replicator.v1.mittwald.de/replicate-from: HOME/settings
    replicator.v1.mittwald.de/replicated-at: "2026-01-02T03:04:05Z"
    replicator.v1.mittwald.de/replicated-from-version: "1"
    replicator.v1.mittwald.de/replicated-keys: key
data: {key: old}
`},
	"kyverno": {
		mark: `labels.generate\.kyverno\.io/source-name`,
		objects: `
apiVersion: v1
kind: ConfigMap
metadata:
  name: settings
  namespace: HOME
  labels: {generate.kyverno.io/clone-source: ""}
data: {key: new}
` + cloned("a") + cloned("b")},
}

// cloned is what a rule with clone and synchronize makes of the source: a copy with all its labels, and with more.
func cloned(namespace string) string {
	return `
---
apiVersion: v1
kind: ConfigMap
metadata:
  name: settings
  namespace: PREFIX` + namespace + `
  labels:
    app.kubernetes.io/managed-by: kyverno
    generate.kyverno.io/clone-source: ""
    generate.kyverno.io/policy-name: clone-settings
    generate.kyverno.io/policy-namespace: ""
    generate.kyverno.io/rule-name: clone-settings
    generate.kyverno.io/source-group: ""
    generate.kyverno.io/source-kind: ConfigMap
    generate.kyverno.io/source-name: settings
    generate.kyverno.io/source-namespace: HOME
    generate.kyverno.io/source-version: v1
    generate.kyverno.io/trigger-group: ""
    generate.kyverno.io/trigger-kind: Namespace
    generate.kyverno.io/trigger-namespace: ""
    generate.kyverno.io/trigger-uid: 01234567-89ab-cdef-0123-456789abcdef
    generate.kyverno.io/trigger-version: v1
data: {key: old}
`
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
	sh(w, "kubectl apply -f - <<'END'\n"+strings.NewReplacer("HOME", w.Home, "PREFIX", w.Prefix).Replace(tool.objects)+"END")
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

// ofManual returns commands of the manual with the names of the world.
func ofManual(w *suite.World, commands string) string {
	return strings.NewReplacer("-l mirror=", "-l "+w.Label+"=", " mirror=true", " "+w.Label+"=true", " mirror-\n", " "+w.Label+"-\n",
		"-n platform", "-n "+w.Home, "=platform/", "="+w.Home+"/").Replace(commands)
}

// sh runs commands as the admin.
func sh(w *suite.World, commands string) {
	w.Helper()
	if out, err := w.Cluster.Shell(w.Context(), commands).CombinedOutput(); err != nil {
		w.Fatalf("%s: %v\n%s", commands, err, out)
	}
}

// TestDocsStopOtherTool runs the commands by which the manual stops the other tools.
func TestDocsStopOtherTool(t *testing.T) {
	t.Parallel()
	w := suite.New(t)
	ask := func(command, want string) {
		t.Helper()
		if out, err := w.Cluster.Shell(w.Context(), command).CombinedOutput(); err != nil || string(out) != want {
			t.Errorf("%s: got %q, want %q (%v)", command, out, want, err)
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
