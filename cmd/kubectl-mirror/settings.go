package main

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mirror-controller/mirror-controller/mirror"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// settings are the options of a controller, and where they were found. Only those that decide count.
type settings struct {
	*mirror.Options
	origin string
}

// By these labels the objects of an installation are found.
const (
	installationLabel  = plan.Domain + "/installation"
	deploymentSelector = "app.kubernetes.io/name=mirror-controller"
)

// decidingFlags are the flags of the controller that decide what is mirrored where. The annotations are named as they are.
var decidingFlags = []string{
	"namespace-prefix", "all-namespaces", "namespace-selector", "exclude-namespace", "source-namespace",
	"mirror-label", "instance", "copy-label", "copy-annotation",
}

// pruneLimitFlag has no annotation: the policies do not know it.
const pruneLimitFlag = "prune-limit"

// bindOptions returns flags that set o, named and explained as the controller's.
func bindOptions(o *mirror.Options) *pflag.FlagSet {
	all := pflag.NewFlagSet(program, pflag.ContinueOnError)
	o.AddFlags(all)
	fs := pflag.NewFlagSet(program, pflag.ContinueOnError)
	for _, name := range append(slices.Clone(decidingFlags), pruneLimitFlag) {
		fs.AddFlag(all.Lookup(name))
	}
	return fs
}

// override sets those options that are given. A prefix and --all-namespaces replace each other.
func override(o *mirror.Options, given *pflag.FlagSet) {
	if given.Changed("namespace-prefix") {
		o.AllNamespaces = false
	}
	if given.Changed("all-namespaces") {
		o.NamespacePrefixes = nil
	}
	bindOptions(o).VisitAll(func(to *pflag.Flag) {
		f := given.Lookup(to.Name)
		if !f.Changed {
			return
		}
		if list, ok := f.Value.(pflag.SliceValue); ok {
			_ = to.Value.(pflag.SliceValue).Replace(list.GetSlice()) // of strings: it cannot fail
		} else {
			_ = to.Value.Set(f.Value.String()) // it was parsed from the same type
		}
	})
}

// installation is one controller, as its objects in the cluster tell.
type installation struct {
	key        types.NamespacedName // of its Deployment, or else of its ServiceAccount
	account    types.NamespacedName
	binding    *rbacv1.ClusterRoleBinding
	deployment *appsv1.Deployment
}

// pair returns the installations that the objects belong to, sorted. A Deployment and a ClusterRoleBinding belong together by
// the ServiceAccount.
func pair(bindings []rbacv1.ClusterRoleBinding, deployments []appsv1.Deployment) []*installation {
	byAccount := map[types.NamespacedName]*installation{}
	for i := range bindings {
		for _, s := range bindings[i].Subjects {
			if s.Kind == rbacv1.ServiceAccountKind {
				account := types.NamespacedName{Namespace: s.Namespace, Name: s.Name}
				byAccount[account] = &installation{key: account, account: account, binding: &bindings[i]}
			}
		}
	}
	var out []*installation
	for i := range deployments {
		d := &deployments[i]
		key := types.NamespacedName{Namespace: d.Namespace, Name: d.Name}
		account := accountOf(d)
		in := &installation{key: key, account: account, deployment: d}
		if known := byAccount[account]; known != nil {
			in.binding = known.binding
			delete(byAccount, account)
		}
		out = append(out, in)
	}
	for _, in := range byAccount {
		out = append(out, in)
	}
	slices.SortFunc(out, func(a, b *installation) int { return strings.Compare(a.key.String(), b.key.String()) })
	return out
}

// accountOf returns the ServiceAccount as which a Deployment runs.
func accountOf(d *appsv1.Deployment) types.NamespacedName {
	return types.NamespacedName{Namespace: d.Namespace, Name: cmp.Or(d.Spec.Template.Spec.ServiceAccountName, "default")}
}

func keysOf(all []*installation) []string {
	var keys []string
	for _, in := range all {
		keys = append(keys, in.key.String())
	}
	return keys
}

// choose returns the installation with this key, which may be that of its ServiceAccount, or the only one.
func choose(all []*installation, key string) (*installation, error) {
	switch {
	case key != "":
		for _, in := range all {
			if in.key.String() == key || in.account.String() == key {
				return in, nil
			}
		}
		return nil, fmt.Errorf("--controller=%q: no such controller, must be one of: %s", key, orNone(keysOf(all)))
	case len(all) == 1:
		return all[0], nil
	case len(all) == 0:
		return nil, fmt.Errorf("found no controller: no ClusterRoleBinding has the label %s, and no Deployment the label %s: "+
			"give the flags of the controller, at least --namespace-prefix", installationLabel, deploymentSelector)
	}
	return nil, fmt.Errorf("found %d controllers: choose one with --controller: %s", len(all), strings.Join(keysOf(all), ", "))
}

