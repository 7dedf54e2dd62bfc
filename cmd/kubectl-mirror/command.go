package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	stamped "github.com/mirror-controller/mirror-controller/cmd/internal/version"
	"github.com/mirror-controller/mirror-controller/cmd/kubectl-mirror/installation"
	"github.com/mirror-controller/mirror-controller/cmd/kubectl-mirror/snapshot"
)

const (
	program     = "kubectl-mirror"
	displayName = "kubectl mirror"
)

// stamp is the version that the Makefile sets (-ldflags "-X main.stamp=v1.2.3").
var stamp string

const longHelp = `kubectl mirror shows what mirror-controller has done and would do, and why. Only purge changes anything.

The settings are those of the installed controller: the arguments of its Deployment, or else the annotations of its
ClusterRoleBinding. Flags that are named as the controller's replace them: without --controller the others have their defaults
then, with it those of that controller. A line on stderr says which settings count.

Completion: link kubectl_complete-mirror to this program, in a folder of your PATH. kubectl finds it by that name.

Exit codes: 0 all in sync or nothing to do, 1 not, 2 unknown: wrong usage, or the cluster could not be asked. Ctrl-C ends a
command at once, by the signal: shells have exit code 130 for that.`

// usage is cobra's template with the global flags folded away, as kubectl has it.
const usage = `Usage:
  {{if .HasAvailableSubCommands}}kubectl mirror COMMAND{{else}}kubectl mirror {{.Use}}{{end}}{{if .HasExample}}

Examples:
{{.Example}}{{end}}{{if .HasAvailableSubCommands}}

Commands:{{range .Commands}}{{if .IsAvailableCommand}}
  {{rpad .Name .NamePadding}} {{.Short}}{{end}}{{end}}{{end}}{{if and .HasParent .HasAvailableLocalFlags}}

Flags:
{{.LocalFlags.FlagUsages | trimTrailingWhitespaces}}{{end}}

"kubectl mirror options" lists the flags that all commands have.
`

// cli is what all commands share.
type cli struct {
	kube     *genericclioptions.ConfigFlags
	settings *installation.Flags
	hidden   bool // the user was told that not all can be seen
}

func newRoot() *cobra.Command {
	c := &cli{kube: genericclioptions.NewConfigFlags(true), settings: installation.NewFlags()}
	root := &cobra.Command{
		Use:               program,
		Short:             "Show what mirror-controller has done and would do",
		Long:              longHelp,
		Version:           stamped.Of(stamp),
		Annotations:       map[string]string{cobra.CommandDisplayNameAnnotation: displayName},
		SilenceErrors:     true,
		SilenceUsage:      true,
		CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true},
		RunE:              func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetVersionTemplate(stamped.Line(program, stamp))
	root.SetUsageTemplate(usage)
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return fmt.Errorf("%w: --help lists the flags", err) })
	c.kube.AddFlags(root.PersistentFlags())
	root.PersistentFlags().AddFlagSet(c.settings.FlagSet)
	_ = root.RegisterFlagCompletionFunc("namespace", c.complete(c.namespaces))
	_ = root.RegisterFlagCompletionFunc("controller", c.complete(installation.Keys))
	root.AddCommand(newStatus(c), newExplain(c), newPlan(c), newWait(c), newPurge(c), newCheck(c), newOptions())
	return root
}

func newOptions() *cobra.Command {
	return &cobra.Command{
		Use:   "options",
		Short: "List the flags that all commands have",
		Args:  arguments(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "All commands have these flags:\n\n%s", cmd.Root().PersistentFlags().FlagUsages())
			return err
		},
	}
}

// arguments returns a check for so many arguments.
func arguments(least, most int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) < least || len(args) > most {
			return fmt.Errorf("%s has %s, must be: %s %s", cmd.Name(), count(len(args), "argument", "arguments"), displayName, cmd.Use)
		}
		return nil
	}
}

// config says how to reach the cluster that the flags of kubectl name.
func (c *cli) config() (*rest.Config, error) {
	config, err := c.kube.ToRESTConfig()
	if err != nil {
		return nil, err
	}
	config.UserAgent = program + "/" + stamped.Of(stamp)
	config.ContentType = runtime.ContentTypeProtobuf
	config.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	config.QPS = -1 // no throttle of our own: few requests are in flight at a time
	config.WarningHandlerWithContext = rest.NoWarnings{}
	return config, nil
}

// client returns a client, as another user if one is given.
func (c *cli) client(as string) (kubernetes.Interface, error) {
	config, err := c.config()
	if err != nil {
		return nil, err
	}
	if as != "" {
		config.Impersonate = rest.ImpersonationConfig{UserName: as}
	}
	return kubernetes.NewForConfig(config)
}

