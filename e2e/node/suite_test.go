package node

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/mirror-controller/mirror-controller/e2e/cluster"
	"github.com/mirror-controller/mirror-controller/e2e/outside"
)

// repository is the folder of the Makefile.
var repository, _ = filepath.Abs("../..") // fails where there is no working directory

const (
	// image is the name under which the node has the image of the controller.
	image = "localhost/mirror-controller:node"
	// home is the namespace of all sources, and system that of the controller.
	home, system = "platform", "mirror-system"
)

// strict is set in `make bench BENCH=node`, which takes a machine that does nothing else.
var strict = flag.Bool("strict", false, "fail above the limit of a time, and repeat a graceful stop 20 times")

// shared is the site of all tests. They run one after the other, and each leaves it as it was.
var shared site

// site is a cluster of one node, and a watch on it from outside.
type site struct {
	node     *Node
	seen     *outside.Observer
	replicas int // how the controller is installed; 0 if it is not
}

func TestMain(m *testing.M) {
	if err := Enter(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	flag.Parse()
	code := 1
	err := shared.start()
	if err == nil {
		code = m.Run()
	} else {
		fmt.Fprintln(os.Stderr, err)
	}
	if err := shared.node.Stop(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// start starts the node, with a hundred targets. They stay for all tests: to delete them would take longer than all
// that is tested.
func (s *site) start() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
	defer cancel()
	var err error
	if s.node, err = Start(ctx, repository, image); err != nil {
		return err
	}
	if err := cluster.CreateNamespaces(ctx, s.node.client, append(targets(), home)...); err != nil {
		return err
	}
	s.seen, err = outside.Observe(context.Background(), s.node.client)
	return err
}

// targets are the namespaces with copies.
func targets() []string {
	var out []string
	for i := range 100 {
		out = append(out, fmt.Sprintf("team-%03d", i))
	}
	return out
}

// measured logs a time, which -strict has fail the test above the limit.
func (w *world) measured(what string, took, limit time.Duration) {
	w.Helper()
	w.Logf("%s: %s, limit %s", what, took.Round(10*time.Millisecond), limit)
	if *strict && took > limit {
		w.Error("above the limit")
	}
}
