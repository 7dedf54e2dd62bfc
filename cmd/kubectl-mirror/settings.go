package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

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

// ofControllers finds the Deployments of controllers, whatever name a chart gives
// them.
var ofControllers = metav1.ListOptions{
	LabelSelector: "app.kubernetes.io/part-of=mirror-controller",
}

// targetFlags are the flags of a controller that name the target namespaces. A
// controller has one of the two.
var targetFlags = []string{"namespace-prefix", "all-namespaces"}

// decidingFlags are the flags of a controller that decide what is mirrored
// where. The commands of the plug-in have them, too, so that a user can ask
// what another value would change. targetFlags are the first of them.
var decidingFlags = append(targetFlags,
	"namespace-selector", "exclude-namespace", "source-namespace",
	"mirror-label", "instance", "prune", "copy-label", "copy-annotation",
)

// settings are the options of one controller, installed or imagined.
type settings struct {
	*mirror.Options

	// deployment is that of the controller. Without one the options are those
	// of the user's flags alone, and the other fields are empty.
	deployment *appsv1.Deployment

	flags          *pflag.FlagSet // all flags of the controller, with their values
	leaderElect    bool
	leaseName      string
	leaseNamespace string
}

// sharesCopiesWith reports whether the copies of a controller with these
// settings are those of one with the others.
func (s *settings) sharesCopiesWith(others *settings) bool {
	return s.Instance == others.Instance && s.Label == others.Label
}

// stalled returns a line that no controller runs; empty if one does, or if there
// is no Deployment to ask. led is when the leader took over, by its own clock.
//
// Whether the leader renews its Lease is a matter of the API server's clock, as
// that of the controller or of the user may be wrong: the managed fields have the
// time of the last write, and the answer to a review has the present one.
func (s *settings) stalled(
	ctx context.Context, client kubernetes.Interface,
) (line string, led time.Time, err error) {
	const before = ": what was reported before may not hold any more"
	switch {
	case s.deployment == nil, !s.leaderElect && s.deployment.Status.ReadyReplicas > 0:
		return "", led, nil
	case !s.leaderElect:
		return "No replica of Deployment " + keyOf(s.deployment) + " is ready" + before, led, nil
	}
	lease, err := client.CoordinationV1().Leases(s.leaseNamespace).
		Get(ctx, s.leaseName, metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return "", led, err
	}
	review, err := client.AuthenticationV1().SelfSubjectReviews().
		Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		return "", led, err
	}
	var renewed metav1.Time
	for _, write := range lease.ManagedFields {
		if renewed.Before(write.Time) {
			renewed = *write.Time
		}
	}
	record := resourcelock.LeaseSpecToLeaderElectionRecord(&lease.Spec)
	if renewed.IsZero() { // a proxy leaves the managed fields out
		renewed = record.RenewTime
	}
	term := max(time.Minute, time.Duration(record.LeaseDurationSeconds)*time.Second)
	if record.HolderIdentity == "" || review.CreationTimestamp.Sub(renewed.Time) > term {
		return fmt.Sprintf("No controller holds Lease %s/%s and renews it%s",
			s.leaseNamespace, s.leaseName, before), led, nil
	}
	return "", record.AcquireTime.Time, nil
}

// settingsFlags are the flags by which a user chooses the settings:
// --controller, and decidingFlags.
type settingsFlags struct {
	*pflag.FlagSet
	controller *string
	// alone are the settings by decidingFlags alone, even if they name no
	// targets.
	alone *settings
}

func newSettingsFlags() *settingsFlags {
	f := &settingsFlags{
		FlagSet: pflag.NewFlagSet("", pflag.ContinueOnError),
		alone:   &settings{Options: mirror.NewOptions()},
	}
	f.controller = f.String("controller", "",
		"`NAMESPACE` of the controller, or NAMESPACE/NAME of its Deployment.")

	ofController := pflag.NewFlagSet("", pflag.ContinueOnError)
	f.alone.AddFlags(ofController)
	for _, name := range decidingFlags {
		f.AddFlag(ofController.Lookup(name))
	}
	return f
}

