package installation

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/mirror-controller/mirror-controller/mirror"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// Settings are the options that count, and where they are from.
type Settings struct {
	*mirror.Options
	Origin string
	// Installation is the controller whose settings they are; nil: they are those of flags alone.
	Installation *Installation
}

// Rules returns the rules of the settings.
func (s *Settings) Rules() *plan.Rules { return plan.NewRules(&s.Options.Options) }

// deciding are the flags that decide what is mirrored where. The annotations of the ClusterRoleBinding are named as they are.
var deciding = []string{
	"namespace-prefix", "all-namespaces", "namespace-selector", "exclude-namespace", "source-namespace",
	"mirror-label", "instance", "copy-label", "copy-annotation",
}

// known are all flags that a user and the annotations may set. Without one of deciding --prune changes an installed
// controller.
var known = append(slices.Clone(deciding), "prune")

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
	f.FlagSet = flagsOf(f.given, known...)
	f.controller = f.String("controller", "", "`NAMESPACE/NAME` of the controller whose settings count, if there are several.")
	return f
}

// Controller returns the value of --controller.
func (f *Flags) Controller() string { return *f.controller }

// Given returns the flags that change settings. They are parsed as a part of a larger set, so Visit does not know them.
func (f *Flags) Given() (names []string) {
	f.VisitAll(func(flag *pflag.Flag) {
		if flag.Changed && flag.Name != "controller" {
			names = append(names, "--"+flag.Name)
		}
	})
	return names
}

// Find returns the settings that count: the flags, or those of an installed controller, which the flags change. The error is an
// [Unknown] if the user may not see any controller.
func (f *Flags) Find(ctx context.Context, client kubernetes.Interface) (*Settings, error) {
	if err := f.checkEmpty(); err != nil {
		return nil, err
	}
	s := &Settings{Options: f.given, Origin: "flags"}
	if *f.controller != "" || !slices.ContainsFunc(deciding, f.Changed) {
		in, err := find(ctx, client, *f.controller)
		if err != nil {
			return nil, err
		}
		if s, err = in.Settings(); err != nil {
			return nil, err
		}
		f.override(s.Options)
		if given := f.Given(); len(given) > 0 {
			s.Origin += ", changed by " + strings.Join(given, ", ")
		}
	}
	if err := s.Options.Options.Validate(); err != nil && s.Installation != nil { // say of each line where it is from
		return nil, errors.New(s.Origin + ": " + strings.ReplaceAll(err.Error(), "\n", "\n"+s.Origin+": "))
	} else if err != nil {
		return nil, err
	}
	return s, nil
}

// Everywhere takes note of --all-namespaces given to a command whose own flag of that name means the sources of all namespaces.
// Beside other flags of a controller it is that of the controller, too, unless there is a prefix.
func (f *Flags) Everywhere() {
	if slices.ContainsFunc(deciding, f.Changed) && !f.Changed("namespace-prefix") {
		_ = f.Set("all-namespaces", "true") // a bool: it cannot fail
	}
}

// Default returns the settings of the flags alone, also where they do not say which namespaces are targets.
func (f *Flags) Default() *Settings { return &Settings{Options: f.given, Origin: "flags"} }

// checkEmpty refuses what pflag takes for no value: --source-namespace=$UNSET would mean every namespace. Only a list with a
// default may be emptied.
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
	flagsOf(o, known...).VisitAll(func(to *pflag.Flag) {
		if from := f.Lookup(to.Name); from.Changed {
			set(to, from.Value)
		}
	})
}

// set sets a flag to the value of another one of its kind, or to a list of strings: neither can fail.
func set(to *pflag.Flag, value pflag.Value) {
	if list, ok := value.(pflag.SliceValue); ok {
		_ = to.Value.(pflag.SliceValue).Replace(list.GetSlice())
	} else {
		_ = to.Value.Set(value.String())
	}
}

// Settings returns the settings of the installation: the arguments of its Deployment, which the process follows, or else the
// annotations of its ClusterRoleBinding.
func (in *Installation) Settings() (*Settings, error) {
	s := &Settings{Installation: in}
	switch {
	case in.Deployment != nil:
		s.Origin = fmt.Sprintf("arguments of Deployment %s", in.Key)
		p, err := in.Process()
		if s.Options = p.Options; err != nil {
			return nil, fmt.Errorf("%s: %w", s.Origin, err)
		}
	case annotated(in.Binding):
		s.Origin = fmt.Sprintf("annotations of ClusterRoleBinding %s (controller %s)", in.Binding.Name, in.Key)
		var malformed map[string]bool
		if s.Options, malformed = annotations(in.Binding); len(malformed) > 0 {
			return nil, fmt.Errorf("%s: malformed: %s", s.Origin, strings.Join(slices.Sorted(maps.Keys(malformed)), ", "))
		}
		if _, there := in.Binding.Annotations[plan.Domain+"/source-namespace"]; !there {
			s.Origin += ", without --source-namespace, because its Deployment was not found"
		}
	default:
		return nil, fmt.Errorf("controller %s: ClusterRoleBinding %s has no settings among its annotations, and its Deployment was not found: "+
			"give the flags of the controller, at least --namespace-prefix", in.Key, in.Binding.Name)
	}
	return s, nil
}

