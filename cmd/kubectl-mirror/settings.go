package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/mirror-controller/mirror-controller/mirror"
)

// deployed is the label by which the Deployments of controllers are found, whatever name a chart gives them.
const deployed = "app.kubernetes.io/part-of=mirror-controller"

// settings are the options that count.
type settings struct {
	*mirror.Options
	deployment *appsv1.Deployment // of the controller; nil: the options are those of flags alone
	flags      *pflag.FlagSet     // of the controller, with the values that count

	leaderElect               bool
	leaseName, leaseNamespace string
}

// runs reports whether a controller runs: a replica is ready, or leads.
func (s *settings) runs(ctx context.Context, client kubernetes.Interface) (bool, error) {
	if s.deployment == nil || s.deployment.Status.ReadyReplicas > 0 || !s.leaderElect {
		return s.deployment == nil || s.deployment.Status.ReadyReplicas > 0, nil
	}
	holder, err := s.leader(ctx, client)
	return holder != "", err
}

// leader returns the Pod that holds the Lease and renews it, by the time of the API server; empty if there is none.
func (s *settings) leader(ctx context.Context, client kubernetes.Interface) (string, error) {
	lease, err := client.CoordinationV1().Leases(s.leaseNamespace).Get(ctx, s.leaseName, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return "", nil
	} else if err != nil {
		return "", err
	}
	l := resourcelock.LeaseSpecToLeaderElectionRecord(&lease.Spec)
	now, err := client.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{},
		metav1.CreateOptions{})
	if now.CreationTimestamp.After(l.RenewTime.Add(time.Duration(l.LeaseDurationSeconds) * time.Second)) {
		return "", err
	}
	holder, _, _ := strings.Cut(l.HolderIdentity, "_") // the name of the Pod and a number
	return holder, err
}

// deciding are the flags of a controller that decide what is mirrored where. The first two name the targets.
var deciding = []string{
	"namespace-prefix", "all-namespaces", "namespace-selector", "exclude-namespace", "source-namespace",
	"mirror-label", "instance", "prune", "copy-label", "copy-annotation",
}

// settingsFlags are the flags by which a user says which settings count: --controller, and those that decide.
type settingsFlags struct {
	*pflag.FlagSet
	alone      *settings // those of the flags, also where these do not name the targets
	controller *string
}

// newSettingsFlags returns the flags. The help does not show those that decide: see [show].
func newSettingsFlags() *settingsFlags {
	f, all := &settingsFlags{alone: &settings{Options: mirror.NewOptions()}}, pflag.NewFlagSet("", pflag.ContinueOnError)
	f.FlagSet = pflag.NewFlagSet("", pflag.ContinueOnError)
	f.alone.AddFlags(all)
	for _, name := range deciding {
		all.Lookup(name).Hidden = true
		f.AddFlag(all.Lookup(name))
	}
	f.controller = f.String("controller", "", "`NAMESPACE/NAME` of the Deployment of the controller.")
	return f
}

// show has the help of a command show the flags of a controller that decide.
func show(cmd *cobra.Command) *cobra.Command {
	for _, name := range deciding {
		cmd.Flags().Lookup(name).Hidden = false
	}
	return cmd
}

// nameTargets reports whether the flags say which namespaces are targets.
func (f *settingsFlags) nameTargets() bool {
	return f.Changed(deciding[0]) || f.Changed(deciding[1])
}

// find returns the settings of one controller: that of --controller or, without it, that of the flags if these name the
// targets, or else the only one that is installed.
func (f *settingsFlags) find(ctx context.Context, client kubernetes.Interface) (*settings, error) {
	if *f.controller == "" && f.nameTargets() {
		return f.alone, f.alone.Options.Options.Validate()
	}
	deployments, err := deploymentsOf(ctx, client, *f.controller)
	switch {
	case apierrors.IsForbidden(err):
		return nil, fmt.Errorf("cannot find the controller: %w: the ClusterRole mirror-controller-viewer grants it; without "+
			"it, status -n, wait and explain answer about one namespace", err)
	case err != nil:
		return nil, err
	case len(deployments) == 0:
		return nil, errors.New("cannot find the controller: no Deployment has the label " + deployed + ": name its " +
			"Deployment with --controller or, before an installation, ask kubectl mirror plan with its flags, at least " +
			"--namespace-prefix")
	case len(deployments) > 1:
		return nil, fmt.Errorf("found %d controllers: choose one with --controller", len(deployments))
	}
	s, err := f.settingsOf(&deployments[0])
	if err != nil {
		return nil, fmt.Errorf("arguments of Deployment %s: %w", keyOf(s.deployment), err)
	}
	return s, nil
}

// settingsOf returns the settings by the arguments of a Deployment, but for those flags that the user has given. A
// prefix and --all-namespaces replace each other. An error says which setting is invalid.
func (f *settingsFlags) settingsOf(d *appsv1.Deployment) (*settings, error) {
	options := *f.alone.Options
	s := &settings{Options: &options, deployment: d, flags: pflag.NewFlagSet("", pflag.ContinueOnError)}
	s.flags.ParseErrorsAllowlist.UnknownFlags = true
	s.AddFlags(s.flags)
	s.flags.BoolVar(&s.leaderElect, "leader-elect", false, "")
	s.flags.StringVar(&s.leaseName, "leader-elect-resource-name", "mirror-controller", "")
	s.flags.StringVar(&s.leaseNamespace, "leader-elect-resource-namespace", d.Namespace, "")
	err := s.flags.ParseAll(containerOf(d).Args, func(flag *pflag.Flag, value string) error {
		if f.Changed(flag.Name) || f.nameTargets() && slices.Contains(deciding[:2], flag.Name) {
			return nil
		}
		return s.flags.Set(flag.Name, value)
	})
	return s, cmp.Or(err, s.Options.Options.Validate())
}

// deploymentsOf returns the Deployment with the key or, if that is empty, all of controllers.
func deploymentsOf(ctx context.Context, client kubernetes.Interface, key string) ([]appsv1.Deployment, error) {
	if key == "" {
		list, err := client.AppsV1().Deployments(metav1.NamespaceAll).List(ctx, metav1.ListOptions{LabelSelector: deployed})
		return list.Items, err
	}
	namespace, name, _ := strings.Cut(key, "/")
	if namespace == "" || name == "" {
		return nil, fmt.Errorf("--controller=%q: must be NAMESPACE/NAME of a Deployment", key)
	}
	d, err := client.AppsV1().Deployments(namespace).Get(ctx, name, metav1.GetOptions{})
	return []appsv1.Deployment{*d}, err
}

// containerOf returns the controller's container, an empty one if there is none. A service mesh may have put one of its
// own before it.
func containerOf(d *appsv1.Deployment) (c corev1.Container) {
	for _, c = range d.Spec.Template.Spec.Containers {
		if c.Name == "mirror-controller" {
			return c
		}
	}
	return c
}

// keyOf returns NAMESPACE/NAME of a Deployment.
func keyOf(d *appsv1.Deployment) string { return d.Namespace + "/" + d.Name }
