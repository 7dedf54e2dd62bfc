package e2e

import (
	"strings"
	"testing"

	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// TestKubectlStatus has the status of a world before its controller runs, with it, and when something is in the way.
func TestKubectlStatus(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "a", "b")
	a, b := w.ns("a"), w.ns("b")
	w.expect(w.mirror("status", "-A"), 0, "No sources found.")
	w.expect(w.mirror("status", "-n", a), 0, "No sources found in namespace team-a. -A shows those of all namespaces.")
	w.expect(w.mirror("status", "-A", "-o", "name"), 0, "")
	if got := w.mirror("status", "-A", "-o", "json"); !strings.Contains(got.out, `"sources": []`) {
		t.Errorf("got %s, want an empty list", got.out)
	}
	source := w.createSource(w.home, "settings")
	mine := w.create(b, "settings")
	w.expect(w.mirror("status", w.home+"/settings"), 1, `
platform/settings: OutOfSync, 1 pending, 1 foreign
TARGET  STATE  REASON
team-a  pending  there is no copy yet
team-b  foreign  a foreign ConfigMap of this name is there`)

	w.start()
	w.waitInSync(source, a)
	w.waitEvent(w.home, "settings", "Foreign")
	w.expect(w.mirror("status", "-A"), 1, `
NAMESPACE  NAME  STATUS  TARGETS  SYNCED  FOREIGN  WARNING
platform  settings  OutOfSync  2  1  1  Foreign`)
	w.untouched(mine)
	w.delete(b, "settings")
	w.waitInSync(source, b)
	w.expect(w.mirror("status", "settings", "-n", w.home), 0, "platform/settings: InSync, 2 synced")
	w.expect(w.mirror("status", "-A", "-o", "name"), 0, "configmap/settings -n platform")
	w.expect(w.mirror("status", "-n", w.home, "-o", "name"), 0, "configmap/settings")
	w.expectError(w.mirror("status", "other", "-n", w.home), "no source platform/other")
	w.expectError(w.mirror("status", a+"/settings", "-n", b), "is not in the namespace of --namespace=")
	w.expectError(w.mirror("status", "settings", "other"), "status has 2 arguments, must be: kubectl mirror status [SOURCE]")
	w.expectError(w.mirror("status", "-o", "colourful"), "must be one of: table, wide, json, yaml, name")
}

// TestKubectlStatusOfReader asks as a user who may list what status needs, and as some who may not.
func TestKubectlStatusOfReader(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "a")
	source := w.createSource(w.home, "settings")
	w.start()
	w.waitInSync(source, w.ns("a"))
	const synced = `
NAMESPACE  NAME  STATUS  TARGETS  SYNCED
platform  settings  InSync  1  1`
	lists := mayList("", "configmaps", "namespaces")
	kubeconfig := w.reader("reader", lists, mayList("rbac.authorization.k8s.io", "clusterrolebindings"))
	got := w.byController(kubeconfig, "status", "-A")
	if w.expect(got, 0, synced); got.err != controllerSettings+"\nNot checked: whether a controller runs: you may not get leases in namespace platform" {
		t.Errorf("stderr is\n%s\nwant\n%s", got.err, controllerSettings)
	}

	kubeconfig = w.reader("lister", lists)
	w.expectError(w.mirrorAs(kubeconfig, "status", "-A"),
		"cannot find the controller: you may not list clusterrolebindings, nor deployments: give its flags, at least --namespace-prefix")
	w.expect(w.byFlags(kubeconfig, "status", "-A"), 0, synced)

	kubeconfig = w.reader("half", mayList("", "namespaces"))
	w.expectError(w.byFlags(kubeconfig, "status", "-A"), "list ConfigMaps: configmaps is forbidden")
	w.expectError(w.mirror("status", "--namespace-prefix=Team-"), `--namespace-prefix="Team-": must be the beginning of a namespace name`)
	w.expectError(w.mirrorAs(w.cluster.AdminKubeconfig(), "status", "--controller=no/such"), `--controller="no/such": no such controller, must be one of: `)
}

// TestKubectlStatusOfEach has a target in each state that needs no fault, as the controller left them.
func TestKubectlStatusOfEach(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "a", "b", "c")
	a, b, c := w.ns("a"), w.ns("b"), w.ns("c")
	winner := w.createSource(w.home, "settings", withAnnotation(plan.PrefixAnnotation, a))
	loser := w.createSource(b, "settings")
	frozen := w.createSource(w.home, "frozen")
	w.start()
	w.waitInSync(winner, a)
	w.waitInSync(loser, c)
	w.waitInSync(frozen, a, b, c)
	w.waitEvent(b, "settings", "Superseded")
	w.edit(w.home, "frozen", withAnnotation(plan.SelectorAnnotation, "a==b==c"))
	w.waitEvent(w.home, "frozen", "InvalidAnnotation")
	w.expect(w.mirror("status", "settings", "-n", b), 1, shown(t, "status settings -n team-b"))
	w.expect(w.mirror("status", "-A"), 1, shown(t, "status -A"))
}
