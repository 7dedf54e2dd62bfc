// Package plugin shows what people see of a cluster with kubectl mirror.
package plugin

import (
	"testing"

	"github.com/mirror-controller/mirror-controller/e2e/cluster"
	"github.com/mirror-controller/mirror-controller/e2e/policies"
	"github.com/mirror-controller/mirror-controller/e2e/shipped"
	"github.com/mirror-controller/mirror-controller/e2e/suite"
)

// Installed is a world with an installation of its own.
type Installed struct {
	*policies.Policed
	Namespace string
	// FullName is that of all that is installed, account the user as which the controller runs.
	FullName, Account string
}

// NewInstalled names an installation, which the caller makes.
func NewInstalled(t *testing.T, kind string, targets ...string) *Installed {
	t.Helper()
	w := &Installed{Policed: policies.At(suite.New(t, targets...))}
	w.Namespace = kind + "-" + w.Instance
	w.FullName = w.Namespace + "-mirror-controller"
	w.Account = cluster.ServiceAccountUser(w.Namespace, w.FullName)
	return w
}

// Start runs the controller as the Deployment does.
func (w *Installed) Start() *shipped.Process {
	w.Helper()
	as, err := shipped.Deployed(w.Context(), w.Cluster, w.Namespace, w.FullName, *suite.Binary)
	if err != nil {
		w.Fatal(err)
	}
	p, err := as.Start(shipped.RunOptions{})
	if err != nil {
		w.Fatal(err)
	}
	w.StopAtEnd(p)
	return p
}
