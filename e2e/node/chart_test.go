package node

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/mirror-controller/mirror-controller/e2e/manual"
)

// TestChart installs the chart, upgrades it, and takes it out, by the documented commands. Nothing is left but what
// they promise, so the next installation mirrors at once.
func TestChart(t *testing.T) {
	w := newWorld(t)
	w.remove()
	if err := w.createNamespace(system); err != nil {
		t.Fatal(err)
	}
	w.Cleanup(w.cleanUp)
	w.Cleanup(func() { w.sh("kubectl delete namespace mirror-system") })
	w.waitCommand("kubectl -n mirror-system get serviceaccount/default configmap/kube-root-ca.crt")
	before := w.everything()
	install := manual.Commands(w, "deploy/docs/install.md", "helm install", "REGISTRY", "localhost", "TAG", "node")
	w.sh(install)
	w.sh(manual.Inline(w, "deploy/docs/install.md", "kubectl label namespace mirror-system pod-security.kubernetes.io/enforce=restricted"))
	w.waitRolledOut()
	w.expectMirrors("installed")
	w.sh(manual.Inline(w, "deploy/docs/install.md", "helm test mirror-controller --namespace mirror-system"))
	const upgrade = "helm upgrade mirror-controller deploy/chart -n mirror-system --reuse-values --set "
	w.sh(upgrade + "replicaCount=2")
	w.waitRolledOut()
	w.expectMirrors("upgraded")
	withdraw := func() {
		w.sh(upgrade + "deletionGrace=1s")
		w.waitRolledOut()
		w.sh("kubectl label configmap -n platform settings mirror-")
		w.waitGone("settings", targets()...)
	}
	withdraw()

	uninstall := manual.Inline(w, "deploy/docs/operate.md", "helm uninstall mirror-controller -n mirror-system")
	w.sh(uninstall)
	w.waitCommand(`test -z "$(kubectl -n mirror-system get pods -o name)"`)
	after := w.everything()
	delete(after, "configmaps platform/settings")
	maps.DeleteFunc(after, func(k string, _ bool) bool { return before[k] })
	if len(after) > 0 {
		t.Errorf("it leaves %v", slices.Sorted(maps.Keys(after)))
	}

	began := time.Now()
	w.sh(install)
	w.expectMirrors("installed again")
	w.figure("chart installed again, to mirrored", time.Since(began), 5*time.Second)
	withdraw()
	w.sh(uninstall)
}

// waitCommand waits until a command of the shell succeeds.
func (w *world) waitCommand(command string) {
	w.Helper()
	w.until(command, func() error {
		_, err := w.try(w.ctx, repository, command)
		return err
	})
}
