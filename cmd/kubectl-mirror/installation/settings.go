// Package installation knows the settings of installed controllers by the arguments of their Deployments.
package installation

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/mirror-controller/mirror-controller/mirror"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// selector finds the Deployments of controllers.
const selector = "app.kubernetes.io/name=mirror-controller"

// Settings are the options that count, and where they are from.
type Settings struct {
	*mirror.Options
	Origin string
	// Deployment is that of the controller; nil: they are the settings of flags alone.
	Deployment *appsv1.Deployment
}

// Rules returns the rules of the settings.
func (s *Settings) Rules() *plan.Rules { return plan.NewRules(&s.Options.Options) }

// Absence says that no replica of the controller is ready; empty if one is, or if there is no Deployment.
func (s *Settings) Absence() string {
	if s.Deployment == nil || s.Deployment.Status.ReadyReplicas > 0 {
		return ""
	}
	return fmt.Sprintf("No controller runs: Deployment %s has no ready replica.", Key(s.Deployment))
}

// deciding are the flags of a controller that decide what is mirrored where.
var deciding = []string{
	"namespace-prefix", "all-namespaces", "namespace-selector", "exclude-namespace", "source-namespace",
	"mirror-label", "instance", "copy-label", "copy-annotation", "prune",
}

// flagsOf returns those flags of a controller that set o and have one of the names.
func flagsOf(o *mirror.Options, names ...string) *pflag.FlagSet {
	all := pflag.NewFlagSet("", pflag.ContinueOnError)
	o.AddFlags(all)
	fs := pflag.NewFlagSet("", pflag.ContinueOnError)
	for _, name := range names {
		fs.AddFlag(all.Lookup(name))
	}
	return fs
}

// Flags are the flags by which a user says which settings count.
type Flags struct {
	*pflag.FlagSet
	given      *mirror.Options
	controller *string
}

// NewFlags returns the flags of a controller that decide, and --controller.
func NewFlags() *Flags {
	f := &Flags{given: mirror.NewOptions()}
	f.FlagSet = flagsOf(f.given, deciding...)
	f.controller = f.String("controller", "", "`NAMESPACE/NAME` of the Deployment whose settings count, if there are several.")
	return f
}

// Given returns the flags that change settings. They are parsed as a part of a larger set, so Visit does not know them.
func (f *Flags) Given() (names []string) {
	f.VisitAll(func(flag *pflag.Flag) {
		if flag.Changed && flag.Name != "controller" {
			names = append(names, "--"+flag.Name)
		}
	})
	return names
}

// Alone returns the settings of the flags, also where they do not name the targets.
func (f *Flags) Alone() *Settings { return &Settings{Options: f.given, Origin: "flags"} }

// Find returns the settings that count: those of the flags, if they name the targets, or else those of each installed
// controller, which the flags change.
func (f *Flags) Find(ctx context.Context, client kubernetes.Interface) ([]*Settings, error) {
	if err := f.checkEmpty(); err != nil {
		return nil, err
	}
	if *f.controller == "" && (f.Changed("namespace-prefix") || f.Changed("all-namespaces")) {
		return []*Settings{f.Alone()}, f.given.Options.Validate()
	}
	deployments, err := f.Deployments(ctx, client)
	if err == nil && len(deployments) == 0 {
		err = errors.New("no Deployment has the label " + selector)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot find the controller: %w: give its flags, at least --namespace-prefix", err)
	}
	var all []*Settings
	for i := range deployments {
		d := &deployments[i]
		s := &Settings{Origin: "arguments of Deployment " + Key(d), Deployment: d}
		p, err := ProcessOf(d)
		if err != nil { // say of each line where it is from
			return nil, errors.New(s.Origin + ": " + strings.ReplaceAll(err.Error(), "\n", "\n"+s.Origin+": "))
		}
		s.Options = p.Options
		f.override(s.Options)
		if given := f.Given(); len(given) > 0 {
			s.Origin += ", changed by " + strings.Join(given, ", ")
		}
		if err := s.Options.Options.Validate(); err != nil {
			return nil, err
		}
		all = append(all, s)
	}
	return all, nil
}

