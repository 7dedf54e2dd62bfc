package install

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/mirror-controller/mirror-controller/e2e/manual"
	"github.com/mirror-controller/mirror-controller/e2e/overlay"
	"github.com/mirror-controller/mirror-controller/e2e/shipped"
	"github.com/mirror-controller/mirror-controller/e2e/suite"
)

// alwaysConfigured is what kubectl prints each time: it always sends the selector, which the API says to replace as a
// whole.
const alwaysConfigured = "poddisruptionbudget.policy/mirror-controller configured\n"

// TestDocsMoveNamespace moves the installation to another namespace while the controller runs, by the commands of the
// manual. The copies stay as they are, the new controller goes on, and the old one has no permissions any more.
//
// The example has all components. When it is applied again, kubectl reports no change, so that its output shows a
// change that somebody made. A default of the API in a list that kubectl replaces as a whole would count as a change.
func TestDocsMoveNamespace(t *testing.T) {
	t.Parallel()
	w := suite.NewInstalled(t, "a", "b")
	user, former := startDeployed(w, "mirror-system")
	source := w.CreateSource(w.Home, "settings")
	w.WaitInSync(source, w.NS("a"), w.NS("b"))
	copies := w.Copies("settings", w.NS("a"), w.NS("b"))

	// The API server does not know the kinds of the Prometheus operator.
	moved := overlay.Example("# - ../components/monitoring\n", "", "# - ../", "- ../deploy/",
		"namespace: mirror-system", "namespace: my-system")
	folder := filepath.Join(overlay.Dir(t, map[string]string{"mine": moved}), "mine")
	commands := manual.Commands(t, "deploy/docs/operate.md", "kubectl delete namespace mirror-system")
	apply, remove, _ := strings.Cut(commands, "\n")
	w.Sh("cd " + folder + "\n" + apply)
	for line := range strings.Lines(w.Sh("cd " + folder + "\n" + apply)) {
		if !strings.HasSuffix(line, " unchanged\n") && line != alwaysConfigured {
			t.Errorf("applied again: %s", line)
		}
	}
	startDeployed(w, "my-system")
	w.Until("the former account has no permissions", func() error {
		ask := "kubectl auth can-i update configmaps -n team-a --as=" + user
		if out, _ := w.Cluster.Shell(w.Context(), ask).Output(); string(out) != "no\n" {
			return errors.New("it still has them")
		}
		return nil
	})
	w.Stop(former)
	w.Settle(w.NS("a"), w.NS("b"))
	w.Untouched(copies...)

	w.Sh(remove)
	w.WaitInSync(w.Edit(w.Home, "settings", suite.WithData(map[string]string{"key": "two"})), w.NS("a"), w.NS("b"))
	w.SameObjects(copies)
}

// startDeployed runs the controller as its Deployment in the namespace does, and returns the account, too.
func startDeployed(w *suite.World, namespace string) (user string, p *shipped.Process) {
	w.Helper()
	installed, err := shipped.Deployed(w.Context(), w.Cluster, namespace, "mirror-controller", *suite.Binary)
	if err == nil {
		args := append([]string{"--deletion-grace=1s"}, suite.Leased(30*time.Second)...)
		p, err = installed.Start(shipped.RunOptions{Args: args})
	}
	if err != nil {
		w.Fatal(err)
	}
	w.StopAtEnd(p)
	return installed.User, p
}
