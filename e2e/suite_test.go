// Package e2e shows what the controller does, from outside: the binary that is built from this checkout, under
// the permissions and with the arguments of the shipped manifests, on a real etcd, kube-apiserver and
// kube-controller-manager. doc of package cluster says what these need; `make e2e` and `make e2e-rest` run the suite.
//
// The cases by which controllers of this kind break are found by their number: TestC07….
package e2e

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"

	"github.com/mirror-controller/mirror-controller/e2e/cluster"
	"github.com/mirror-controller/mirror-controller/e2e/outside"
	"github.com/mirror-controller/mirror-controller/e2e/shipped"
)

var (
	binary    = flag.String("controller", "../bin/mirror-controller", "the controller's binary")
	manifests = flag.String("deploy", "../deploy/base", "the kustomization that installs the controller")
)

// site is a cluster with the controller installed, and a watch on it from outside.
type site struct {
	cluster   *cluster.Cluster
	installed *shipped.Installation
	admin     kubernetes.Interface
	seen      *outside.Observer
}

// shared is the site of all tests that do no harm to the control plane; TestMain sets it.
var shared *site

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(run(m))
}

func run(m *testing.M) int {
	ctx, cancel := context.WithTimeout(context.Background(), time.Hour) // the first build of the control plane included
	defer cancel()
	var err error
	if shared, err = newSite(ctx); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	code := m.Run()
	figures.print()
	if err := shared.cluster.Stop(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

// figures are the measurements of the tests. go test hides the log of a test that passes, but shows the output of TestMain if
// it runs without package arguments.
var figures measured

type measured struct {
	mu    sync.Mutex
	lines []string
}

func (m *measured) print() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, line := range m.lines {
		fmt.Println(line)
	}
}

// figure logs what the test has measured, and has it printed when all tests have ended.
func (w *world) figure(format string, args ...any) {
	w.Helper()
	line := fmt.Sprintf(format, args...)
	w.Log(line)
	figures.mu.Lock()
	defer figures.mu.Unlock()
	figures.lines = append(figures.lines, w.Name()+": "+line)
}

// newSite starts a cluster and installs the controller. When it fails it leaves nothing behind.
func newSite(ctx context.Context) (*site, error) {
	s, err := newEmptySite(ctx)
	if err != nil {
		return nil, err
	}
	if s.installed, err = shipped.Install(ctx, s.cluster, *manifests, *binary); err == nil {
		err = s.confine(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, s.cluster.Stop())
	}
	return s, nil
}

// newEmptySite starts a cluster without the controller. When it fails it leaves nothing behind.
func newEmptySite(ctx context.Context) (*site, error) {
	c, err := cluster.Start(ctx, cluster.Options{})
	if err != nil {
		return nil, err
	}
	s := &site{cluster: c}
	if s.admin, err = kubernetes.NewForConfig(c.Admin()); err == nil {
		// Until the tests have ended: the cluster goes first.
		s.seen, err = outside.Observe(context.WithoutCancel(ctx), s.admin)
	}
	if err != nil {
		return nil, errors.Join(err, c.Stop())
	}
	return s, nil
}
