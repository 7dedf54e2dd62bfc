package policies

import (
	"flag"
	"path/filepath"
	"testing"

	"github.com/mirror-controller/mirror-controller/e2e/shipped"
	"github.com/mirror-controller/mirror-controller/e2e/suite"
)

// The chart on a real API server. Package packaging compares its manifests with the kustomizations.

var helmProgram = flag.String("helm", "../../bin/helm", "the program helm")

// NewHelm returns a helm that talks to the shared cluster.
func NewHelm(t *testing.T) shipped.Helm {
	t.Helper()
	program, err := filepath.Abs(*helmProgram)
	if err != nil {
		t.Fatal(err)
	}
	return shipped.Helm{Program: program, Home: t.TempDir(), Kubeconfig: suite.Shared(t).Cluster.AdminKubeconfig()}
}