// given returns the flags as the user has given them, for a command that is
// advised.
func (f *settingsFlags) given() (text string) {
	f.VisitAll(func(flag *pflag.Flag) {
		value := flag.Value.String()
		if strings.ContainsAny(value, " !()*<>") {
			value = "'" + value + "'"
		}
		if flag.Changed {
			text += " --" + flag.Name + "=" + value
		}
	})
	return text
}

// nameTargets reports whether the user has named the targets.
func (f *settingsFlags) nameTargets() bool {
	return slices.ContainsFunc(targetFlags, f.Changed)
}

// find returns the settings of one controller: that of --controller or, without
// it, that of the flags if these name the targets, or else the only one that is
// installed.
func (f *settingsFlags) find(
	ctx context.Context, client kubernetes.Interface,
) (*settings, error) {
	given := f.alone.Options.Options
	given.AllNamespaces = given.AllNamespaces || !f.nameTargets() // those of the Deployment
	if err := given.Validate(); err != nil {
		return nil, err
	}
	if *f.controller == "" && f.nameTargets() {
		return f.alone, nil
	}
	namespace, name, isNamed := strings.Cut(*f.controller, "/")
	list, err := client.AppsV1().Deployments(namespace).List(ctx, ofControllers)
	switch {
	case apierrors.IsForbidden(err):
		return nil, fmt.Errorf("cannot find the controller: %w: the ClusterRole "+
			"mirror-controller-viewer grants it; without it, status -n, wait and explain "+
			"answer about one namespace, by --instance and --mirror-label instead of --controller",
			err)
	case err != nil:
		return nil, err
	}
	isOther := func(d appsv1.Deployment) bool { return isNamed && d.Name != name }
	deployments := slices.DeleteFunc(list.Items, isOther)
	switch {
	case len(deployments) == 0 && *f.controller != "":
		return nil, fmt.Errorf("--controller=%q: no such Deployment has the label %s: "+
			"kubectl get deployments -A -l %[2]s", *f.controller, ofControllers.LabelSelector)
	case len(deployments) == 0:
		return nil, errors.New("cannot find the controller: no Deployment has the label " +
			ofControllers.LabelSelector + ": before an installation, ask kubectl mirror plan " +
			"with its flags, at least --namespace-prefix")
	case len(deployments) > 1:
		var choices []string
		for _, d := range deployments {
			choices = append(choices, "--controller="+keyOf(&d))
		}
		return nil, fmt.Errorf("found %d controllers: choose one with %s",
			len(choices), strings.Join(choices, " or "))
	}
	s, err := f.settingsOf(&deployments[0])
	if err != nil {
		return nil, fmt.Errorf("arguments of Deployment %s: %w", keyOf(s.deployment), err)
	}
	return s, nil
}

// settingsOf returns the settings by the arguments of a Deployment. A flag that
// the user has given takes the place of that argument, and --all-namespaces
// also that of --namespace-prefix, and the other way round: with the arguments
// "--namespace-prefix=team- --prune" and the user's --all-namespaces the
// settings are --all-namespaces and --prune.
//
// An error is about a value that is wrong. The settings are there all the same,
// as far as the arguments were read.
func (f *settingsFlags) settingsOf(d *appsv1.Deployment) (*settings, error) {
	options := *f.alone.Options // the flags of the user, and defaults
	s := &settings{
		Options:    &options,
		deployment: d,
		flags:      pflag.NewFlagSet("", pflag.ContinueOnError),
	}
	s.flags.ParseErrorsAllowlist.UnknownFlags = true // logging, metrics and so on
	s.AddFlags(s.flags)
	s.flags.BoolVar(&s.leaderElect, "leader-elect", false, "")
	s.flags.StringVar(&s.leaseName, "leader-elect-resource-name", "mirror-controller", "")
	s.flags.StringVar(&s.leaseNamespace, "leader-elect-resource-namespace", d.Namespace, "")

	set := func(flag *pflag.Flag, value string) error {
		if f.Changed(flag.Name) || f.nameTargets() && slices.Contains(targetFlags, flag.Name) {
			return nil
		}
		return s.flags.Set(flag.Name, value)
	}
	err := s.flags.ParseAll(containerOf(d).Args, set)
	return s, cmp.Or(err, s.Options.Options.Validate())
}

// containerOf returns the controller's container. A service mesh may have put
// one of its own before it. If none has the name, it returns the last
// container, an empty one if there is none at all.
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
