package main

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"
	cliflag "k8s.io/component-base/cli/flag"
	logsapi "k8s.io/component-base/logs/api/v1"

	"github.com/mirror-controller/mirror-controller/mirror"
)

// options are the flags of the process. Those of the controller are embedded:
// they select sources and targets. The others are about the process around the
// controller.
type options struct {
	*mirror.Options

	// kubeconfig is a file, and context one of the contexts in it. In a pod
	// both are usually empty: see findCluster.
	kubeconfig string
	context    string

	election electionOptions

	// Each address is host:port, where the host may be empty, or serveOff.
	healthAddress  string
	metricsAddress string
	profiling      bool // serve profiles beside the metrics

	logging *logsapi.LoggingConfiguration

	// These two print something instead of running the controller.
	version bool
	help    bool
}

// newOptions returns the defaults of all flags.
func newOptions() *options {
	return &options{
		Options:        mirror.NewOptions(),
		election:       newElectionOptions(),
		healthAddress:  ":8081",
		metricsAddress: ":8080",
		logging:        logsapi.NewLoggingConfiguration(),
	}
}

// bind returns flags that set the options, in the sections of the help text.
func (o *options) bind() *cliflag.NamedFlagSets {
	var sections cliflag.NamedFlagSets
	o.Options.AddFlags(sections.FlagSet("Mirroring flags"))

	api := sections.FlagSet("API server flags")
	api.StringVar(&o.kubeconfig, "kubeconfig", "",
		"Kubeconfig `file`. Default: $KUBECONFIG or, in a pod, the service account, but not "+
			"~/.kube/config.")
	api.StringVar(&o.context, "context", "",
		"Context of the kubeconfig. Default: its current context.")

	o.election.bind(sections.FlagSet("Leader election flags"))

	serving := sections.FlagSet("Serving flags")
	serving.StringVar(&o.metricsAddress, "metrics-bind-address", o.metricsAddress,
		"Address of /metrics. 0: off.")
	serving.StringVar(&o.healthAddress, "health-probe-bind-address", o.healthAddress,
		"Address of /healthz, /livez and /readyz, each also with ?verbose. 0: off.")
	serving.BoolVar(&o.profiling, "profiling", false,
		"Serve Go profiles at /debug/pprof/ on --metrics-bind-address, to every client. They "+
			"contain no data of ConfigMaps.")

	// component-base has more flags of logging. They are alpha, or for its
	// developers.
	logging := sections.FlagSet("Logging flags")
	logging.StringVar(&o.logging.Format, "logging-format", o.logging.Format,
		"Log format on stderr: text or json.")
	logging.VarP(logsapi.VerbosityLevelPflag(&o.logging.Verbosity), "v", "v",
		"Log verbosity. 0: what an operator needs; 2: each write; 4: each decision; "+
			"6: each request; 7 and more: also headers. Never data.")

	other := sections.FlagSet("Other flags")
	other.BoolVar(&o.version, "version", false, "Print the version and exit.")
	other.BoolVarP(&o.help, "help", "h", false, "Print this help and exit.")
	return &sections
}

// combine returns the flags of all sections as one set, which parses arguments.
func combine(sections *cliflag.NamedFlagSets) *pflag.FlagSet {
	fs := pflag.NewFlagSet(program, pflag.ContinueOnError)
	for _, section := range sections.Order {
		fs.AddFlagSet(sections.FlagSets[section])
	}
	return fs
}

// printHelp prints the flags by section. cliflag.PrintSections would do that,
// too, but pads the lines of each section with blanks.
func printHelp(w io.Writer, sections *cliflag.NamedFlagSets) {
	fmt.Fprintf(w, `%[1]s copies every ConfigMap labelled mirror=true into the namespaces whose
names begin with a given prefix, and keeps the copies in sync.

Usage:
  %[1]s --namespace-prefix=PREFIX [flags]
`, program)
	for _, section := range sections.Order {
		fmt.Fprintf(w, "\n%s:\n\n%s", section,
			sections.FlagSets[section].FlagUsagesWrapped(110)) // columns
	}
}

// complete returns the client configuration that the options ask for. Its error
// joins every value that is wrong, so that a user need not find them one by
// one.
func (o *options) complete() (*rest.Config, error) {
	wrong := []error{
		o.Options.Validate(),
		o.election.complete(),
		checkAddress("--health-probe-bind-address", o.healthAddress),
		checkAddress("--metrics-bind-address", o.metricsAddress),
	}
	if o.profiling && o.metricsAddress == serveOff {
		wrong = append(wrong, wrongValue("--profiling", "true",
			"has no effect without --metrics-bind-address: profiles are served there"))
	}
	format := o.logging.Format
	if format != logsapi.DefaultLogFormat && format != logsapi.JSONLogFormat {
		wrong = append(wrong, wrongValue("--logging-format", format, "must be text or json"))
	}
	config, err := o.clientConfig()
	// Without a cluster no value is wrong, so that error has to wait until all
	// values are good.
	if err != nil && (!errors.Is(err, errNoCluster) || errors.Join(wrong...) == nil) {
		wrong = append(wrong, errors.New(oneLine(err)))
	}
	return config, errors.Join(wrong...)
}

// parse sets the flags of fs from args. It stops at the first argument that it
// does not understand.
func parse(fs *pflag.FlagSet, args []string) error {
	if err := fs.Parse(args); err != nil {
		return errors.New(oneLine(err) + " (--help lists the flags)")
	}
	if fs.NArg() > 0 {
		return fmt.Errorf("%q: unexpected argument: only flags are allowed, written --flag=value",
			fs.Arg(0))
	}
	return nil
}

// notDefault returns each flag that has another value than its default, such as
// "--prune=true". The log of a start has them.
func notDefault(fs *pflag.FlagSet) (all []string) {
	fs.VisitAll(func(f *pflag.Flag) {
		if f.Value.String() != f.DefValue {
			all = append(all, spell(f)+"="+f.Value.String())
		}
	})
	return all
}

// spell returns how a user writes the flag, without a value: "--prune", or "-v"
// for a flag that has no longer name.
func spell(f *pflag.Flag) string {
	if f.Name == f.Shorthand {
		return "-" + f.Name
	}
	return "--" + f.Name
}

// wrongValue returns an error that names a flag, its wrong value, and in
// problem the values that are allowed.
func wrongValue(flag, value, problem string) error {
	return fmt.Errorf("%s=%q: %s", flag, value, problem)
}

// oneLine returns the text of err without line breaks: refuse prints one line
// for each error.
func oneLine(err error) string { return strings.Join(strings.Fields(err.Error()), " ") }
