package node

import (
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/mirror-controller/mirror-controller/e2e/manual"
)

// TestHandOver changes instance and mirror label by the documented commands. The copies stay the objects that they are, and the
// controller keeps them in sync.
func TestHandOver(t *testing.T) {
	w := newWorld(t)
	w.install()
	data := map[string]string{"key": "one"}
	w.source("settings", data)
	w.waitInSync("settings", data, targets()...)
	before := map[string]types.UID{}
	for _, namespace := range targets() {
		before[namespace] = w.seen.ConfigMap(namespace, "settings").UID
	}
	w.sh(manual.Commands(w, "deploy/docs/operate.md", "scale deployment mirror-controller --replicas=0"))
	w.sh(manual.Commands(w, "deploy/docs/operate.md", "kubectl label configmap -A -l mirror=true share=true"))
	w.applyOverlay("s|instance=default|instance=blue|", "s|mirror-label=mirror|mirror-label=share|")
	t.Cleanup(func() {
		w.sh(strings.ReplaceAll(manual.Commands(w, "deploy/docs/operate.md", "until left="), "mirror", "share"))
		w.remove()
	})
	w.sh(`kubectl patch configmap -n platform settings --type=merge -p '{"data":{"key":"two"}}'`)
	w.eventually("all copies handed over", func() error {
		for namespace, uid := range before {
			cm := w.seen.ConfigMap(namespace, "settings")
			if cm == nil || cm.UID != uid || cm.Labels["share"] != "copy" || cm.Data["key"] != "two" ||
				cm.Annotations["mirror-controller.github.io/instance"] != "blue" {
				return fmt.Errorf("not in %s: %v", namespace, cm)
			}
		}
		return nil
	})
}
