package suite

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/mirror-controller/mirror-controller/e2e/shipped"
)

// Plugin returns the path of kubectl-mirror, which is built beside the controller.
func Plugin() string { return filepath.Join(filepath.Dir(*Binary), "kubectl-mirror") }

// Installation is a world of the shared cluster with an installation of its own.
type Installation struct {
	*World
	Namespace string
	FullName  string // of all that is installed
}

// NewInstallation names an installation, which the caller makes.
func NewInstallation(t *testing.T, kind string, targets ...string) *Installation {
	t.Helper()
	w := &Installation{World: New(t, targets...)}
	w.Namespace = kind + "-" + w.Instance
	w.FullName = w.Namespace + "-mirror-controller"
	return w
}

// Start runs the controller as the Deployment does, has that report its Pod
// ready, and waits until kubectl mirror check finds nothing to do.
func (w *Installation) Start() *shipped.Process {
	w.Helper()
	as, err := shipped.Deployed(w.Context(), w.Cluster, w.Namespace, w.FullName, *Binary)
	w.noError(err)
	p, err := as.Start(shipped.RunOptions{Args: Leased(30 * time.Second)})
	w.noError(err)
	w.StopAtEnd(p)
	w.Report(1)
	check := Plugin() + " check --controller=" + w.Namespace
	w.Until(check, func() error {
		out, err := w.Shell(w.Context(), check).CombinedOutput()
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	})
	return p
}

// Stop stops the controller, and has the Deployment report no Pod ready.
func (w *Installation) Stop(p *shipped.Process) {
	w.Helper()
	w.World.Stop(p)
	w.Report(0)
}

// Report sets how many Pods of the Deployment are ready, in place of the
// controllers that this cluster does without.
func (w *Installation) Report(ready int) {
	w.Helper()
	const status = `{"status": {"observedGeneration": 99, ` +
		`"replicas": %[1]d, "updatedReplicas": %[1]d, "readyReplicas": %[1]d}}`
	w.Sh("kubectl patch deployment " + w.FullName + " -n " + w.Namespace +
		" --subresource=status --patch='" + fmt.Sprintf(status, ready) + "'")
}
