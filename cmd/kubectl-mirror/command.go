package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/kubernetes"
	_ "k8s.io/client-go/plugin/pkg/client/auth" // the ways in which kubectl signs in
	"k8s.io/client-go/tools/cache"

	stamped "github.com/mirror-controller/mirror-controller/cmd/internal/version"
	"github.com/mirror-controller/mirror-controller/cmd/kubectl-mirror/snapshot"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// program is the file that kubectl runs for its command displayName.
const (
	program     = "kubectl-mirror"
	displayName = "kubectl mirror"
)

// stamp is the version that the Makefile sets with -ldflags "-X
// main.stamp=v1.2.3".
var stamp string

const longHelp = `kubectl mirror shows what mirror-controller has done and would do, and why. Only purge
changes anything.

The settings are the arguments of the Deployment of the installed controller. Flags change them.
status and wait show what the controller has reported: for them it is enough to see a namespace.`

// cli has what all commands share: the flags of kubectl, such as --kubeconfig,
// --context and --namespace.
type cli struct{ *genericclioptions.ConfigFlags }

// newRoot returns the command `kubectl mirror` with its subcommands.
func newRoot() *cobra.Command {
	c := &cli{genericclioptions.NewConfigFlags(true)}
	root := &cobra.Command{
		Use:               program,
		Short:             "Show what mirror-controller has done and would do",
		Long:              longHelp,
		Version:           stamped.Of(stamp),
		Annotations:       map[string]string{cobra.CommandDisplayNameAnnotation: displayName},
		CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true},
		// run prints errors itself, in one line each.
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.SetVersionTemplate(stamped.Line(program, stamp))
	// The flags of kubectl are many: they get a group of their own, at the end.
	// On the root itself there are no other flags.
	root.SetUsageTemplate(strings.NewReplacer(
		"\nFlags:", "\nFlags{{if not .HasParent}} of kubectl{{end}}:",
		"Global Flags", "Flags of kubectl").Replace(root.UsageTemplate()))
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error {
		return fmt.Errorf("%w: --help lists the flags", err)
	})
	c.AddFlags(root.PersistentFlags())
	root.AddCommand(
		newStatus(c), newExplain(c), newPlan(c), newWait(c), newPurge(c), newCheck(c))
	return root
}

// action is what a command does with its keys: it begins the session, prints an
// answer with [session.print] and returns an [exitCode], or nil for exitYes. If
// it returns another error, it prints no answer. There are no keys if the
// command has no arguments.
type action func(ctx context.Context, s *session, keys []types.NamespacedName) error

// command completes cmd, which is about the ConfigMaps that its arguments name.
// It adds the flags of the settings and of the output, and has cmd run the
// action with what these flags ask for. A command about the whole cluster takes
// no --namespace, and needs settings that are certain; the help of the others
// shows only the flags that reports go by.
func (c *cli) command(cmd *cobra.Command, wholeCluster bool, run action) *cobra.Command {
	flags := newSettingsFlags()
	for _, name := range decidingFlags {
		isOfReports := name == "mirror-label" || name == "instance"
		flags.Lookup(name).Hidden = !wholeCluster && !isOfReports
	}
	cmd.Flags().AddFlagSet(flags.FlagSet)
	format := cmd.Flags().StringP("output", "o", outputFormats[0],
		"Output format, one of: "+strings.Join(outputFormats, ", ")+".")

	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if !slices.Contains(outputFormats, *format) {
			return fmt.Errorf("--output=%q: must be one of: %s",
				*format, strings.Join(outputFormats, ", "))
		}
		if wholeCluster && len(args) == 0 && *c.Namespace != "" {
			return fmt.Errorf("--namespace=%q: the command is about the whole cluster: "+
				"leave it out", *c.Namespace)
		}
		keys, err := c.parseKeys(args)
		if err != nil {
			return err
		}
		s := &session{
			cli:          c,
			cmd:          cmd,
			flags:        flags,
			format:       *format,
			wholeCluster: wholeCluster,
			settings:     flags.alone,
			said:         map[string]bool{},
		}
		return run(cmd.Context(), s, keys)
	}
	return cmd
}

