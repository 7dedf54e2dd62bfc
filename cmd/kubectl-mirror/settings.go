package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/mirror-controller/mirror-controller/mirror"
)

// deployed is the label by which the Deployments of controllers are found.
const deployed = "app.kubernetes.io/name=mirror-controller"

// settings are the options that count.
type settings struct {
	*mirror.Options
	deployment *appsv1.Deployment // of the controller; nil: they are those of flags alone

	leaderElect               bool
	leaseName, leaseNamespace string
}

// deciding are the flags of a controller that decide what is mirrored where. The first two name the targets.
var deciding = []string{
	"namespace-prefix", "all-namespaces", "namespace-selector", "exclude-namespace", "source-namespace",
	"mirror-label", "instance", "copy-label", "copy-annotation", "prune",
}

// settingsFlags are the flags by which a user says which settings count.
type settingsFlags struct {
	*pflag.FlagSet
	alone      *settings // those of the flags, also where these do not name the targets
	controller *string
}

// newSettingsFlags returns the flags of a controller that decide, and --controller.
func newSettingsFlags() *settingsFlags {
	f, all := &settingsFlags{alone: &settings{Options: mirror.NewOptions()}}, pflag.NewFlagSet("", pflag.ContinueOnError)
	f.FlagSet = pflag.NewFlagSet("", pflag.ContinueOnError)
	f.alone.AddFlags(all)
	for _, name := range deciding {
		f.AddFlag(all.Lookup(name))
	}
	f.controller = f.String("controller", "", "`NAMESPACE/NAME` of the Deployment of the controller.")
	return f
}

// nameTargets reports whether the flags say which namespaces are targets.
func (f *settingsFlags) nameTargets() bool { return f.Changed(deciding[0]) || f.Changed(deciding[1]) }

// find returns the settings that count: those of the flags, if they name the targets, or else those of each installed
// controller, which the flags change.
func (f *settingsFlags) find(ctx context.Context, client kubernetes.Interface) (all []*settings, err error) {
	for _, name := range deciding { // such as --source-namespace=$UNSET, which would mean all
		list := f.Lookup(name)
		if list.Value.Type() == "strings" && list.Changed && list.Value.String() == "" && list.DefValue == "" {
			return nil, fmt.Errorf("--%s=\"\": must not be empty", name)
		}
	}
	if *f.controller == "" && f.nameTargets() {
		return []*settings{f.alone}, f.alone.Options.Options.Validate()
	}
	deployments, err := deploymentsOf(ctx, client, *f.controller)
	if err == nil && len(deployments) == 0 {
		err = errors.New("no Deployment has the label " + deployed)
	}
	if unreachable := (*url.Error)(nil); errors.As(err, &unreachable) { // no flag would help
		return nil, err
	}
	if apierrors.IsForbidden(err) {
		return nil, fmt.Errorf("cannot find the controller: %w: ask about a source or a copy by its name or, if you may "+
			"read the cluster, give the flags of the controller, at least --namespace-prefix", err)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot find the controller: %w: give its flags, at least --namespace-prefix", err)
	}
	for i := range deployments {
		s, err := f.settingsOf(&deployments[i])
		if err != nil {
			return nil, fmt.Errorf("arguments of Deployment %s: %w", keyOf(s.deployment), err)
		}
		all = append(all, s)
	}
	return all, nil
}

// settingsOf returns the settings by the arguments of a Deployment, but for those flags that the user has given. A
// prefix and --all-namespaces replace each other. An error says which setting is invalid.
func (f *settingsFlags) settingsOf(d *appsv1.Deployment) (*settings, error) {
	options := *f.alone.Options
	s, args := &settings{Options: &options, deployment: d}, pflag.NewFlagSet("", pflag.ContinueOnError)
	args.ParseErrorsAllowlist.UnknownFlags = true
	s.AddFlags(args)
	args.BoolVar(&s.leaderElect, "leader-elect", false, "")
	args.StringVar(&s.leaseName, "leader-elect-resource-name", "mirror-controller", "")
	args.StringVar(&s.leaseNamespace, "leader-elect-resource-namespace", d.Namespace, "")
	err := args.ParseAll(containerOf(d).Args, func(flag *pflag.Flag, value string) error {
		if f.Changed(flag.Name) || f.nameTargets() && slices.Contains(deciding[:2], flag.Name) {
			return nil
		}
		return args.Set(flag.Name, value)
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
