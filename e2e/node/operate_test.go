package node

import (
	"errors"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mirror-controller/mirror-controller/e2e/manual"
)

// TestUnknownFlag rolls out a flag that the controller does not know: the old replicas stay at work, until the rollout
// is undone.
func TestUnknownFlag(t *testing.T) {
	w := newWorld(t)
	w.install(2)
	old := w.pods()
	w.sh(`kubectl -n mirror-system patch deployment mirror-controller --type=json ` +
		`-p '[{"op":"add","path":"/spec/template/spec/containers/0/args/-","value":"--no-such-flag"}]'`)
	w.until("the new Pod fails", func() error {
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
		now, err := w.node.client.CoreV1().Pods(system).Get(w.ctx(), pod.Name, metav1.GetOptions{})
		if err != nil || now.DeletionTimestamp != nil {
			t.Errorf("%s does not stay (%v)", pod.Name, err)
		}
	}
	w.publish("settings", "during the rollout")
	w.sh(manual.Commands(w, "deploy/docs/operate.md", "rollout undo"))
	w.waitRolledOut()
}

// TestDrain drains the only node, so that no replacement can be scheduled. Of two replicas the second stays, because
// the budget waits for a replacement of the first, and the drain says so. A single replica goes.
func TestDrain(t *testing.T) {
	w := newWorld(t)
	drain := manual.Commands(w, "deploy/docs/operate.md", "kubectl drain NODE --ignore-daemonsets --timeout", "NODE", name)
	uncordon := func() { w.sh("kubectl uncordon " + name) }
	w.Cleanup(uncordon)

	w.install(2)
	// It goes on until somebody ends it, or the timeout does.
	out := w.sh("(" + drain + ") 2>&1 | sed '/disruption budget/q'")
	if !strings.Contains(out, "disruption budget") {
		t.Errorf("of two replicas both went:\n%s", out)
	}
	w.publish("settings", "drained")
	w.sh(manual.Commands(w, "deploy/docs/operate.md", "--disable-eviction", "NODE", name))
	uncordon()
	w.waitRolledOut()

	w.install(1)
	w.sh(drain)
	uncordon()
	w.waitRolledOut()
	w.publish("settings", "uncordoned")
}