// Process is how the arguments of its Deployment have a controller run.
type Process struct {
	*mirror.Options
	LeaderElect               bool
	LeaseName, LeaseNamespace string
}

// Process returns the arguments of the Deployment, or the defaults of deploy/base if there is none. An error says which
// argument is invalid.
func (in *Installation) Process() (*Process, error) {
	p := &Process{Options: mirror.NewOptions()}
	fs := flagsOf(p.Options, append(slices.Clone(known), "deletion-grace")...)
	fs.ParseErrorsAllowlist.UnknownFlags = true
	fs.BoolVar(&p.LeaderElect, "leader-elect", in.Deployment == nil, "")
	fs.StringVar(&p.LeaseName, "leader-elect-resource-name", "mirror-controller", "")
	fs.StringVar(&p.LeaseNamespace, "leader-elect-resource-namespace", in.Account.Namespace, "")
	if in.Deployment == nil {
		p.LeaseName, p.LeaseNamespace = in.annotation("leader-elect-resource-name", p.LeaseName), in.annotation("leader-elect-resource-namespace", p.LeaseNamespace)
		return p, nil
	}
	if len(in.Deployment.Spec.Template.Spec.Containers) == 0 {
		return p, errors.New("it has no container")
	}
	if err := fs.Parse(containerOf(in.Deployment).Args); err != nil {
		return p, err
	}
	return p, p.Options.Options.Validate()
}

func (in *Installation) annotation(flag, otherwise string) string {
	if in.Binding == nil {
		return otherwise
	}
	return cmp.Or(in.Binding.Annotations[plan.Domain+"/"+flag], otherwise)
}

// containerOf returns the controller's container, an empty one if there is none. A service mesh may have put one of its own
// before it.
func containerOf(d *appsv1.Deployment) corev1.Container {
	containers := d.Spec.Template.Spec.Containers
	if len(containers) == 0 {
		return corev1.Container{}
	}
	return containers[max(0, slices.IndexFunc(containers, func(c corev1.Container) bool { return c.Name == "mirror-controller" }))]
}

// annotated reports whether the binding has any setting.
func annotated(b *rbacv1.ClusterRoleBinding) bool {
	return b != nil && slices.ContainsFunc(deciding, func(flag string) bool {
		_, ok := b.Annotations[plan.Domain+"/"+flag]
		return ok
	})
}

// annotations returns the settings by which the policies judge, and the annotations that are malformed. An absent annotation
// means the default of the flag.
func annotations(b *rbacv1.ClusterRoleBinding) (o *mirror.Options, malformed map[string]bool) {
	o, malformed = mirror.NewOptions(), map[string]bool{}
	fs := flagsOf(o, known...)
	for _, flag := range known {
		value, ok := b.Annotations[plan.Domain+"/"+flag]
		if !ok {
			continue
		}
		var err error
		switch list, isList := fs.Lookup(flag).Value.(pflag.SliceValue); {
		case isList:
			err = list.Replace(nonEmpty(strings.Split(value, ",")))
		case fs.Lookup(flag).Value.Type() == "bool" && value != "true" && value != "false":
			err = errors.New("must be true or false")
		case flag == "namespace-selector":
			o.NamespaceSelector, err = selectorOf(value)
		default:
			err = fs.Set(flag, value)
		}
		if err != nil {
			malformed[flag] = true
		}
	}
	return o, malformed
}

func nonEmpty(list []string) []string {
	return slices.DeleteFunc(list, func(s string) bool { return s == "" })
}

// selectorOf makes a label selector of requirements, one a line, such as "team In red,blue" or "frozen DoesNotExist".
func selectorOf(lines string) (string, error) {
	var s metav1.LabelSelector
	for line := range strings.SplitSeq(lines, "\n") {
		if line == "" {
			continue
		}
		words := append(strings.SplitN(line, " ", 3), "", "") // as the policies do
		r := metav1.LabelSelectorRequirement{Key: words[0], Operator: metav1.LabelSelectorOperator(words[1])}
		if words[2] != "" {
			r.Values = strings.Split(words[2], ",")
		}
		s.MatchExpressions = append(s.MatchExpressions, r)
	}
	selector, err := metav1.LabelSelectorAsSelector(&s)
	if err != nil || len(s.MatchExpressions) == 0 {
		return "", err
	}
	return selector.String(), nil
}

// selectorLines returns a valid selector as the annotation has it: one requirement a line, sorted.
func selectorLines(selector string) string {
	s, err := metav1.ParseToLabelSelector(selector)
	if err != nil {
		return selector // none has the other operators: they are for numbers
	}
	var lines []string
	for key, value := range s.MatchLabels {
		lines = append(lines, key+" In "+value)
	}
	for _, r := range s.MatchExpressions {
		lines = append(lines, strings.TrimRight(fmt.Sprintf("%s %s %s", r.Key, r.Operator, sortedList(r.Values)), " "))
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// sortedList returns the values as an annotation has them, sorted.
func sortedList(values []string) string {
	return strings.Join(slices.Compact(slices.Sorted(slices.Values(values))), ",")
}
