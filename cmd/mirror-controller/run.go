package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/klog/v2"

	"github.com/mirror-controller/mirror-controller/mirror"
)

// name is the name of the program: in its messages, as the author of its events, and to the API server.
const name = "mirror-controller"

// Exit codes.
const (
	exitDone   = 0 // did what it was asked, or was asked to stop
	exitFailed = 1
	exitUsage  = 2 // wrong arguments or a wrong kubeconfig: a restart cannot help
)

// run is the whole program. It returns its exit code, at the latest when ctx ends or a signal arrives.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	opts := newOptions()
	flags := opts.bind()
	invalid, err := parse(combine(flags), args)
	switch {
	case err != nil:
		return refuse(stderr, errors.New(oneLine(err)))
	case opts.help:
		printHelp(stdout, flags)
		return exitDone
	case opts.version && invalid == nil:
		printVersion(stdout)
		return exitDone
	}
	config, err := opts.complete(invalid)
	if err != nil {
		return refuse(stderr, err)
	}
	// Before any client is made: a client reads the verbosity when it is made.
	if err := setUpLogging(opts.logging, stderr); err != nil {
		fmt.Fprintf(stderr, "%s: set up logging: %s\n", name, oneLine(err))
		return exitFailed
	}
	defer klog.Flush()

	logger := klog.FromContext(ctx)
	ctx, stop := untilSignal(ctx)
	defer stop()
	logger.Info("Starting", "version", version(), "server", config.Host, "flags", notDefault(flags))
	if err := control(ctx, config, opts); err != nil {
		logger.Error(err, "Failed")
		return exitFailed
	}
	return exitDone
}

// refuse prints one line for each error in the arguments.
func refuse(stderr io.Writer, err error) int {
	for line := range strings.SplitSeq(err.Error(), "\n") {
		fmt.Fprintf(stderr, "%s: %s\n", name, line)
	}
	return exitUsage
}

// stuckTolerance is the time after the end of its lease from which on a leader counts as stuck.
const stuckTolerance = 20 * time.Second

// control mirrors until ctx ends. When it returns, nothing is written any more.
func control(ctx context.Context, config *rest.Config, opts *options) (err error) {
	refused := &refusals{}
	config.Wrap(refused.wrap)
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	recorder, err := startEvents(ctx, client.CoreV1().Events(metav1.NamespaceAll))
	if err != nil {
		return fmt.Errorf("record events: %w", err)
	}
	// The last event comes after the last write.
	defer func() { recorder.endAfter(err) }()
	opts.Options.Namespace = opts.election.namespace
	controller, err := mirror.New(client, recorder, opts.Options)
	if err != nil {
		return err
	}
	watchdog := leaderelection.NewLeaderHealthzAdaptor(stuckTolerance)
	for _, e := range []endpoint{
		healthEndpoint(opts.healthAddress, healthHandler(ctx, watchdog, controller.Synced, refused)),
		metricsEndpoint(opts.metricsAddress, metricsHandler(controller, opts.profiling)),
	} {
		stop, err := e.serve(ctx)
		if err != nil {
			return err
		}
		defer stop()
	}
	if !opts.election.enabled {
		return controller.Run(ctx, mirror.Alone(ctx))
	}
	election, err := opts.elect(config, watchdog, recorder.cancel)
	if err != nil {
		return err
	}
	return election.run(ctx, controller.Synced, controller.Run)
}

// elect returns the election that the options ask for.
func (o *options) elect(config *rest.Config, watchdog *leaderelection.HealthzAdaptor, lost func()) (*election, error) {
	lock, err := o.election.lock(config)
	if err != nil {
		return nil, err
	}
	return o.election.newElection(lock, watchdog, lost)
}

// untilSignal returns a context that ends at the first SIGINT or SIGTERM, or when stop is called. Signals after the
// first have their default effect, which is to kill.
func untilSignal(ctx context.Context) (_ context.Context, stop context.CancelFunc) {
	ctx, stop = context.WithCancel(ctx)
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	go func() {
		defer stop()
		select {
		case <-ctx.Done():
			signal.Stop(signals)
		case received := <-signals:
			signal.Stop(signals)
			klog.FromContext(ctx).Info("Stopping, a second signal ends the process at once", "signal", received.String())
		}
	}()
	return ctx, stop
}
