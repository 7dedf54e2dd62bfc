package main

import (
	"context"
	"fmt"
	"io"
	"os/signal"
	"strings"
	"syscall"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection"
	logsapi "k8s.io/component-base/logs/api/v1"
	_ "k8s.io/component-base/logs/json/register" // --logging-format=json
	"k8s.io/klog/v2"

	stamped "github.com/mirror-controller/mirror-controller/cmd/internal/version"
	"github.com/mirror-controller/mirror-controller/mirror"
)

// program is the name of the program: in its messages, as the author of its
// events, and to the API server.
const program = "mirror-controller"

// Exit codes.
const (
	exitDone   = 0 // did what it was asked to do, or was asked to stop
	exitFailed = 1 // a restart may help
	exitUsage  = 2 // wrong arguments or a wrong kubeconfig: a restart cannot help
)

// run is the whole program, and returns its exit code. It mirrors until ctx
// ends, a signal arrives, or it fails.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	opts := newOptions()
	sections := opts.bind()
	flags := combine(sections)
	err := parse(flags, args)
	switch {
	case err != nil:
		return refuse(stderr, err)
	case opts.help:
		printHelp(stdout, sections)
		return exitDone
	case opts.version:
		fmt.Fprint(stdout, stamped.Line(program, stamp))
		return exitDone
	}
	config, err := opts.complete()
	if err != nil {
		return refuse(stderr, err)
	}

	// Before any client is made: a client reads the verbosity when it is made.
	if err := setUpLogging(opts.logging, stderr); err != nil {
		fmt.Fprintf(stderr, "%s: set up logging: %s\n", program, oneLine(err))
		return exitFailed
	}
	defer klog.Flush()
	logger := klog.FromContext(ctx)

	// The first signal ends ctx. The second one has its default effect, because
	// the first one also ends the catching of signals.
	ctx, stopCatching := signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM)
	defer stopCatching()
	forgetSignal := context.AfterFunc(ctx, func() {
		stopCatching()
		logger.Info("Stopping, a second signal ends the process at once",
			"reason", context.Cause(ctx))
	})
	// Runs before stopCatching, which ends ctx, too: no signal, no log line.
	defer forgetSignal()

	logger.Info("Starting",
		"version", version(), "server", config.Host, "flags", notDefault(flags))
	if err := control(ctx, config, opts); err != nil {
		logger.Error(err, "Failed")
		return exitFailed
	}
	return exitDone
}

// refuse prints one line for each of the joined errors in the arguments, and
// returns the exit code.
func refuse(stderr io.Writer, err error) int {
	for line := range strings.SplitSeq(err.Error(), "\n") {
		fmt.Fprintf(stderr, "%s: %s\n", program, line)
	}
	return exitUsage
}

// maxVerbosity is the highest verbosity; each higher one counts as this one.
// From 8 on client-go logs the bodies of requests and answers, which hold the
// data of ConfigMaps.
const maxVerbosity = 7

// setUpLogging has klog, and so everything that logs in this process, write to
// w.
func setUpLogging(c *logsapi.LoggingConfiguration, w io.Writer) error {
	c.Verbosity = min(c.Verbosity, maxVerbosity)
	streams := &logsapi.LoggingOptions{ErrorStream: w, InfoStream: w}
	return logsapi.ValidateAndApplyWithOptions(c, streams, nil)
}

// stuckTolerance is the time after the end of its lease from which on a leader
// fails its liveness probe. kube-controller-manager has the same 20 s.
const stuckTolerance = 20 * time.Second

// control builds the controller and what surrounds it, and mirrors until ctx
// ends. When it returns, nothing is written any more.
func control(ctx context.Context, config *rest.Config, opts *options) error {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	events, err := newEventSender(client.CoreV1().Events(metav1.NamespaceAll))
	if err != nil {
		return err
	}
	controller, err := mirror.New(client, events, opts.Options)
	if err != nil {
		return err
	}

	// The probes and the metrics answer also in a standby, and until the last
	// write has ended.
	watchdog := leaderelection.NewLeaderHealthzAdaptor(stuckTolerance)
	for _, e := range []endpoint{
		healthEndpoint(opts.healthAddress, healthHandler(ctx, watchdog, controller.Synced)),
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
	lock, err := opts.election.lock(config)
	if err != nil {
		return err
	}
	election, err := opts.election.newElection(lock, controller.Interrupted, watchdog)
	if err != nil {
		return err
	}
	return election.run(ctx, canLead(controller), controller.Run)
}

// canLead returns a function that reports whether the controller may stand for
// election: its caches are full, and its watches are established. One that can
// list and not watch would lead for five minutes, end, and begin anew.
func canLead(c *mirror.Controller) func() bool {
	return func() bool { return c.Synced() && c.Interrupted() == 0 }
}
