package install

import (
	"strings"
	"testing"

	"github.com/mirror-controller/mirror-controller/e2e/manual"
	"github.com/mirror-controller/mirror-controller/e2e/suite"
)

// TestDocsFluxLabel publishes the source of the manual that Flux watches: its copies have the label by which Flux does so.
func TestDocsFluxLabel(t *testing.T) {
	t.Parallel()
	w := suite.New(t, "a")
	const page, flag, label = "deploy/docs/gitops.md", "--copy-label=reconcile.fluxcd.io/watch", "reconcile.fluxcd.io/watch"
	w.Start(manual.Inline(t, page, flag))
	source := manual.Find(t, page, "name: cluster-vars").Text
	sh(w, "kubectl apply -f - <<'END'\n"+
		strings.NewReplacer("namespace: platform", "namespace: "+w.Home, "mirror: ", w.Label+": ").Replace(source)+"END")
	w.WaitInSync(w.Live(w.Home, "cluster-vars"), w.NS("a"))
	if got := w.Live(w.NS("a"), "cluster-vars").Labels[label]; got != "Enabled" {
		t.Errorf("the copy has the label %s=%q, want Enabled", label, got)
	}
}
