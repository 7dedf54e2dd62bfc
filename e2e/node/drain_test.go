package node

import (
	"strings"
	"testing"

	"github.com/mirror-controller/mirror-controller/e2e/manual"
)

// TestDrain drains the only node, so that no replacement can be scheduled. One replica goes; of two the second stays,
// because the budget waits for a replacement of the first, and the drain says so.
func TestDrain(t *testing.T) {
	w := newWorld(t)
	drain := manual.Commands(w, "deploy/docs/operate.md", "kubectl drain NODE --ignore-daemonsets --timeout", "NODE", name)
	w.Cleanup(func() { w.sh("kubectl uncordon " + name) })

	w.install()
	w.sh(drain)
	w.sh("kubectl uncordon " + name)
	w.waitRolledOut()

	w.applyTwo()
	// It goes on until somebody ends it, or the timeout does.
	out := w.sh("(" + drain + ") 2>&1 | sed '/disruption budget/q'")
	if !strings.Contains(out, "disruption budget") {
		t.Errorf("of two replicas both went:\n%s", out)
	}
	w.expectMirrors("drained")
	w.sh(manual.Commands(w, "deploy/docs/operate.md", "--disable-eviction", "NODE", name))
	w.sh("kubectl uncordon " + name)
	w.waitRolledOut()
	w.expectMirrors("uncordoned")
}
