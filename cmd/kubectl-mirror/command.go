package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/kubernetes"
	_ "k8s.io/client-go/plugin/pkg/client/auth" // the ways in which kubectl signs in
	"k8s.io/client-go/rest"

	stamped "github.com/mirror-controller/mirror-controller/cmd/internal/version"
	"github.com/mirror-controller/mirror-controller/cmd/kubectl-mirror/snapshot"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

const (
	program     = "kubectl-mirror"
	displayName = "kubectl mirror"
)

// stamp is the version that the Makefile sets (-ldflags "-X main.stamp=v1.2.3").
var stamp string

const longHelp = `kubectl mirror shows what mirror-controller has done and would do, and why. Only purge
changes anything.

The settings are the arguments of the Deployment of the installed controller; see also kubectl mirror plan --help.
A user who may see no more than a namespace gets by with the reports of the controller.`

// usage shows the commands first. The flags of kubectl and those of the controller come last, where they are shown.
const usage = `Usage:
  {{if .Runnable}}{{.UseLine}}{{else}}{{.CommandPath}} COMMAND{{end}}
{{- if .HasExample}}

Examples:
{{.Example}}{{end}}{{if .HasAvailableSubCommands}}

Commands:{{range .Commands}}{{if .IsAvailableCommand}}
  {{rpad .Name .NamePadding}} {{.Short}}{{end}}{{end}}{{end}}{{range flagsOf .}}

{{.Title}}:
{{.Usages}}{{end}}
`

// group is a group of flags in a help.
type group struct{ Title, Usages string }

// groups returns the groups of flags that the help of a command shows.
func (c *cli) groups(cmd *cobra.Command) (all []group) {
	kube, own := pflag.NewFlagSet("", pflag.ContinueOnError), pflag.NewFlagSet("", pflag.ContinueOnError)
	c.kube.AddFlags(kube)
	cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
		if kube.Lookup(f.Name) == nil && !slices.Contains(deciding, f.Name) {
			own.AddFlag(f)
		}
	})
	add := func(title string, flags *pflag.FlagSet) {
		if flags.HasAvailableFlags() {
			all = append(all, group{title, strings.TrimRight(flags.FlagUsages(), "\n")})
		}
	}
	add("Flags", own)
	if cmd.Name() == "plan" || cmd.Name() == "purge" {
		add("Flags of the controller, instead of those of the Deployment", c.settings.decidingFlags())
	}
	if !cmd.HasParent() {
		add("Flags of kubectl", kube)
	}
	return all
}

// cli is what all commands share.
type cli struct {
	kube     *genericclioptions.ConfigFlags
	settings *settingsFlags
}

func newRoot() *cobra.Command {
	c := &cli{kube: genericclioptions.NewConfigFlags(true), settings: newSettingsFlags()}
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
	cobra.AddTemplateFunc("flagsOf", c.groups)
	root.SetUsageTemplate(usage)
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return fmt.Errorf("%w: --help lists the flags", err) })
	c.kube.AddFlags(root.PersistentFlags())
	root.PersistentFlags().AddFlagSet(c.settings.FlagSet)
	root.AddCommand(newStatus(c), newExplain(c), newPlan(c), newWait(c), newPurge(c), newCheck(c))
	return root
}

// command returns a command whose result is printed in one of the formats, as -o says.
func (c *cli) command(use, short, long, example string, args cobra.PositionalArgs,
	run func(*cobra.Command, []string) (printed, error)) *cobra.Command {
	var format string
	choice := strings.Join(outputFormats, ", ")
	cmd := &cobra.Command{Use: use, Short: short, Long: long, Example: example,
		Args: args,
		RunE: func(cmd *cobra.Command, args []string) error {
			if !slices.Contains(outputFormats, format) {
				return fmt.Errorf("--output=%q: must be one of: %s", format, choice)
			}
			p, err := run(cmd, args)
			if err == nil {
				err = printAs(cmd.OutOrStdout(), format, p)
			}
			if err != nil {
				return err
			}
			return p.end()
		}}
	cmd.Flags().StringVarP(&format, "output", "o", outputFormats[0], "Output format, one of: "+choice+".")
	return cmd
}

// client returns a client for the cluster that the flags of kubectl name, as another user if one is given.
func (c *cli) client(as string) (kubernetes.Interface, error) {
	config, err := c.kube.ToRESTConfig()
	if err != nil {
		return nil, err
	}
	config.UserAgent = program + "/" + stamped.Of(stamp)
	config.ContentType = runtime.ContentTypeProtobuf
	config.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	config.QPS = -1 // no throttle of our own: few requests are in flight at a time
	config.WarningHandlerWithContext = rest.NoWarnings{}
	config.Impersonate.UserName = cmp.Or(as, config.Impersonate.UserName)
	return kubernetes.NewForConfig(config)
}

