package plugin

import (
	"strings"
	"testing"

	"github.com/mirror-controller/mirror-controller/e2e/suite"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// TestKubectlStatus has the status of a world before its controller runs, with it, and when something is in the way.
func TestKubectlStatus(t *testing.T) {
	t.Parallel()
	w := suite.New(t, "a", "b")
	a, b := w.NS("a"), w.NS("b")
	expect(w, kubectlMirror(w, "status", "-A"), 0, "No sources found.")
	expect(w, kubectlMirror(w, "status", "-n", a), 0, "No sources found in namespace team-a. -A shows those of all namespaces.")
	expect(w, kubectlMirror(w, "status", "-A", "-o", "name"), 0, "")
	if got := kubectlMirror(w, "status", "-A", "-o", "json"); !strings.Contains(got.out, `"sources": []`) {
		t.Errorf("got %s, want an empty list", got.out)
	}
	source := w.CreateSource(w.Home, "settings")
	mine := w.Create(b, "settings")
	expect(w, kubectlMirror(w, "status", w.Home+"/settings"), 1, `
platform/settings: OutOfSync, 1 pending, 1 foreign
TARGET  STATE  REASON
team-a  pending  there is no copy yet
team-b  foreign  a foreign ConfigMap of this name is there`)

	w.Start()
	w.WaitInSync(source, a)
	w.WaitEvent(w.Home, "settings", "Foreign")
	expect(w, kubectlMirror(w, "status", "-A"), 1, `
NAMESPACE  NAME  STATUS  TARGETS  SYNCED  FOREIGN  WARNING
platform  settings  OutOfSync  2  1  1  Foreign`)
	w.Untouched(mine)
	w.Delete(b, "settings")
	w.WaitInSync(source, b)
	expect(w, kubectlMirror(w, "status", "settings", "-n", w.Home), 0, "platform/settings: InSync, 2 synced")
	expect(w, kubectlMirror(w, "status", "-A", "-o", "name"), 0, "configmap/settings -n platform")
	expect(w, kubectlMirror(w, "status", "-n", w.Home, "-o", "name"), 0, "configmap/settings")
	expectError(w, kubectlMirror(w, "status", "other", "-n", w.Home), "no source platform/other")
	expectError(w, kubectlMirror(w, "status", a+"/settings", "-n", b), "is not in the namespace of --namespace=")
	expectError(w, kubectlMirror(w, "status", "settings", "other"), "status has 2 arguments, must be: kubectl mirror status [SOURCE]")
	expectError(w, kubectlMirror(w, "status", "-o", "colourful"), "must be one of: table, wide, json, yaml, name")
}

// TestKubectlStatusOfReader asks as a user who may list what status needs, and as some who may not.
func TestKubectlStatusOfReader(t *testing.T) {
	t.Parallel()
	w := suite.New(t, "a")
	source := w.CreateSource(w.Home, "settings")
	w.Start()
	w.WaitInSync(source, w.NS("a"))
	const synced = `
NAMESPACE  NAME  STATUS  TARGETS  SYNCED
platform  settings  InSync  1  1`
	lists := mayList("", "configmaps", "namespaces")
	kubeconfig := newReader(w, "reader", lists, mayList("rbac.authorization.k8s.io", "clusterrolebindings"))
	got := byController(w, kubeconfig, "status", "-A")
	if expect(w, got, 0, synced); got.err != controllerSettings+"\nNot checked: whether a controller runs: you may not get resource \"leases\" in API group \"coordination.k8s.io\" in the namespace \"platform\"" {
		t.Errorf("stderr is\n%s\nwant\n%s", got.err, controllerSettings)
	}

	kubeconfig = newReader(w, "lister", lists)
	expectError(w, mirrorAs(w, kubeconfig, "status", "-A"),
		`cannot find the controller: you may not list resource "clusterrolebindings" in API group "rbac.authorization.k8s.io" at the cluster scope: give its flags, `)
	expect(w, byFlags(w, kubeconfig, "status", "-A"), 0, synced)

	kubeconfig = newReader(w, "half", mayList("", "namespaces"))
	expectError(w, byFlags(w, kubeconfig, "status", "-A"), "list ConfigMaps: configmaps is forbidden")
	expectError(w, kubectlMirror(w, "status", "--namespace-prefix=Team-"), `--namespace-prefix="Team-": must be the beginning of a namespace name`)
	expectError(w, mirrorAs(w, w.Cluster.AdminKubeconfig(), "status", "--controller=no/such"), `--controller="no/such": no such controller, must be one of: `)
}

// TestKubectlStatusOfEach has a target in each state that needs no fault, as the controller left them.
func TestKubectlStatusOfEach(t *testing.T) {
	t.Parallel()
	w := suite.New(t, "a", "b", "c")
	a, b, c := w.NS("a"), w.NS("b"), w.NS("c")
	winner := w.CreateSource(w.Home, "settings", suite.WithAnnotation(plan.PrefixAnnotation, a))
	loser := w.CreateSource(b, "settings")
	frozen := w.CreateSource(w.Home, "frozen")
	w.Start()
	w.WaitInSync(winner, a)
	w.WaitInSync(loser, c)
	w.WaitInSync(frozen, a, b, c)
	w.WaitEvent(b, "settings", "Superseded")
	w.Edit(w.Home, "frozen", suite.WithAnnotation(plan.SelectorAnnotation, "a==b==c"))
	w.WaitEvent(w.Home, "frozen", "InvalidAnnotation")
	expect(w, kubectlMirror(w, "status", "settings", "-n", b), 1, shown(t, "status settings -n team-b"))
	expect(w, kubectlMirror(w, "status", "-A"), 1, shown(t, "status -A"))
}
