// Package suite is what the tests of folders beside it share: a cluster with the controller installed, and for each
// test a World, a part of that cluster of its own.
//
// There are three kinds of worlds. New makes one on the cluster that all tests
// of a package share: most tests take it. NewAlone has a cluster of its own, for
// a test that harms the control plane or judges all of it. In the world of
// NewInstalled the controller is not run by Start, but installed as the pages
// say, under the names that they have.
//
// They show what the controller does, from outside: the binary that is built from this checkout, under the permissions
// and with the arguments of the shipped manifests, on a real etcd and kube-apiserver. `make e2e` runs the tests of
// contract, faults, policies and plugin, and `make test-rest` those of install.
package suite

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"

	"github.com/mirror-controller/mirror-controller/e2e/cluster"
	"github.com/mirror-controller/mirror-controller/e2e/outside"
	"github.com/mirror-controller/mirror-controller/e2e/shipped"
)

// Flags of the tests, with paths from the folder of a test.
var (
	// Binary is the path of the controller.
	Binary = flag.String("controller", "../../bin/mirror-controller", "the controller's binary")
	// Manifests is the path of the kustomization.
	Manifests = flag.String("deploy", "../../deploy/base", "the kustomization that installs the controller")
)

// Site is a cluster with the controller installed, and a watch on it from outside.
type Site struct {
	Cluster   *cluster.Cluster
	Installed *shipped.Installation
	Admin     kubernetes.Interface
	Seen      *outside.Observer
	// Shell returns a command of sh as the admin, who has kubectl.
	Shell func(ctx context.Context, script string) *exec.Cmd
}

// started is the site of the tests of a package, once a test has needed it, and
// endStalls ends its stalls.
var (
	started   *Site
	endStalls = func() {}
)

var shared = sync.OnceValues(func() (*Site, error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Hour) // the first build of the control plane included
	defer cancel()
	var err error
	started, err = newSite(ctx)
	if err == nil && *stalling {
		endStalls = stall(started.Cluster)
	}
	return started, err
})

// Shared returns the site of all tests of a package that do no harm to the control plane.
func Shared(t testing.TB) *Site {
	t.Helper()
	s, err := shared()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// Main runs the tests of a package, and stops the cluster that they share.
func Main(m *testing.M) {
	code := m.Run()
	endStalls()
	if started != nil {
		if err := started.Cluster.Stop(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// newSite starts a cluster and installs the controller. When it fails it leaves nothing behind.
func newSite(ctx context.Context) (*Site, error) {
	c, err := cluster.Start(ctx, cluster.Options{})
	if err != nil {
		return nil, err
	}
	s := &Site{Cluster: c, Admin: c.Client(), Shell: c.Shell}
	// Until the tests have ended: the cluster goes first.
	s.Seen, err = outside.Observe(context.WithoutCancel(ctx), s.Admin)
	if err == nil {
		s.Installed, err = shipped.Install(ctx, c, *Manifests, *Binary)
	}
	if err == nil {
		err = s.confine(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, c.Stop())
	}
	return s, nil
}