// refuseNamespace returns an error if -n is given to a command that is about the whole cluster.
func (c *cli) refuseNamespace() error {
	if *c.kube.Namespace != "" {
		return fmt.Errorf("--namespace=%q: the command is about the whole cluster: leave it out", *c.kube.Namespace)
	}
	return nil
}

// parseKey parses NAMESPACE/NAME, or a name or, as kubectl prints it, configmap/NAME, which are in the namespace of -n
// or of the context.
func (c *cli) parseKey(arg string) (types.NamespacedName, error) {
	parts := strings.Split(arg, "/")
	if len(parts) > 1 && slices.Contains([]string{"configmap", "configmaps", "cm"}, parts[0]) {
		parts = parts[1:]
	}
	switch {
	case slices.Contains(parts, "") || len(parts) > 2:
		return types.NamespacedName{}, fmt.Errorf("%q: must be NAMESPACE/NAME or a name", arg)
	case len(parts) == 1:
		namespace, _, err := c.kube.ToRawKubeConfigLoader().Namespace()
		return types.NamespacedName{Namespace: namespace, Name: parts[0]}, err
	case *c.kube.Namespace != "" && *c.kube.Namespace != parts[0]:
		return types.NamespacedName{}, fmt.Errorf("%q: is not in --namespace=%q: give one of the two", arg, *c.kube.Namespace)
	}
	return types.NamespacedName{Namespace: parts[0], Name: parts[1]}, nil
}

// parseKeys is parseKey for several arguments.
func (c *cli) parseKeys(args []string) (keys []types.NamespacedName, err error) {
	for _, arg := range args {
		k, err := c.parseKey(arg)
		if err != nil {
			return nil, err
		}
		keys = append(keys, k)
	}
	return keys, nil
}

// session is one run of a command: a client, and the settings by which it decides.
type session struct {
	*snapshot.Reader
	settings *settings
	out      io.Writer // stderr
	said     map[string]bool
	limited  bool // the user may see no more than a namespace
}

// beginAll returns a session for each controller.
func (c *cli) beginAll(cmd *cobra.Command) (all []*session, err error) {
	client, err := c.client("")
	if err != nil {
		return nil, err
	}
	found, err := c.settings.find(cmd.Context(), client)
	for _, settings := range found {
		all = append(all, c.newSession(cmd, client, settings))
	}
	return all, err
}

// begin is beginAll for a command that is about one controller.
func (c *cli) begin(cmd *cobra.Command) (*session, error) {
	all, err := c.beginAll(cmd)
	if err != nil {
		return nil, err
	}
	if len(all) > 1 {
		return nil, fmt.Errorf("found %d controllers: choose one with --controller", len(all))
	}
	return all[0], nil
}

// beginSome is begin for a command about some ConfigMaps, which also serves a user who may see no more than a namespace.
func (c *cli) beginSome(cmd *cobra.Command, args []string) (s *session, asked []types.NamespacedName, err error) {
	if asked, err = c.parseKeys(args); err != nil {
		return nil, nil, err
	}
	s, err = c.begin(cmd)
	if apierrors.IsForbidden(err) {
		s, err = c.beginLimited(cmd)
	}
	return s, asked, err
}

// beginLimited returns a session of a user who may see no more than a namespace.
func (c *cli) beginLimited(cmd *cobra.Command) (*session, error) {
	client, err := c.client("")
	if err != nil {
		return nil, err
	}
	s := c.newSession(cmd, client, c.settings.alone)
	s.limited = true
	return s, nil
}

func (c *cli) newSession(cmd *cobra.Command, client kubernetes.Interface, settings *settings) *session {
	s := &session{
		Reader:   &snapshot.Reader{Client: client, Rules: plan.NewRules(&settings.Options.Options)},
		settings: settings, out: cmd.ErrOrStderr(), said: map[string]bool{},
	}
	if runs, err := settings.runs(cmd.Context(), client); err == nil && !runs {
		s.say(fmt.Sprintf("No controller runs: Deployment %s has no ready replica, and none holds the Lease.",
			keyOf(settings.deployment)))
	}
	return s
}

// say prints a line on stderr, unless it is empty or was printed before.
func (s *session) say(line string) {
	if line != "" && !s.said[line] {
		s.said[line] = true
		fmt.Fprintln(s.out, printable(line))
	}
}