// Deployments returns the Deployment that --controller names, or all that have the label.
func (f *Flags) Deployments(ctx context.Context, client kubernetes.Interface) ([]appsv1.Deployment, error) {
	if *f.controller != "" {
		namespace, name, ok := strings.Cut(*f.controller, "/")
		if !ok || namespace == "" || name == "" {
			return nil, fmt.Errorf("--controller=%q: must be NAMESPACE/NAME of a Deployment", *f.controller)
		}
		d, err := client.AppsV1().Deployments(namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return nil, err
		}
		return []appsv1.Deployment{*d}, nil
	}
	list, err := client.AppsV1().Deployments(metav1.NamespaceAll).List(ctx, metav1.ListOptions{LabelSelector: selector})
	if err != nil {
		return nil, err
	}
	return list.Items, nil
}

// checkEmpty returns an error for a list that is given empty although no list would be right, such as of an empty variable.
func (f *Flags) checkEmpty() error {
	var errs []error
	f.VisitAll(func(flag *pflag.Flag) {
		if list, ok := flag.Value.(pflag.SliceValue); ok && flag.Changed && len(list.GetSlice()) == 0 && flag.DefValue == "[]" {
			errs = append(errs, fmt.Errorf("--%s=\"\": must not be empty", flag.Name))
		}
	})
	return errors.Join(errs...)
}

// override sets those options that are given. A prefix and --all-namespaces replace each other.
func (f *Flags) override(o *mirror.Options) {
	if f.Changed("namespace-prefix") {
		o.AllNamespaces = false
	}
	if f.Changed("all-namespaces") {
		o.NamespacePrefixes = nil
	}
	flagsOf(o, deciding...).VisitAll(func(to *pflag.Flag) {
		from := f.Lookup(to.Name)
		if list, ok := to.Value.(pflag.SliceValue); ok && from.Changed {
			_ = list.Replace(from.Value.(pflag.SliceValue).GetSlice()) // strings: it cannot fail
		} else if from.Changed {
			_ = to.Value.Set(from.Value.String()) // a value of its own kind: it cannot fail
		}
	})
}

// Process is how the arguments of its Deployment have a controller run.
type Process struct {
	*mirror.Options
	LeaderElect               bool
	LeaseName, LeaseNamespace string
}

// ProcessOf returns the arguments of the Deployment. An error says which one is invalid.
func ProcessOf(d *appsv1.Deployment) (*Process, error) {
	p := &Process{Options: mirror.NewOptions()}
	fs := flagsOf(p.Options, append(slices.Clone(deciding), "deletion-grace")...)
	fs.ParseErrorsAllowlist.UnknownFlags = true
	fs.BoolVar(&p.LeaderElect, "leader-elect", false, "")
	fs.StringVar(&p.LeaseName, "leader-elect-resource-name", "mirror-controller", "")
	fs.StringVar(&p.LeaseNamespace, "leader-elect-resource-namespace", d.Namespace, "")
	if err := fs.Parse(Container(d).Args); err != nil {
		return p, err
	}
	return p, p.Options.Options.Validate()
}

// Container returns the controller's container, an empty one if there is none. A service mesh may have put one of its own
// before it.
func Container(d *appsv1.Deployment) corev1.Container {
	containers := d.Spec.Template.Spec.Containers
	if len(containers) == 0 {
		return corev1.Container{}
	}
	return containers[max(0, slices.IndexFunc(containers, func(c corev1.Container) bool { return c.Name == "mirror-controller" }))]
}

// Key returns NAMESPACE/NAME of a Deployment.
func Key(d *appsv1.Deployment) string { return d.Namespace + "/" + d.Name }