func orNone(list []string) string {
	return cmp.Or(strings.Join(list, ", "), "(there is none)")
}

// settings returns the settings of the installation: the annotations of its ClusterRoleBinding, or else the arguments of its
// Deployment.
func (in *installation) settings() (*settings, error) {
	s := &settings{Options: mirror.NewOptions()}
	if in.deployment != nil {
		s.origin = fmt.Sprintf("arguments of Deployment %s", in.key)
		if err := s.readArguments(in.deployment); err != nil {
			return nil, fmt.Errorf("%s: %w", s.origin, err)
		}
	}
	if in.binding != nil && annotated(in.binding) {
		arguments := s.Options
		s.Options = mirror.NewOptions()
		s.PruneLimit, s.SourceNamespaces = arguments.PruneLimit, arguments.SourceNamespaces
		s.origin = fmt.Sprintf("annotations of ClusterRoleBinding %s (controller %s)", in.binding.Name, in.key)
		if err := s.readAnnotations(in.binding.Annotations); err != nil {
			return nil, fmt.Errorf("%s: %w", s.origin, err)
		}
		s.origin += in.unannotated(arguments)
	}
	if s.origin == "" {
		return nil, fmt.Errorf("controller %s: ClusterRoleBinding %s has no settings among its annotations, and its Deployment was not found: "+
			"give the flags of the controller, at least --namespace-prefix", in.key, in.binding.Name)
	}
	return s, nil
}

// unannotated says where the settings are from that the policies do not know, and annotations therefore need not have.
func (in *installation) unannotated(arguments *mirror.Options) string {
	switch _, there := in.binding.Annotations[plan.Domain+"/source-namespace"]; {
	case in.deployment == nil && !there:
		return ", without --source-namespace, for its Deployment was not found"
	case len(arguments.SourceNamespaces) > 0 && !there:
		return ", --source-namespace of its Deployment"
	}
	return ""
}

// annotated reports whether the binding has any setting.
func annotated(binding *rbacv1.ClusterRoleBinding) bool {
	return slices.ContainsFunc(decidingFlags, func(flag string) bool {
		_, ok := binding.Annotations[plan.Domain+"/"+flag]
		return ok
	})
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

// argumentsOf returns the arguments of the controller.
func argumentsOf(d *appsv1.Deployment) []string { return containerOf(d).Args }

// readArguments sets the options from the arguments of the controller's container.
func (s *settings) readArguments(d *appsv1.Deployment) error {
	if len(d.Spec.Template.Spec.Containers) == 0 {
		return errors.New("it has no container")
	}
	fs := bindOptions(s.Options)
	fs.ParseErrorsAllowlist.UnknownFlags = true // those that decide nothing
	return fs.Parse(argumentsOf(d))
}

// readAnnotations sets the options from annotations. An absent one means the default of the flag.
func (s *settings) readAnnotations(annotations map[string]string) error {
	fs := bindOptions(s.Options)
	for _, flag := range decidingFlags {
		value, ok := annotations[plan.Domain+"/"+flag]
		if !ok {
			continue
		}
		if flag == "namespace-selector" {
			selector, err := selectorOf(value)
			if err != nil {
				return err
			}
			value = selector
		}
		if list, ok := fs.Lookup(flag).Value.(pflag.SliceValue); ok {
			_ = list.Replace(nonEmpty(strings.Split(value, ","))) // of strings: it cannot fail
		} else if err := fs.Set(flag, value); err != nil {
			return err
		}
	}
	return nil
}

func nonEmpty(list []string) []string {
	return slices.DeleteFunc(list, func(s string) bool { return s == "" })
}

// selectorOf makes a label selector of requirements, one a line, such as "team In red,blue" or "frozen DoesNotExist".
func selectorOf(lines string) (string, error) {
	var parts []string
	for line := range strings.SplitSeq(lines, "\n") {
		words := strings.Fields(line)
		switch {
		case len(words) == 0:
		case len(words) == 3 && words[1] == "In":
			parts = append(parts, words[0]+" in ("+words[2]+")")
		case len(words) == 3 && words[1] == "NotIn":
			parts = append(parts, words[0]+" notin ("+words[2]+")")
		case len(words) == 2 && words[1] == "Exists":
			parts = append(parts, words[0])
		case len(words) == 2 && words[1] == "DoesNotExist":
			parts = append(parts, "!"+words[0])
		default:
			return "", fmt.Errorf("namespace-selector: %q: must be a key, In, NotIn, Exists or DoesNotExist, and values with commas between", line)
		}
	}
	return strings.Join(parts, ","), nil
}
