package node

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"

	"github.com/mirror-controller/mirror-controller/e2e/outside"
)

const (
	// repository is the folder of the Makefile, from here.
	repository = "../.."
	// image is the name under which the node has the image of the controller.
	image = "localhost/mirror-controller:node"
)

// shared is the site of all tests; TestMain sets it. They run one after the other, and each leaves it as it was.
var shared *site

// site is a cluster of one node, and a watch on it from outside.
type site struct {
	node      *Node
	admin     kubernetes.Interface
	seen      *outside.Observer
	installed string // how the controller is installed; empty if it is not
}

func TestMain(m *testing.M) {
	if err := Enter(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	flag.Parse()
	os.Exit(run(m))
}

func run(m *testing.M) int {
	ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
	defer cancel()
	var err error
	if shared, err = newSite(ctx); err != nil {
		fmt.Fprintln(os.Stderr, errors.Join(err, shared.node.Stop()))
		return 1
	}
	code := m.Run()
	figures.print(os.Stdout)
	if err := shared.node.Stop(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

func newSite(ctx context.Context) (*site, error) {
	s := &site{}
	var err error
	if s.node, err = Start(ctx, repository, image); err != nil {
		return s, err
	}
	s.admin = s.node.client
	s.seen, err = outside.Observe(context.Background(), s.admin)
	return s, err
}
