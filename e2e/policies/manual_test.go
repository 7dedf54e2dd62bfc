package policies

import (
	"fmt"
	"strings"
	"testing"

	"github.com/mirror-controller/mirror-controller/e2e/manual"
)

// testManualPublishers lets a group and an account publish, and asks whether they may, by the commands of the manual.
func (w *Policed) testManualPublishers(t *testing.T) {
	const ask = "kubectl auth can-i mirror configmaps -n platform --as="
	commands := manual.Commands(t, "deploy/docs/gitops.md", "--serviceaccount=platform:deployer")
	ofGitOps, question, found := strings.Cut(commands, ask)
	if !found {
		t.Fatalf("the manual does not ask: %s", ofGitOps)
	}
	for bind, who := range map[string]string{
		manual.Commands(t, "deploy/docs/publish.md", "--group=platform-team"): "anybody --as-group=platform-team",
		ofGitOps: question,
	} {
		Sh(w.World, bind)
		w.Until("the answer is yes", func() error {
			if out, _ := w.Cluster.Shell(w.Context(), ask+who).Output(); string(out) != "yes\n" {
				return fmt.Errorf("it is %q", out)
			}
			return nil
		})
	}
}

// testRefusalGrants runs the command that a refusal of the publishers' policy has: then the same request is accepted.
func (w *Policed) testRefusalGrants(t *testing.T) {
	const ns = "newcomers"
	Sh(w.World, "kubectl create namespace "+ns)
	Sh(w.World, "kubectl create rolebinding edit -n "+ns+" --clusterrole=edit --user=newcomer")
	const publish = "kubectl create configmap probe -n " + ns + " --dry-run=client -o yaml | " +
		"kubectl label --local -f - mirror=true -o yaml | kubectl create -f - --as=newcomer --dry-run=server"
	var grant string
	w.Until("it is refused with a command", func() error {
		out, err := w.Cluster.Shell(w.Context(), publish).CombinedOutput()
		var found bool
		if _, grant, found = strings.Cut(string(out), "An admin grants it: "); err != nil && found {
			return nil
		}
		return fmt.Errorf("it is %v, %s", err, out)
	})
	Sh(w.World, grant)
	w.Until("it is accepted", func() error { return w.Cluster.Shell(w.Context(), publish).Run() })
}
