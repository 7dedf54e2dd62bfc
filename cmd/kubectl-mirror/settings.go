package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/spf13/pflag"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/mirror-controller/mirror-controller/mirror"
)

// deployed is the label by which the Deployments of controllers are found.
const deployed = "app.kubernetes.io/name=mirror-controller"

// settings are the options that count, and where they are from.
type settings struct {
	*mirror.Options
	origin     string
	deployment *appsv1.Deployment // of the controller; nil: they are the settings of flags alone

	leaderElect               bool
	leaseName, leaseNamespace string
}

// absence says that no replica of the controller is ready; empty if one is, or if there is no Deployment.
func (s *settings) absence() string {
	if s.deployment == nil || s.deployment.Status.ReadyReplicas > 0 {
		return ""
	}
	return fmt.Sprintf("No controller runs: Deployment %s has no ready replica.", keyOf(s.deployment))
}

// deciding are the flags of a controller that decide what is mirrored where.
var deciding = []string{
	"namespace-prefix", "all-namespaces", "namespace-selector", "exclude-namespace", "source-namespace",
	"mirror-label", "instance", "copy-label", "copy-annotation", "prune",
}

// flagsOf returns those flags of a controller that set o and have one of the names.
func flagsOf(o *mirror.Options, names []string) *pflag.FlagSet {
	all, fs := pflag.NewFlagSet("", pflag.ContinueOnError), pflag.NewFlagSet("", pflag.ContinueOnError)
	o.AddFlags(all)
	for _, name := range names {
		fs.AddFlag(all.Lookup(name))
	}
	return fs
}

// settingsFlags are the flags by which a user says which settings count.
type settingsFlags struct {
	*pflag.FlagSet
	alone      *settings // those of the flags, also where these do not name the targets
	controller *string
}

// newSettingsFlags returns the flags of a controller that decide, and --controller.
func newSettingsFlags() *settingsFlags {
	f := &settingsFlags{alone: &settings{Options: mirror.NewOptions(), origin: "flags"}}
	f.FlagSet = flagsOf(f.alone.Options, deciding)
	f.controller = f.String("controller", "", "`NAMESPACE/NAME` of the Deployment of the controller.")
	return f
}

// given returns the flags that change settings. They are parsed as a part of a larger set, so Visit does not know them.
func (f *settingsFlags) given() (names []string) {
	for _, name := range deciding {
		if f.Changed(name) {
			names = append(names, "--"+name)
		}
	}
	return names
}

// find returns the settings that count: those of the flags, if they name the targets, or else those of each installed
// controller, which the flags change.
func (f *settingsFlags) find(ctx context.Context, client kubernetes.Interface) (all []*settings, err error) {
	for _, name := range deciding { // such as --source-namespace=$UNSET, which would mean all
		list, ok := f.Lookup(name).Value.(pflag.SliceValue)
		if ok && f.Changed(name) && len(list.GetSlice()) == 0 && f.Lookup(name).DefValue == "[]" {
			return nil, fmt.Errorf("--%s=\"\": must not be empty", name)
		}
	}
	if *f.controller == "" && (f.Changed("namespace-prefix") || f.Changed("all-namespaces")) {
		return []*settings{f.alone}, f.alone.Options.Options.Validate()
	}
	deployments, err := deploymentsOf(ctx, client, *f.controller)
	if err == nil && len(deployments) == 0 {
		err = errors.New("no Deployment has the label " + deployed)
	}
	if unreachable := (*url.Error)(nil); errors.As(err, &unreachable) { // no flag would help
		return nil, err
	}
	if err != nil {
		return nil, fmt.Errorf("cannot find the controller: %w: give its flags, at least --namespace-prefix", err)
	}
	for i := range deployments {
		s, err := settingsOf(&deployments[i])
		if err == nil {
			f.override(s.Options)
			err = s.Options.Options.Validate()
		}
		if err != nil { // say of each line where it is from
			return nil, errors.New(s.origin + ": " + strings.ReplaceAll(err.Error(), "\n", "\n"+s.origin+": "))
		}
		if given := f.given(); len(given) > 0 {
			s.origin += ", changed by " + strings.Join(given, ", ")
		}
		all = append(all, s)
	}
	return all, nil
}

// override sets those options that are given, which are valid. A prefix and --all-namespaces replace each other.
func (f *settingsFlags) override(o *mirror.Options) {
	if f.Changed("namespace-prefix") || f.Changed("all-namespaces") {
		o.NamespacePrefixes, o.AllNamespaces = nil, false
	}
	to := flagsOf(o, deciding)
	for _, name := range deciding {
		value := f.Lookup(name).Value
		if list, ok := value.(pflag.SliceValue); ok && f.Changed(name) {
			_ = to.Lookup(name).Value.(pflag.SliceValue).Replace(list.GetSlice())
		} else if f.Changed(name) {
			_ = to.Set(name, value.String())
		}
	}
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

// settingsOf returns the settings by the arguments of a Deployment. An error says which one is invalid.
func settingsOf(d *appsv1.Deployment) (*settings, error) {
	s := &settings{Options: mirror.NewOptions(), deployment: d, origin: "arguments of Deployment " + keyOf(d)}
	fs := flagsOf(s.Options, deciding)
	fs.ParseErrorsAllowlist.UnknownFlags = true
	fs.BoolVar(&s.leaderElect, "leader-elect", false, "")
	fs.StringVar(&s.leaseName, "leader-elect-resource-name", "mirror-controller", "")
	fs.StringVar(&s.leaseNamespace, "leader-elect-resource-namespace", d.Namespace, "")
	return s, cmp.Or(fs.Parse(containerOf(d).Args), s.Options.Options.Validate())
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