// parseKeys parses arguments, each of which names a ConfigMap: NAMESPACE/NAME,
// NAME or, as kubectl prints it, configmap/NAME. A name alone is in the
// namespace of --namespace or else in that of the context.
func (c *cli) parseKeys(args []string) (keys []types.NamespacedName, err error) {
	for _, arg := range args {
		key, wrong := cache.ParseObjectName(strings.TrimPrefix(arg, "configmap/"))
		if wrong != nil || key.Name == "" {
			return nil, fmt.Errorf("%q: must be NAMESPACE/NAME or a name", arg)
		}
		if key.Namespace == "" {
			key.Namespace, _, err = c.ToRawKubeConfigLoader().Namespace()
		}
		keys = append(keys, key.AsNamespacedName())
	}
	return keys, err
}

// client returns a client for the cluster that the flags of kubectl name. With
// a user it asks in the name of that user, which takes the permission to
// impersonate.
func (c *cli) client(user string) (kubernetes.Interface, error) {
	config, err := c.ToRESTConfig()
	if err != nil {
		return nil, err
	}
	config.UserAgent = program + "/" + stamped.Of(stamp)
	// Lists in protobuf are smaller and parsed faster than in JSON.
	config.ContentType = runtime.ContentTypeProtobuf
	config.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	config.QPS = -1 // no throttle of our own: few requests are in flight at a time
	config.Impersonate.UserName = cmp.Or(user, config.Impersonate.UserName)
	return kubernetes.NewForConfig(config)
}

// session is one run of a command: a client, the settings by which it decides,
// and where it prints.
type session struct {
	cli          *cli
	cmd          *cobra.Command
	flags        *settingsFlags
	format       string          // one of outputFormats
	wholeCluster bool            // the command is about the whole cluster
	said         map[string]bool // the lines that say has printed

	settings *settings // by the flags alone, until the Deployment is seen

	*snapshot.Reader // there once the session has begun

	// stalled is a line that no controller runs; empty if one does, or if that is
	// not known. led is when the leader took over, if there is one. askForLeader
	// sets both.
	stalled string
	led     time.Time
	// sees is set once the user has seen whether a controller runs.
	sees bool
}

// begin begins the session, or begins it anew: the controller may have changed.
// A user who may not see the settings of the controller has those by the flags
// alone, unless that would answer wrongly: the command is about the whole
// cluster, or --controller has others. Whoever has seen them before is refused
// for a moment.
func (s *session) begin(ctx context.Context) error {
	client, err := s.cli.client("")
	if err != nil {
		return err
	}
	found, err := s.flags.find(ctx, client)
	needsIt := s.wholeCluster || *s.flags.controller != "" || s.settings.deployment != nil
	switch {
	case err == nil:
		s.settings = found
	case needsIt || !apierrors.IsForbidden(err):
		return err
	}
	s.Reader = &snapshot.Reader{
		Client: client,
		Rules:  plan.NewRules(&s.settings.Options.Options),
		Flags:  s.flags.given(),
	}
	return nil
}

// askForLeader asks whether a controller runs, and prints a line if none does.
// It prints none if the user may not see that, or if the API server does not
// know reviews. Whoever has seen it before is refused for a moment.
func (s *session) askForLeader(ctx context.Context) {
	var err error
	s.stalled, s.led, err = s.settings.stalled(ctx, s.Client)
	isUnseen := !s.sees && (apierrors.IsForbidden(err) || apierrors.IsNotFound(err))
	if err != nil && !isUnseen {
		s.stalled = "Cannot see whether a controller runs: " + brief(err)
	}
	s.sees = s.sees || err == nil && s.settings.deployment != nil
	s.say(s.stalled)
}

// say prints a line for the user on stderr, beside the answer on stdout. It
// prints no empty line, and none a second time: wait looks again and again.
func (s *session) say(line string) {
	if line != "" && !s.said[line] {
		s.said[line] = true
		fmt.Fprintln(s.cmd.ErrOrStderr(), escape(line))
	}
}

// print prints the answer of the command, as -o asks for.
func (s *session) print(a answer) { printAs(s.cmd.OutOrStdout(), s.format, a) }
