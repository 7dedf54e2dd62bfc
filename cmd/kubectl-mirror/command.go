package main

import (
	"cmp"
	"context"
	"fmt"
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
	"k8s.io/client-go/tools/cache"

	stamped "github.com/mirror-controller/mirror-controller/cmd/internal/version"
	"github.com/mirror-controller/mirror-controller/cmd/kubectl-mirror/snapshot"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

const program, displayName = "kubectl-mirror", "kubectl mirror"

// stamp is the version that the Makefile sets (-ldflags "-X main.stamp=v1.2.3").
var stamp string

const longHelp = `kubectl mirror shows what mirror-controller has done and would do, and why. Only purge
changes anything.

The settings are the arguments of the Deployment of the installed controller; see also kubectl mirror plan --help.
A user who may see no more than a namespace gets by with the reports of the controller.`

// cli is what all commands share.
type cli struct {
	kube *genericclioptions.ConfigFlags
}

func newRoot() *cobra.Command {
	c := &cli{kube: genericclioptions.NewConfigFlags(true)}
	root := &cobra.Command{
		Use: program, Short: "Show what mirror-controller has done and would do", Long: longHelp,
		Version: stamped.Of(stamp), SilenceErrors: true, SilenceUsage: true,
		Annotations:       map[string]string{cobra.CommandDisplayNameAnnotation: displayName},
		CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true},
	}
	root.SetVersionTemplate(stamped.Line(program, stamp))
	root.SetUsageTemplate(strings.NewReplacer("\nFlags:", "\nFlags{{if not .HasParent}} of kubectl{{end}}:",
		"Global Flags", "Flags of kubectl").Replace(root.UsageTemplate()))
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return fmt.Errorf("%w: --help lists the flags", err) })
	c.kube.AddFlags(root.PersistentFlags())
	root.AddCommand(newStatus(c), newExplain(c), newPlan(c), newWait(c), newPurge(c), newCheck(c))
	return root
}

// command completes a command about some ConfigMaps, all of a namespace, or the whole cluster, and prints as -o says.
func (c *cli) command(cmd *cobra.Command, wholeCluster bool,
	run func(context.Context, *session, []types.NamespacedName) (printed, error)) *cobra.Command {
	var format string
	settings := newSettingsFlags()
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if !slices.Contains(outputFormats, format) {
			return fmt.Errorf("--output=%q: must be one of: %s", format, strings.Join(outputFormats, ", "))
		}
		if wholeCluster && *c.kube.Namespace != "" {
			return fmt.Errorf("--namespace=%q: the command is about the whole cluster: leave it out", *c.kube.Namespace)
		}
		keys, err := c.parseKeys(args)
		if err != nil {
			return err
		}
		s, err := c.begin(cmd, settings, wholeCluster)
		if err != nil {
			return err
		}
		p, err := run(cmd.Context(), s, keys)
		if err == nil {
			printAs(cmd.OutOrStdout(), format, p)
			err = p.end()
		}
		return err
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

// parseKeys parses NAMESPACE/NAME, or a name or, as kubectl prints it, configmap/NAME, which are in the namespace of -n
// or of the context.
func (c *cli) parseKeys(args []string) (keys []types.NamespacedName, err error) {
	for _, arg := range args {
		key, wrong := cache.ParseObjectName(strings.TrimPrefix(arg, "configmap/"))
		switch {
		case wrong != nil || key.Name == "":
			return nil, fmt.Errorf("%q: must be NAMESPACE/NAME or a name", arg)
		case key.Namespace == "":
			key.Namespace, _, err = c.kube.ToRawKubeConfigLoader().Namespace()
		case *c.kube.Namespace != "" && *c.kube.Namespace != key.Namespace:
			return nil, fmt.Errorf("%q: is not in --namespace=%q: give one of the two", arg, *c.kube.Namespace)
		}
		keys = append(keys, key.AsNamespacedName())
	}
	return keys, err
}

// session is one run of a command: a client, and the settings by which it decides.
type session struct {
	*snapshot.Reader
	settings *settings
	cmd      *cobra.Command
	said     map[string]bool
	narrowed error // not nil if the user may see no more than a namespace
}

// begin returns a session. A user who may see no more than a namespace has one that goes by the flags alone, but for a
// command that is about the whole cluster.
func (c *cli) begin(cmd *cobra.Command, flags *settingsFlags, wholeCluster bool) (*session, error) {
	client, err := c.client("")
	if err != nil {
		return nil, err
	}
	s := &session{cmd: cmd, said: map[string]bool{}}
	s.settings, err = flags.find(cmd.Context(), client)
	if apierrors.IsForbidden(err) && !wholeCluster {
		s.settings, s.narrowed, err = flags.alone, err, nil
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

// say prints a line on stderr, unless it is empty or was printed before.
func (s *session) say(line string) {
	if line != "" && !s.said[line] {
		s.said[line] = true
		fmt.Fprintln(s.cmd.ErrOrStderr(), printable(line))
	}
}
