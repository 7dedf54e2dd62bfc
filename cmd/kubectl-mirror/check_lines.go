package main

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/util/version"

	stamped "github.com/mirror-controller/mirror-controller/cmd/internal/version"
)

func (f *facts) deploymentLine() checkLine {
	d := f.deployment.value
	switch {
	case f.deployment.missing != "":
		return notAllowed(f.deployment.missing)
	case d == nil:
		return todo("install it as deploy/docs/install.md says", "no Deployment runs as ServiceAccount %s", f.account)
	}
	wanted, kubectl := replicasOf(d), "kubectl -n "+d.Namespace+" "
	switch {
	case wanted == 0:
		return todo(kubectl+"scale deployment "+d.Name+" --replicas=1", "Deployment %s has no replicas: nothing is mirrored", f.key)
	case d.Status.ObservedGeneration < d.Generation || d.Status.UpdatedReplicas < wanted:
		return todo(kubectl+"rollout status deployment "+d.Name,
			"Deployment %s is not rolled out: %d of %d replicas are up to date", f.key, d.Status.UpdatedReplicas, wanted)
	case d.Status.ReadyReplicas < wanted:
		return todo(kubectl+"describe pods, and "+kubectl+"logs deployment/"+d.Name,
			"%d of %d replicas of Deployment %s are ready", d.Status.ReadyReplicas, wanted, f.key)
	}
	return fine("Deployment %s: %d of %d replicas are ready, image %s", f.key, d.Status.ReadyReplicas, wanted, cmp.Or(containerOf(d).Image, "(none)"))
}

func replicasOf(d *appsv1.Deployment) int32 {
	if d.Spec.Replicas == nil {
		return 1
	}
	return *d.Spec.Replicas
}

// notInstalled is the result of a check that takes a Deployment, where none is known.
func (f *facts) notInstalled() (l checkLine, none bool) {
	switch {
	case f.deployment.missing != "":
		return notAllowed(f.deployment.missing), true
	case f.deployment.value == nil:
		return unknown("there is no Deployment"), true
	}
	return l, false
}

func (f *facts) argumentsLine() checkLine {
	if l, none := f.notInstalled(); none {
		return l
	}
	replicas := replicasOf(f.deployment.value)
	switch {
	case f.process.invalid != nil:
		return todo("correct the arguments of the Deployment", "%s", strings.ReplaceAll(f.process.invalid.Error(), "\n", ", "))
	case f.process.DryRun:
		return fine("the arguments of the Deployment are valid, and with --dry-run the controller writes nothing")
	case replicas > 1 && !f.process.leaderElect:
		return todo("add --leader-elect", "all of the %d replicas write", replicas)
	}
	return fine("the arguments of the Deployment are valid")
}

// clockError is what the API server's clock leaves out: it tells whole seconds.
const clockError = time.Second

func (f *facts) leaderLine() checkLine {
	if l, none := f.notInstalled(); none {
		return l
	}
	switch {
	case f.process.DryRun:
		return fine("with --dry-run there is none")
	case !f.process.leaderElect:
		return fine("without --leader-elect the one replica needs no Lease")
	case f.lease.missing != "":
		return notAllowed(f.lease.missing)
	}
	lease, name := f.lease.value, f.process.leaseNamespace+"/"+f.process.leaseName
	advice := fmt.Sprintf("kubectl -n %s logs deployment/%s", f.key.Namespace, f.key.Name)
	if lease == nil {
		return todo(advice, "there is no Lease %s: no replica has ever led", name)
	}
	spec := lease.Spec
	if spec.HolderIdentity == nil || *spec.HolderIdentity == "" || spec.RenewTime == nil || spec.LeaseDurationSeconds == nil {
		return todo(advice, "nobody holds Lease %s: nothing is mirrored", name)
	}
	duration := time.Duration(*spec.LeaseDurationSeconds) * time.Second
	// The identity is the name of the Pod and a number.
	holder, _, _ := strings.Cut(*spec.HolderIdentity, "_")
	if age := f.now.Sub(spec.RenewTime.Time); age > duration+clockError {
		return todo(advice, "%s held Lease %s and has not renewed it for %v: nothing is mirrored", holder, name, age.Round(time.Second))
	}
	return fine("%s holds Lease %s, and has renewed it within %v", holder, name, duration)
}

func (f *facts) bindingLine() checkLine {
	b := f.binding.value
	switch {
	case f.binding.missing != "":
		return notAllowed(f.binding.missing)
	case b == nil:
		return todo("install it as deploy/base/rbac.yaml says", "no ClusterRoleBinding names ServiceAccount %s", f.account)
	case b.Labels[installationLabel] == "":
		return todo(fmt.Sprintf("kubectl label clusterrolebinding %s %s=%s", b.Name, installationLabel, f.selectedValue()),
			"ClusterRoleBinding %s has no label %s: no policy finds it", b.Name, installationLabel)
	}
	return fine("ClusterRoleBinding %s names ServiceAccount %s, and has the label for the policies", b.Name, f.account)
}

// Minor versions of Kubernetes 1 by deploy/docs/install.md: the tested ones, and the oldest that has the policies.
const (
	oldestTested   = 35
	newestTested   = 37
	oldestPolicies = 30
)

func (f *facts) kubernetesLine() checkLine {
	if f.server.missing != "" {
		return notAllowed(f.server.missing)
	}
	tested := fmt.Sprintf("tested are 1.%d and 1.%d", oldestTested, newestTested)
	v, err := version.ParseGeneric(f.server.value)
	switch {
	case err != nil || v.Major() != 1:
		return unknown("the API server has the version %q, and %s", f.server.value, tested)
	case v.Minor() < oldestPolicies && len(f.expected) > 0:
		return todo("upgrade it, or install without the policies", "Kubernetes %s has no ValidatingAdmissionPolicies", f.server.value)
	case v.Minor() != oldestTested && v.Minor() != newestTested:
		return fine("Kubernetes %s: it should work, though %s", f.server.value, tested)
	}
	return fine("Kubernetes %s: %s", f.server.value, tested)
}

// versionLine compares minor versions: the plug-in decides as the controller of its own version does.
func (f *facts) versionLine() checkLine {
	if l, none := f.notInstalled(); none {
		return l
	}
	own, theirs := stamped.Of(stamp), controllerVersion(f.deployment.value)
	a, errA := version.ParseSemantic(own)
	b, errB := version.ParseSemantic(theirs)
	switch {
	case own == theirs:
		return fine("controller and kubectl mirror are both %s", own)
	case errA != nil || errB != nil:
		return unknown("controller %s and kubectl mirror %s: not both have the version of a release", cmp.Or(theirs, "(unknown)"), own)
	}
	if a.Major() != b.Major() || a.Minor() != b.Minor() {
		return todo("use the plug-in of the controller's version", "controller %s and kubectl mirror %s may decide differently", theirs, own)
	}
	return fine("controller %s and kubectl mirror %s decide alike", theirs, own)
}

// controllerVersion returns the tag of the image, or else what the label says; empty if neither tells.
func controllerVersion(d *appsv1.Deployment) string {
	image, _, digested := strings.Cut(containerOf(d).Image, "@")
	name := image[strings.LastIndex(image, "/")+1:] // what is before may have a port
	if _, tag, ok := strings.Cut(name, ":"); ok && !digested {
		return tag
	}
	return d.Labels["app.kubernetes.io/version"]
}
