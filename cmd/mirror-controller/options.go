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

// options are the flags of the process: those of the controller, the connection to the API server, leader election, the
// addresses of metrics and probes, and logging.
type options struct {
	*mirror.Options
	kubeconfig, context string
	election            electionOptions
	healthAddress       string
	metricsAddress      string
	profiling           bool
	logging             *logsapi.LoggingConfiguration
	version, help       bool
}

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
	api.StringVar(&o.kubeconfig, "kubeconfig", o.kubeconfig,
		"Kubeconfig `file`. Default: $KUBECONFIG or, in a pod, the service account, but not ~/.kube/config.")
	api.StringVar(&o.context, "context", o.context,
		"Context of the kubeconfig. Default: its current context.")

	o.election.bind(sections.FlagSet("Leader election flags"))

	serving := sections.FlagSet("Serving flags")
	serving.StringVar(&o.metricsAddress, "metrics-bind-address", o.metricsAddress,
		"Address of /metrics. 0: off.")
	serving.StringVar(&o.healthAddress, "health-probe-bind-address", o.healthAddress,
		"Address of /healthz, /livez and /readyz, each also with ?verbose. 0: off.")
	serving.BoolVar(&o.profiling, "profiling", o.profiling,
		"Serve Go profiles at /debug/pprof/ on --metrics-bind-address, to every client. They contain no data of ConfigMaps.")

	// The other flags of component-base are alpha, or for its developers.
	logging := sections.FlagSet("Logging flags")
	logging.StringVar(&o.logging.Format, "logging-format", o.logging.Format, "Log format on stderr: text or json.")
	logging.VarP(logsapi.VerbosityLevelPflag(&o.logging.Verbosity), "v", "v",
		"Log verbosity. 0: what an operator needs; 2: each write; 4: each decision; 6: each request; 7 and more: also "+
			"headers. Never data.")

	other := sections.FlagSet("Other flags")
	other.BoolVar(&o.version, "version", false, "Print the version and exit.")
	other.BoolVarP(&o.help, "help", "h", false, "Print this help and exit.")
	return &sections
}

// combine returns the flags of all sections as one set.
func combine(sections *cliflag.NamedFlagSets) *pflag.FlagSet {
	fs := pflag.NewFlagSet(program, pflag.ContinueOnError)
	for _, section := range sections.Order {
		fs.AddFlagSet(sections.FlagSets[section])
	}
	return fs
}

func printHelp(w io.Writer, sections *cliflag.NamedFlagSets) {
	fmt.Fprintf(w, `%[1]s copies every ConfigMap labelled mirror=true into the namespaces whose
names begin with a given prefix, and keeps the copies in sync.

Usage:
  %[1]s --namespace-prefix=PREFIX [flags]
`, program)
	// cliflag.PrintSections would fill the lines up with blanks.
	for _, section := range sections.Order {
		fmt.Fprintf(w, "\n%s:\n\n%s", section, sections.FlagSets[section].FlagUsagesWrapped(110))
	}
}

// complete returns the client configuration that the options ask for, or all values that are wrong, joined.
func (o *options) complete() (*rest.Config, error) {
	wrong := []error{o.Options.Validate(), o.election.complete()}
	bad := func(flag, value, want string) { wrong = append(wrong, wrongValue(flag, value, want)) }
	if problem := checkAddress(o.healthAddress); problem != "" {
		bad("--health-probe-bind-address", o.healthAddress, problem)
	}
	if problem := checkAddress(o.metricsAddress); problem != "" {
		bad("--metrics-bind-address", o.metricsAddress, problem)
	}
	if o.profiling && o.metricsAddress == serveOff {
		bad("--profiling", "true", "has no effect without --metrics-bind-address: profiles are served there")
	}
	if f := o.logging.Format; f != logsapi.DefaultLogFormat && f != logsapi.JSONLogFormat {
		bad("--logging-format", o.logging.Format, "must be text or json")
	}
	config, err := o.clientConfig()
	// A missing cluster is no wrong value, so it is reported only when all values are good.
	if err != nil && (!errors.Is(err, errNoCluster) || errors.Join(wrong...) == nil) {
		wrong = append(wrong, errors.New(oneLine(err)))
	}
	return config, errors.Join(wrong...)
}

// parse sets the flags of fs from args, up to the first that it does not understand.
func parse(fs *pflag.FlagSet, args []string) error {
	switch err := fs.Parse(args); {
	case err != nil:
		return errors.New(oneLine(err) + " (--help lists the flags)")
	case fs.NArg() > 0:
		return fmt.Errorf("%q: unexpected argument: only flags are allowed, written --flag=value", fs.Arg(0))
	}
	return nil
}

// notDefault returns the flags that have another value than their default, as they are written.
func notDefault(fs *pflag.FlagSet) (all []string) {
	fs.VisitAll(func(f *pflag.Flag) {
		if f.Value.String() != f.DefValue {
			all = append(all, spell(f)+"="+f.Value.String())
		}
	})
	return all
}

// spell returns how the flag is written, without a value.
func spell(f *pflag.Flag) string {
	if f.Name == f.Shorthand {
		return "-" + f.Name
	}
	return "--" + f.Name
}

// wrongValue names a flag, its wrong value, and the values that are allowed.
func wrongValue(flag, value, want string) error {
	return fmt.Errorf("%s=%q: %s", flag, value, want)
}

// oneLine returns the text of err without line breaks.
func oneLine(err error) string { return strings.Join(strings.Fields(err.Error()), " ") }
