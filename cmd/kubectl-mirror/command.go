package main

import (
	"fmt"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	stamped "github.com/mirror-controller/mirror-controller/cmd/internal/version"
)

const (
	program     = "kubectl-mirror"
	displayName = "kubectl mirror"
)

// stamp is the version that the Makefile sets (-ldflags "-X main.stamp=v1.2.3").
var stamp string

const longHelp = `kubectl mirror shows what mirror-controller has done and would do, and why. Only adopt and purge change anything.

The settings of the controller are read from the annotations of its ClusterRoleBinding, or else from the arguments of its
Deployment. Flags that are named as the controller's replace them: without --controller the others have their defaults then,
with it those of that controller. Which settings count is said on stderr.

--namespace is the namespace of SOURCE for status, wait and purge, and that of the ConfigMap for explain and adopt. Status without
SOURCE shows the sources in it. plan and check are about the whole cluster and take none.

Completion: link kubectl_complete-mirror to this program, in a folder of your PATH. kubectl finds it by that name.

Exit codes: 0 all in sync or nothing to do, 1 not, 2 error.`

// cli is what all commands share.
type cli struct {
	kube     *genericclioptions.ConfigFlags
	settings settingsFlags
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
		Args:              knownCommand,
		RunE:              func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetVersionTemplate(stamped.Line(program, stamp))
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return fmt.Errorf("%w: --help lists the flags", err) })
	c.kube.AddFlags(root.PersistentFlags())
	root.PersistentFlags().AddFlagSet(c.settings.flags)
	_ = root.RegisterFlagCompletionFunc("namespace", func(cmd *cobra.Command, _ []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
		return c.completeNamespaces(cmd, nil, typed)
	})
	_ = root.RegisterFlagCompletionFunc("controller", c.completeControllers)
	root.AddCommand(newStatus(c), newExplain(c), newPlan(c), newWait(c), newAdopt(c), newPurge(c), newCheck(c))
	sayWhatIsExpected(root)
	return root
}

// client returns a client for the cluster that the flags of kubectl name.
func (c *cli) client() (kubernetes.Interface, error) {
	config, err := c.config()
	if err != nil {
		return nil, err
	}
	return kubernetes.NewForConfig(config)
}

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

// refuseNamespace returns an error if -n is given to a command that is about the whole cluster.
func (c *cli) refuseNamespace() error {
	if namespace := c.namespace(); namespace != "" {
		return fmt.Errorf("--namespace=%q: the command is about the whole cluster: leave it out", namespace)
	}
	return nil
}

// namespace returns the namespace that the user named with -n; empty: none, and that of the context does not count.
func (c *cli) namespace() string { return *c.kube.Namespace }

// session is one run of a command: a client, and the settings by which it decides.
type session struct {
	cluster  *cluster
	settings *settings
	say      func(string) // prints a line on stderr

	saidUnknown bool // that failures are not known
}

// begin finds the settings, and says on stderr where.
func (c *cli) begin(cmd *cobra.Command) (*session, error) {
	client, err := c.client()
	if err != nil {
		return nil, err
	}
	found, err := c.settings.find(cmd.Context(), client)
	if err != nil {
		return nil, err
	}
	s := &session{cluster: newCluster(client, found), settings: found, say: func(line string) { fmt.Fprintln(cmd.ErrOrStderr(), line) }}
	s.say("Settings: " + found.origin)
	return s, nil
}
