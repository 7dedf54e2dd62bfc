package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/client-go/kubernetes"

	"github.com/mirror-controller/mirror-controller/mirror"
)

// deployed is the label by which the Deployments of controllers are found, whatever name a chart gives them.
const deployed = "app.kubernetes.io/part-of=mirror-controller"

// settings are the options that count.
type settings struct {
	*mirror.Options
	deployment *appsv1.Deployment // of the controller; nil: they are those of flags alone
	installed  *mirror.Options    // those of the Deployment alone; nil: there is none

	leaderElect               bool
	leaseName, leaseNamespace string
}

// leader returns the Pod that holds the Lease and renews it; empty if there is none. The time is that of the API server,
// which everybody may ask for: the machine of the user may have another.
func (s *settings) leader(ctx context.Context, client kubernetes.Interface) (string, error) {
	lease, err := client.CoordinationV1().Leases(s.leaseNamespace).Get(ctx, s.leaseName, metav1.GetOptions{})
	l := lease.Spec
	if err != nil || l.HolderIdentity == nil || l.RenewTime == nil || l.LeaseDurationSeconds == nil {
		if apierrors.IsNotFound(err) {
			err = nil
		}
		return "", err
	}
	now, err := client.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{},
		metav1.CreateOptions{})
	if err != nil || !now.CreationTimestamp.Time.Before(l.RenewTime.Add(time.Duration(*l.LeaseDurationSeconds)*time.Second)) {
		return "", err
	}
	holder, _, _ := strings.Cut(*l.HolderIdentity, "_") // the name of the Pod and a number
	return holder, nil
}

// runs reports whether a controller runs: a replica is ready, or leads.
func (s *settings) runs(ctx context.Context, client kubernetes.Interface) (bool, error) {
	if s.deployment == nil || s.deployment.Status.ReadyReplicas > 0 || !s.leaderElect {
		return s.deployment == nil || s.deployment.Status.ReadyReplicas > 0, nil
	}
	holder, err := s.leader(ctx, client)
	return holder != "", err
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

// decidingFlags returns the flags of a controller that decide.
func (f *settingsFlags) decidingFlags() *pflag.FlagSet {
	all := pflag.NewFlagSet("", pflag.ContinueOnError)
	for _, name := range deciding {
		all.AddFlag(f.Lookup(name))
	}
	return all
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
	if unreachable := (*url.Error)(nil); errors.As(err, &unreachable) || apierrors.IsUnauthorized(err) {
		return nil, err // no flag would help
	}
	if apierrors.IsForbidden(err) {
		return nil, fmt.Errorf("cannot find the controller: %w: the ClusterRole mirror-controller-viewer grants it; without "+
			"it, ask about a namespace with -n, or about a source or a copy by its name", err)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot find the controller: %w: name its Deployment with --controller or, before an "+
			"installation, ask kubectl mirror plan with its flags, at least --namespace-prefix", err)
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
	s.installed = mirror.NewOptions()
	installed := pflag.NewFlagSet("", pflag.ContinueOnError)
	s.installed.AddFlags(installed)
	err := args.ParseAll(containerOf(d).Args, func(flag *pflag.Flag, value string) error {
		if installed.Lookup(flag.Name) != nil {
			_ = installed.Set(flag.Name, value) // args says what is wrong
		}
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

// settingPrefix begins the annotations by which the policies go.
const settingPrefix = "mirror-controller.github.io/"

// setting is a flag that an annotation of the ClusterRoleBinding repeats; otherwise applies where there is none.
type setting struct{ name, value, otherwise string }

// annotated returns the settings that annotations repeat: see deploy/docs/policies.md.
func (s *settings) annotated() []setting {
	isTrue := map[bool]string{true: "true"}
	prefixes := strings.Join(s.NamespacePrefixes, ",")
	if s.AllNamespaces {
		prefixes = ""
	}
	return []setting{
		{"namespace-prefix", prefixes, ""}, {"all-namespaces", isTrue[s.AllNamespaces], ""},
		{"exclude-namespace", strings.Join(s.ExcludeNamespaces, ","), "kube-*"},
		{"source-namespace", strings.Join(s.SourceNamespaces, ","), ""},
		{"namespace-selector", requirements(s.NamespaceSelector), ""}, {"prune", isTrue[s.Prune], ""},
		{"mirror-label", s.Label, "mirror"}, {"instance", s.Instance, "default"},
	}
}

// requirements returns a selector as the annotation has it: one requirement a line, such as "team In red,blue".
func requirements(selector string) string {
	parsed, _ := labels.ParseToRequirements(selector) // it is valid
	var lines []string
	for _, r := range parsed {
		operator := map[selection.Operator]string{selection.Exists: "Exists", selection.DoesNotExist: "DoesNotExist",
			selection.NotIn: "NotIn", selection.NotEquals: "NotIn"}[r.Operator()]
		values := strings.Join(slices.Sorted(maps.Keys(r.Values())), ",")
		lines = append(lines, strings.TrimSpace(r.Key()+" "+cmp.Or(operator, "In")+" "+values))
	}
	return strings.Join(lines, "\n")
}

// items returns the items of an annotation in a fixed order.
func items(value string) string {
	all := strings.FieldsFunc(value, func(r rune) bool { return r == ',' || r == '\n' })
	slices.Sort(all)
	return strings.Join(all, ",")
}
