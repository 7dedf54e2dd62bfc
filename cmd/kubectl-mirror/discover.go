package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/pflag"
	appsv1 "k8s.io/api/apps/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/mirror-controller/mirror-controller/mirror"
)

// settingsFlags are the flags by which the user says which settings count.
type settingsFlags struct {
	flags      *pflag.FlagSet
	given      *mirror.Options
	controller *string
}

func newSettingsFlags() settingsFlags {
	given := mirror.NewOptions()
	flags := bindOptions(given)
	controller := flags.String("controller", "", "`NAMESPACE/NAME` of the controller whose settings count, if there are several.")
	return settingsFlags{flags: flags, given: given, controller: controller}
}

// find returns the settings that count: the flags, or those of an installed controller, which the flags change.
func (f settingsFlags) find(ctx context.Context, client kubernetes.Interface) (*settings, error) {
	if err := f.checkEmpty(); err != nil {
		return nil, err
	}
	found := &settings{Options: f.given, origin: "flags"}
	if *f.controller != "" || !f.decide() {
		var err error
		if found, err = installed(ctx, client, *f.controller); err != nil {
			return nil, err
		}
		override(found.Options, f.flags)
		if changed := f.changed(); len(changed) > 0 {
			found.origin += ", changed by " + strings.Join(changed, ", ")
		}
	}
	return found, prefixed(found.origin, found.Options.Options.Validate())
}

// changed returns the given flags that change settings. The flags were parsed as a part of a larger set, so Visit does not
// know them.
func (f settingsFlags) changed() (names []string) {
	f.flags.VisitAll(func(flag *pflag.Flag) {
		if flag.Changed && flag.Name != "controller" {
			names = append(names, "--"+flag.Name)
		}
	})
	return names
}

// decide reports whether any flag is given that decides what is mirrored where.
func (f settingsFlags) decide() bool {
	for _, name := range decidingFlags {
		if f.flags.Changed(name) {
			return true
		}
	}
	return false
}

// checkEmpty refuses what pflag takes for no value: --source-namespace=$UNSET would mean every namespace. Only a list with a
// default may be emptied.
func (f settingsFlags) checkEmpty() error {
	var errs []error
	f.flags.VisitAll(func(flag *pflag.Flag) {
		if list, ok := flag.Value.(pflag.SliceValue); ok && flag.Changed && len(list.GetSlice()) == 0 && flag.DefValue == "[]" {
			errs = append(errs, fmt.Errorf("--%s=\"\": must not be empty", flag.Name))
		}
	})
	return errors.Join(errs...)
}

// prefixed puts where the settings were found before each line of err, unless it was on the command line.
func prefixed(origin string, err error) error {
	if err == nil || origin == "flags" {
		return err
	}
	return errors.New(origin + ": " + strings.ReplaceAll(err.Error(), "\n", "\n"+origin+": "))
}

// installed returns the settings of an installed controller.
func installed(ctx context.Context, client kubernetes.Interface, controller string) (*settings, error) {
	all, refused, err := installations(ctx, client)
	if err != nil {
		return nil, err
	}
	in, err := choose(all, controller)
	if err != nil && len(refused) > 0 {
		return nil, fmt.Errorf("cannot find the controller: you may not list %s: give its flags, at least --namespace-prefix",
			strings.Join(refused, ", nor "))
	}
	if err != nil {
		return nil, err
	}
	return in.settings()
}

// installations returns the controllers of the cluster. refused are the resources that the user may not list.
func installations(ctx context.Context, client kubernetes.Interface) (all []*installation, refused []string, err error) {
	bindings, err := client.RbacV1().ClusterRoleBindings().List(ctx, metav1.ListOptions{LabelSelector: installationLabel})
	switch {
	case apierrors.IsForbidden(err):
		refused, bindings = append(refused, "clusterrolebindings"), &rbacv1.ClusterRoleBindingList{}
	case err != nil:
		return nil, nil, fmt.Errorf("list ClusterRoleBindings: %w", err)
	}
	deployments, err := client.AppsV1().Deployments(metav1.NamespaceAll).List(ctx, metav1.ListOptions{LabelSelector: deploymentSelector})
	switch {
	case apierrors.IsForbidden(err):
		refused, deployments = append(refused, "deployments"), &appsv1.DeploymentList{}
	case err != nil:
		return nil, nil, fmt.Errorf("list Deployments: %w", err)
	}
	return pair(bindings.Items, deployments.Items), refused, nil
}
