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
	w.expect(w.mirror("status"), 0, "No sources found.")
	w.expect(w.mirror("status", "-o", "name"), 0, "")
	if got := w.mirror("status", "-o", "json"); !strings.Contains(got.out, `"sources": []`) {
		t.Errorf("got %s, want an empty list", got.out)
	}
	source := w.createSource(w.home, "settings")
	mine := w.create(b, "settings")
	w.expect(w.mirror("status", "settings"), 1, `
platform/settings: OutOfSync, 1 pending, 1 foreign
TARGET  STATE  REASON
team-a  pending  there is no copy yet
team-b  foreign  a foreign ConfigMap of this name is there`)

	w.start()
	w.waitInSync(source, a)
	w.waitEvent(w.home, "settings", "Foreign")
	got := w.mirror("status")
	w.expect(got, 1, `
NAMESPACE  NAME  STATUS  TARGETS  SYNCED  PENDING  FOREIGN  SUPERSEDED  FAILED  OUT-OF-SCOPE  EXPIRING
platform  settings  OutOfSync  2  1  0  1  0  0  0  0`)
	if got.err != controllerSettings {
		t.Errorf("stderr is\n%s\nwant\n%s", got.err, controllerSettings)
	}
	w.untouched(mine)
	w.delete(b, "settings")
	w.waitInSync(source, b)
	w.expect(w.mirror("status", w.home+"/settings", "-o", "wide"), 0, `
platform/settings: InSync, 2 synced
TARGET  STATE  OPERATION  REASON
team-a  synced
team-b  synced`)
	w.expect(w.mirror("status", "-n", a), 0, "No sources found in namespace team-a.")
	w.expect(w.mirror("status", "-o", "name"), 0, "platform/settings")
	w.expectError(w.mirror("status", "other"), "no source other")
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
NAMESPACE  NAME  STATUS  TARGETS  SYNCED  PENDING  FOREIGN  SUPERSEDED  FAILED  OUT-OF-SCOPE  EXPIRING
platform  settings  InSync  1  1  0  0  0  0  0  0`
	lists := mayList("", "configmaps", "namespaces")
	kubeconfig := w.reader("reader", lists, mayList("rbac.authorization.k8s.io", "clusterrolebindings"))
	controller := "--controller=" + accountNamespace + "/" + w.account()
	w.expect(w.mirrorAs(kubeconfig, "status", controller), 0, synced)

	kubeconfig = w.reader("lister", lists)
	w.expectError(w.mirrorAs(kubeconfig, "status"),
		"cannot find the controller: you may not list clusterrolebindings, nor deployments: give its flags, at least --namespace-prefix")
	w.expect(w.mirrorAs(kubeconfig, append([]string{"status"}, w.args()...)...), 0, synced)

	kubeconfig = w.reader("half", mayList("", "namespaces"))
	w.expectError(w.mirrorAs(kubeconfig, append([]string{"status"}, w.args()...)...), "list ConfigMaps: configmaps is forbidden")
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
	w.edit(w.home, "frozen", withAnnotation(plan.SelectorAnnotation, "a==b==c"))
	w.waitEvent(w.home, "frozen", "InvalidAnnotation")
	w.expect(w.mirror("status", "settings", "-n", b), 1, shown(t, "status settings -n team-b"))
	w.expect(w.mirror("status"), 1, shown(t, "status"))
	w.expectError(w.mirror("status", "settings"), "2 sources have the name settings: name one of: platform/settings, team-b/settings")
}