// complete returns a function that completes a first argument with the results of list. Errors show as no completion.
func (c *cli) complete(list func(context.Context, kubernetes.Interface) ([]string, error)) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
		const userWaits = 3 * time.Second // after a press of Tab
		ctx, cancel := context.WithTimeout(cmd.Context(), userWaits)
		defer cancel()
		client, err := c.client("")
		if err != nil || len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		found, _ := list(ctx, client)
		return slices.DeleteFunc(found, func(f string) bool { return !strings.HasPrefix(f, typed) }), cobra.ShellCompDirectiveNoFileComp
	}
}

func (c *cli) sources(ctx context.Context, client kubernetes.Interface) ([]string, error) {
	found, err := c.settings.Find(ctx, client)
	if err != nil {
		return nil, err
	}
	return (&snapshot.Reader{Client: client, Rules: found.Rules()}).Sources(ctx)
}

func (c *cli) namespaces(ctx context.Context, client kubernetes.Interface) ([]string, error) {
	all, err := (&snapshot.Reader{Client: client}).Namespaces(ctx)
	return slices.Collect(maps.Keys(all)), err
}

// refuseNamespace returns an error if -n is given to a command that is about the whole cluster.
func (c *cli) refuseNamespace() error {
	if *c.kube.Namespace != "" {
		return fmt.Errorf("--namespace=%q: the command is about the whole cluster: leave it out", *c.kube.Namespace)
	}
	return nil
}

// namespace returns the namespace of -n, or of the context.
func (c *cli) namespace() (string, error) {
	namespace, _, err := c.kube.ToRawKubeConfigLoader().Namespace()
	return namespace, err
}

// parseKey parses NAMESPACE/NAME, or a name, which is in the namespace of -n or of the context.
func (c *cli) parseKey(arg string) (types.NamespacedName, error) {
	before, name, found := strings.Cut(arg, "/")
	switch {
	case !found && arg != "":
		namespace, err := c.namespace()
		return types.NamespacedName{Namespace: namespace, Name: arg}, err
	case before == "" || name == "" || strings.Contains(name, "/"):
		return types.NamespacedName{}, fmt.Errorf("%q: must be NAMESPACE/NAME or a name", arg)
	case *c.kube.Namespace != "" && *c.kube.Namespace != before:
		return types.NamespacedName{}, fmt.Errorf("%q: is not in the namespace of --namespace=%q: give one of the two", arg, *c.kube.Namespace)
	}
	return types.NamespacedName{Namespace: before, Name: name}, nil
}

// session is one run of a command: a client, and the settings by which it decides.
type session struct {
	*snapshot.Reader
	settings *installation.Settings
	differ   bool         // flags and annotations of the controller
	say      func(string) // prints a line on stderr
	said     map[string]bool
}

// begin finds the settings, and says on stderr where, and how flags and annotations differ.
func (c *cli) begin(cmd *cobra.Command) (*session, error) {
	client, err := c.client("")
	if err != nil {
		return nil, err
	}
	found, err := c.settings.Find(cmd.Context(), client)
	if err != nil {
		return nil, err
	}
	s := newSession(cmd, client, found)
	s.say("Settings: " + found.Origin)
	differences, err := found.Installation.Differences()
	for _, d := range differences {
		s.say(d.String())
	}
	s.differ = len(differences) > 0
	return s, err
}

func newSession(cmd *cobra.Command, client kubernetes.Interface, found *installation.Settings) *session {
	return &session{
		Reader:   &snapshot.Reader{Client: client, Options: &found.Options.Options, Rules: found.Rules()},
		settings: found, said: map[string]bool{},
		say: func(line string) { fmt.Fprintln(cmd.ErrOrStderr(), printable(line)) },
	}
}

// sayOnce prints a line on stderr, unless it is empty or was printed before.
func (s *session) sayOnce(line string) {
	if line != "" && !s.said[line] {
		s.said[line] = true
		s.say(line)
	}
}

// sayAbsence says if no controller runs.
func (s *session) sayAbsence(ctx context.Context) {
	s.sayOnce(s.settings.Installation.Absence(ctx, s.Client))
}

// verdict ends a command: with exit code 1 if the answer is no, or if flags and annotations differ.
func (s *session) verdict(yes bool) error { return verdict(yes && !s.differ) }

// isHidden reports whether the user may not see what a command needs.
func isHidden(err error) bool {
	var hidden installation.Unknown
	return errors.As(err, &hidden) || apierrors.IsForbidden(err)
}
