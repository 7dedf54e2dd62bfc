package node

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/mirror-controller/mirror-controller/e2e/manual"
)

// TestRemoval removes install.yaml with 2,000 copies by the documented commands, which leave nothing but the sources.
func TestRemoval(t *testing.T) {
	w := newWorld(t)
	w.remove()
	w.expectNothingLeft(func() {
		w.install(1)
		for i := range 20 {
			w.publish(fmt.Sprintf("settings-%d", i), "one")
		}
		began := time.Now()
		w.remove()
		w.measured("removal with 2,000 copies", time.Since(began), 20*time.Second)
	})
}

// TestChart installs the chart, checks and upgrades it, and takes it out, by the documented commands, which leave
// nothing but the source.
func TestChart(t *testing.T) {
	w := newWorld(t)
	w.remove()
	w.sh("kubectl create namespace mirror-system")
	w.Cleanup(func() { w.sh("kubectl delete namespace mirror-system") })
	w.untilSucceeds("kubectl -n mirror-system get serviceaccount/default configmap/kube-root-ca.crt")
	w.expectNothingLeft(func() {
		w.sh(manual.Commands(w, "deploy/docs/install.md", "helm install", "REGISTRY", "localhost", "TAG", "node"))
		w.sh(manual.Inline(w, "deploy/docs/install.md",
			"kubectl label namespace mirror-system pod-security.kubernetes.io/enforce=restricted"))
		w.waitRolledOut()
		w.publish("settings", "installed")
		w.sh(manual.Inline(w, "deploy/docs/install.md", "helm test mirror-controller --namespace mirror-system"))

		w.sh("helm upgrade mirror-controller deploy/chart -n mirror-system --reuse-values " +
			"--set replicaCount=2,deletionGrace=1s")
		w.waitRolledOut()
		w.publish("settings", "upgraded")
		w.sh(manual.Commands(w, "deploy/docs/operate.md", "until left="))
		w.sh(manual.Inline(w, "deploy/docs/operate.md", "helm uninstall mirror-controller -n mirror-system"))
		w.untilSucceeds(`test -z "$(kubectl -n mirror-system get pods -o name)"`)
	})
}

// everything prints the kind, namespace and name of each object in the cluster that the test makes, and of others:
// without events, what the node renews, and what the cluster makes in each namespace some moments later.
const everything = `
kinds=$(kubectl api-resources --verbs=list -o name | grep -v '^events\|^endpoints$\|^componentstatuses$' | paste -sd,)
kubectl get "$kinds" -A --no-headers -o custom-columns=:kind,:metadata.namespace,:metadata.name |
grep -v '^Lease  *kube-node-lease \| kube-root-ca.crt$\|^ServiceAccount .* default$\|^ConfigMap  *platform ' |
tr -s ' '`

// expectNothingLeft fails the test if f leaves more objects than there were before.
func (w *world) expectNothingLeft(f func()) {
	w.Helper()
	before := map[string]bool{}
	for object := range strings.Lines(w.sh(everything)) {
		before[object] = true
	}
	if len(before) < 100 {
		w.Fatalf("%d objects: are they still found?", len(before))
	}
	f()
	for object := range strings.Lines(w.sh(everything)) {
		if !before[object] {
			w.Error("left behind: ", object)
		}
	}
}
