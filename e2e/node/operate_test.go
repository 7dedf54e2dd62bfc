package node

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mirror-controller/mirror-controller/e2e/manual"
)

// TestUnknownFlag rolls out a flag that the controller does not know: the old replicas stay at work, until the rollout
// is undone.
func TestUnknownFlag(t *testing.T) {
	w := newWorld(t)
	w.install(2)
	old := w.pods()
	w.Sh(`kubectl -n mirror-system patch deployment mirror-controller --type=json ` +
		`-p '[{"op":"add","path":"/spec/template/spec/containers/0/args/-","value":"--no-such-flag"}]'`)
	w.Until("the new Pod fails", func() error {
		for _, pod := range w.pods() {
			for _, c := range pod.Status.ContainerStatuses {
				if ended := c.LastTerminationState.Terminated; ended != nil && ended.ExitCode == 2 {
					return nil
				}
			}
		}
		return errors.New("none has ended with exit code 2")
	})
	for _, pod := range old {
		now, err := w.Admin.CoreV1().Pods(system).Get(w.Background(), pod.Name, metav1.GetOptions{})
		if err != nil || now.DeletionTimestamp != nil {
			t.Errorf("%s does not stay (%v)", pod.Name, err)
		}
	}
	w.publish("settings", "during the rollout")
	w.Sh(manual.Commands(w, "deploy/docs/operate.md", "rollout undo"))
	w.waitRolledOut()
}

// TestDrain drains the only node, so that no replacement can be scheduled. Of two replicas the second stays, because
// the budget waits for a replacement of the first, and the drain says so. A single replica goes.
func TestDrain(t *testing.T) {
	w := newWorld(t)
	drain := manual.Commands(w, "deploy/docs/operate.md", "kubectl drain NODE --ignore-daemonsets --timeout", "NODE", name)
	uncordon := func() { w.Sh("kubectl uncordon " + name) }
	w.Cleanup(uncordon)

	w.install(2)
	// It goes on until somebody ends it, or the timeout does.
	out := w.Sh("(" + drain + ") 2>&1 | sed '/disruption budget/q'")
	if !strings.Contains(out, "disruption budget") {
		t.Errorf("of two replicas both went:\n%s", out)
	}
	w.publish("settings", "drained")
	w.Sh(manual.Commands(w, "deploy/docs/operate.md", "--disable-eviction", "NODE", name))
	uncordon()
	w.waitRolledOut()

	w.install(1)
	w.Sh(drain)
	uncordon()
	w.waitRolledOut()
	w.publish("settings", "uncordoned")
}

// TestInstall installs install.yaml as a user would. The controller is ready, with no permissions on the node and with
// what a Pod gets to know of its cluster, and the policies confine it. Its metrics are behind the Service, the command
// of an alert shows them, and kubectl mirror check finds nothing to do.
func TestInstall(t *testing.T) {
	w := newWorld(t)
	began := time.Now()
	w.install(1)
	w.measured("install.yaml applied, to ready", time.Since(began), 15*time.Second)
	w.publish("settings", "installed")

	pod := w.pods()[0]
	process := fmt.Sprintf("/proc/%d/", w.process(pod))
	status := read(t, process+"status")
	for _, want := range []string{
		"Uid:\t65532\t65532\t65532\t65532", "Gid:\t65532\t65532\t65532\t65532", "CapPrm:\t0000000000000000",
		"CapEff:\t0000000000000000", "CapBnd:\t0000000000000000", "NoNewPrivs:\t1", "Seccomp:\t2",
	} {
		if !strings.Contains(status, "\n"+want+"\n") {
			t.Errorf("the process does not have %q:\n%s", want, status)
		}
	}
	mounts := read(t, process+"mounts")
	if root, _, _ := strings.Cut(mounts, "\n"); !strings.Contains(root, " / ") || !strings.Contains(root, " ro,") {
		t.Errorf("its root can be written: %s", root)
	}
	if !strings.Contains(mounts, "/run/secrets/kubernetes.io/serviceaccount tmpfs ro,") {
		t.Errorf("it has no projected token:\n%s", mounts)
	}
	log := w.Sh("kubectl -n mirror-system logs deployment/mirror-controller")
	if !strings.Contains(log, `server="https://10.96.0.1:443"`) {
		t.Errorf("it does not say that it has the configuration of a Pod:\n%s", log)
	}

	w.Sh("kubectl apply -f deploy/components/monitoring/service.yaml")
	w.untilSucceeds("kubectl get --raw /api/v1/namespaces/mirror-system/services/mirror-controller-metrics:metrics" +
		"/proxy/metrics | grep '^mirror_build_info{'")
	ofAlert := w.Sh("grep -m 1 /proxy/metrics deploy/components/monitoring/alerts.yaml")
	w.Sh(strings.ReplaceAll(ofAlert, "{{ $labels.namespace }}", "mirror-system"))
	if out := w.Sh("kubectl mirror check"); !strings.Contains(out, " 0 to do, 0 not checked, 0 not probed.") {
		t.Errorf("kubectl mirror check:\n%s", out)
	}
}

func read(t *testing.T, file string) string {
	t.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

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
	w.Sh("kubectl create namespace mirror-system")
	w.Cleanup(func() { w.Sh("kubectl delete namespace mirror-system") })
	w.untilSucceeds("kubectl -n mirror-system get serviceaccount/default configmap/kube-root-ca.crt")
	w.expectNothingLeft(func() {
		w.Sh(manual.Commands(w, "deploy/docs/install.md", "helm install", "REGISTRY", "localhost", "TAG", "node"))
		w.Sh(manual.Inline(w, "deploy/docs/install.md",
			"kubectl label namespace mirror-system pod-security.kubernetes.io/enforce=restricted"))
		w.waitRolledOut()
		w.publish("settings", "installed")
		w.Sh(manual.Inline(w, "deploy/docs/install.md", "helm test mirror-controller --namespace mirror-system"))

		w.Sh("helm upgrade mirror-controller deploy/chart -n mirror-system --reuse-values " +
			"--set replicaCount=2,deletionGrace=1s")
		w.waitRolledOut()
		w.publish("settings", "upgraded")
		w.Sh(manual.Commands(w, "deploy/docs/operate.md", "until left="))
		w.Sh(manual.Inline(w, "deploy/docs/operate.md", "helm uninstall mirror-controller -n mirror-system"))
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
	for object := range strings.Lines(w.Sh(everything)) {
		before[object] = true
	}
	if len(before) < 100 {
		w.Fatalf("%d objects: are they still found?", len(before))
	}
	f()
	for object := range strings.Lines(w.Sh(everything)) {
		if !before[object] {
			w.Error("left behind: ", object)
		}
	}
}
