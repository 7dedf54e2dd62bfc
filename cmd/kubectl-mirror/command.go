package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
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

// cli is what all commands share.
type cli struct {
	kube     *genericclioptions.ConfigFlags
	settings *settingsFlags // of the command that runs
}

func newRoot() *cobra.Command {
	c := &cli{kube: genericclioptions.NewConfigFlags(true)}
	root := &cobra.Command{
		Use:               program,
		Short:             "Show what mirror-controller has done and would do",
		Long:              longHelp,
		Version:           stamped.Of(stamp),
		Annotations:       map[string]string{cobra.CommandDisplayNameAnnotation: displayName},
		SilenceErrors:     true,
		SilenceUsage:      true,
		CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true},
	}
	root.SetVersionTemplate(stamped.Line(program, stamp))
	root.SetUsageTemplate(strings.Replace(root.UsageTemplate(), "Global Flags", "Flags of kubectl", 1))
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return fmt.Errorf("%w: --help lists the flags", err) })
	c.kube.AddFlags(root.PersistentFlags())
	root.AddCommand(newStatus(c), newExplain(c), newPlan(c), newWait(c), newPurge(c), newCheck(c))
	return root
}

// command completes a command, whose result is printed as -o says. The help shows the flags of the controller if it is
// one that plans.
func (c *cli) command(cmd *cobra.Command, plans bool, run func(*cobra.Command, []string) (printed, error)) *cobra.Command {
	var format string
	settings := newSettingsFlags(!plans)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if !slices.Contains(outputFormats, format) {
			return fmt.Errorf("--output=%q: must be one of: %s", format, strings.Join(outputFormats, ", "))
		}
		c.settings = settings
		p, err := run(cmd, args)
		if err == nil {
			err = printAs(cmd.OutOrStdout(), format, p)
		}
		if err != nil {
			return err
		}
		return p.end()
	}
	cmd.Flags().AddFlagSet(settings.FlagSet)
	cmd.Flags().StringVarP(&format, "output", "o", outputFormats[0],
		"Output format, one of: "+strings.Join(outputFormats, ", ")+".")
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

// session is one run of a command: a client, and the settings by which it decides.
type session struct {
	*snapshot.Reader
	settings *settings
	out      io.Writer // stderr
	said     map[string]bool
	narrow   bool // the user may see no more than a namespace
}

// begin returns a session. If a narrow view is enough, it goes by the flags alone for a user who may see no more than a
// namespace.
func (c *cli) begin(cmd *cobra.Command, narrowIsEnough bool) (*session, error) {
	client, err := c.client("")
	if err != nil {
		return nil, err
	}
	s := &session{out: cmd.ErrOrStderr(), said: map[string]bool{}}
	s.settings, err = c.settings.find(cmd.Context(), client)
	if s.narrow = narrowIsEnough && apierrors.IsForbidden(err); s.narrow {
		s.settings, err = c.settings.alone, nil
	}
	if err != nil {
		return nil, err
	}
	s.Reader = &snapshot.Reader{Client: client, Rules: plan.NewRules(&s.settings.Options.Options)}
	if runs, err := s.settings.runs(cmd.Context(), client); err == nil && !runs {
		s.say(fmt.Sprintf("No controller runs: Deployment %s has no ready replica, and none holds the Lease.",
			keyOf(s.settings.deployment)))
	}
	return s, nil
}

// beginKeys is begin for a command about some ConfigMaps, for which a narrow view is enough.
func (c *cli) beginKeys(cmd *cobra.Command, args []string) (*session, []types.NamespacedName, error) {
	var keys []types.NamespacedName
	for _, arg := range args {
		key, err := c.parseKey(arg)
		if err != nil {
			return nil, nil, err
		}
		keys = append(keys, key)
	}
	s, err := c.begin(cmd, true)
	return s, keys, err
}

// say prints a line on stderr, unless it is empty or was printed before.
func (s *session) say(line string) {
	if line != "" && !s.said[line] {
		s.said[line] = true
		fmt.Fprintln(s.out, printable(line))
	}
}
