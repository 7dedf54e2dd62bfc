// Command demo starts a control plane and the controller on this machine, and shows what the controller does, step by
// step. It exits with 0 if every step happened. With -keep it runs until Ctrl-C, and prints what to try; arguments
// behind it are for the controller, also of a demo that runs already. It leaves nothing behind.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"k8s.io/client-go/kubernetes"

	"github.com/mirror-controller/mirror-controller/e2e/cluster"
	"github.com/mirror-controller/mirror-controller/e2e/shipped"
)

var (
	binary    = flag.String("controller", "bin/mirror-controller", "the controller's binary")
	manifests = flag.String("deploy", "deploy/default", "the kustomization that installs the controller")
	keep      = flag.Bool("keep", false, "run until Ctrl-C, and print what to try")
	link      = flag.String("link", "bin/playground", "with -keep, the link to the folder that terminals use")
)

func main() {
	flag.Parse()
	// SIGPIPE comes when nobody reads the output any more: Ctrl-C ends both programs of `make run | tee log`. It would
	// end this one before it has cleaned up, and so would SIGHUP, when the terminal is closed.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGPIPE)
	defer stop()
	start := tell
	if *keep {
		start = play
	}
	if err := start(ctx, flag.Args(), readOrNot{os.Stdout}); err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

// readOrNot is output that is no error of the writer when nobody reads it. The controller writes there until its end.
type readOrNot struct{ io.Writer }

func (w readOrNot) Write(text []byte) (int, error) {
	_, _ = w.Writer.Write(text)
	return len(text), nil
}

func tell(ctx context.Context, _ []string, out io.Writer) (err error) {
	start := time.Now()
	fmt.Fprintln(out, "Starting etcd and kube-apiserver on loopback. Your kubeconfig is not used.")
	c, err := cluster.Start(ctx, cluster.Options{Bare: true})
	if err != nil {
		return err
	}
	defer func() {
		err = errors.Join(err, c.Stop())
		if err == nil {
			fmt.Fprintln(out, "Everything is stopped. Nothing is left behind.")
		}
	}()
	fmt.Fprintf(out, "They are up after %s.\n", since(start))
	installed, err := shipped.Install(ctx, c, *manifests, *binary)
	if err != nil {
		return err
	}
	limited, err := c.Config(cluster.User{Name: tenant})
	if err != nil {
		return err
	}
	s := &story{client: c.Client(), out: out}
	if s.tenant, err = kubernetes.NewForConfig(limited); err != nil {
		return err
	}
	installed.Args = with(installed.Args, []string{"--deletion-grace=1s"}) // nobody waits five minutes for the last step
	controller, err := installed.Start(shipped.RunOptions{})
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "%s is installed: the controller, as its ServiceAccount with %s, and the policies.\n",
		filepath.Base(filepath.Dir(*manifests))+"/"+filepath.Base(*manifests), strings.Join(installed.Args, " "))
	if err := s.play(ctx); err != nil {
		return fmt.Errorf("%w\nthe controller printed:\n%s", err, controller.Log())
	}
	start = time.Now()
	if err := controller.Stop(stopPatience); err != nil {
		return fmt.Errorf("stop the controller: %w", err)
	}
	fmt.Fprintf(out, "\nThe controller was asked to stop, and ended with exit code 0 (%s).\n", since(start))
	return nil
}

// since is the time since start, in whole milliseconds.
func since(start time.Time) time.Duration { return time.Since(start).Round(time.Millisecond) }
