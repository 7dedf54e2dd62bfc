package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/mirror-controller/mirror-controller/e2e/cluster"
	"github.com/mirror-controller/mirror-controller/e2e/shipped"
	"github.com/mirror-controller/mirror-controller/mirror"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

const (
	// stopPatience is how long the controller has for its writes in flight when it is to end.
	stopPatience = 40 * time.Second
	// firstPause and longestPause are before a controller that has ended is started again. A kubelet waits longer.
	firstPause, longestPause = time.Second, 30 * time.Second
)

// play starts a control plane and the controller, with arguments besides those of its Deployment, says how to reach
// them, and runs until ctx ends. If a playground runs already, its controller gets the arguments.
func play(ctx context.Context, more []string, out io.Writer) (err error) {
	installed, err := shipped.Render(*manifests)
	if err != nil {
		return err
	}
	if err := configure(installed, more); err != nil {
		return err
	}
	if _, err := os.Stat(*link); err == nil {
		if err := apply(ctx, installed); err != nil {
			return err
		}
		_, err := fmt.Fprintln(out, "The controller in the other terminal is started again, with", strings.Join(more, " "))
		return err
	}
	c, err := cluster.Start(ctx, cluster.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(*link), c.Stop()) }()
	client := c.Client()
	_ = os.Remove(*link) // of a playground that was killed
	err = errors.Join(
		furnish(c),
		os.Symlink(c.Dir(), *link),
		apply(ctx, installed),
		cluster.CreateNamespaces(ctx, client, home, "team-a", "team-b", "team-c", "other"),
		admit(ctx, client, "publisher", home, "edit", "mirror-controller-publisher"),
		admit(ctx, client, tenant, "team-a", "edit"))
	if err != nil {
		return err
	}
	fmt.Fprint(out, strings.ReplaceAll(invitation, "LINK", *link))
	deployment, err := installed.Deployment()
	if err != nil {
		return err
	}
	p := &playground{cluster: c, deployment: deployment, out: out}
	err = wait.PollUntilContextCancel(ctx, time.Second/4, true, p.follow)
	if ctx.Err() == nil {
		return err
	}
	fmt.Fprintln(out, "\nStopping.")
	return p.stop()
}

// configure adds arguments to the Deployment among the manifests, and has the policies know them.
func configure(m shipped.Manifests, more []string) error {
	for _, o := range m {
		switch o.GetKind() {
		case "ClusterRoleBinding":
			annotations := o.GetAnnotations()
			maps.Copy(annotations, settings(more))
			o.SetAnnotations(annotations)
		case "Deployment":
			spec := o.Object["spec"].(map[string]any)["template"].(map[string]any)["spec"]
			container := spec.(map[string]any)["containers"].([]any)[0].(map[string]any)
			args, _, err := unstructured.NestedStringSlice(container, "args")
			if err != nil {
				return err
			}
			container["args"] = with(args, more)
		}
	}
	return nil
}

// with returns arguments and more of them, in place of those with the same flags: some flags would add up.
func with(args, more []string) []string {
	kept := slices.DeleteFunc(slices.Clone(args), func(arg string) bool {
		old, _, _ := strings.Cut(arg, "=")
		return slices.ContainsFunc(more, func(arg string) bool {
			given, _, _ := strings.Cut(arg, "=")
			return given == old || given == "--all-namespaces" && old == "--namespace-prefix" // it takes one of the two
		})
	})
	return append(kept, more...)
}

// settings returns the annotations by which the policies go. What is wrong in an argument says the controller. The
// annotation for a selector has a syntax of its own; without one, the policies allow more.
func settings(args []string) map[string]string {
	flags, annotations := pflag.NewFlagSet("", pflag.ContinueOnError), map[string]string{}
	flags.ParseErrorsAllowlist.UnknownFlags = true
	mirror.NewOptions().AddFlags(flags)
	_ = flags.Parse(args)
	flags.Visit(func(f *pflag.Flag) {
		if f.Name != "namespace-selector" {
			annotations[plan.Domain+"/"+f.Name] = f.Value.String()
		}
	})
	return annotations
}

// furnish leaves in the folder of the cluster the settings of a terminal, with a kubeconfig for each user.
func furnish(c *cluster.Cluster) error {
	publisher, err := c.Kubeconfig(cluster.User{Name: "publisher"})
	if err != nil {
		return err
	}
	tenant, err := c.Kubeconfig(cluster.User{Name: tenant})
	if err != nil {
		return err
	}
	env := fmt.Sprintf("export PATH=%q:%q:\"$PATH\" KUBECACHEDIR=%q KUBECONFIG=%q PUBLISHER=%q TENANT=%q\n",
		filepath.Dir(*binary), filepath.Dir(c.Kubectl()), filepath.Join(c.Dir(), "cache"),
		c.AdminKubeconfig(), publisher, tenant)
	return os.WriteFile(filepath.Join(c.Dir(), "env"), []byte(env), 0o600)
}

// apply applies manifests as a user does in a terminal, so that what the user applies later is a change of them.
func apply(ctx context.Context, m shipped.Manifests) error {
	list, err := json.Marshal(map[string]any{"apiVersion": "v1", "kind": "List", "items": m})
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, "sh", "-c", `. "$0" && exec kubectl apply -f -`, filepath.Join(*link, "env"))
	cmd.Env = append(os.Environ(), "KUBERC=off")
	cmd.Stdin = bytes.NewReader(list)
	if said, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("kubectl apply: %w: %s", err, said)
	}
	return nil
}

// playground runs the controller of a Deployment in the place of a kubelet.
type playground struct {
	cluster    *cluster.Cluster
	deployment *appsv1.Deployment
	out        io.Writer

	controller *shipped.Process // nil while none runs
	generation int64            // of the Deployment that it was started for
	pause      time.Duration    // before the last start
	due        time.Time        // when to start it next
}

// follow has the controller run as the Deployment wants it. It starts the controller again when the Deployment has
// changed and, after a pause, when it has ended by itself.
func (p *playground) follow(ctx context.Context) (done bool, err error) {
	p.notice()
	deployments := p.cluster.Client().AppsV1().Deployments(p.deployment.Namespace)
	d, err := deployments.Get(ctx, p.deployment.Name, metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return false, err
	}
	exists := err == nil
	wanted := exists && *d.Spec.Replicas > 0
	if !wanted || d.Generation != p.generation {
		p.pause, p.due = 0, time.Time{}
		if err := p.stop(); err != nil {
			return false, err
		}
	}
	if wanted && p.controller == nil && !time.Now().Before(p.due) {
		if err := p.start(ctx, d); err != nil {
			return false, err
		}
	}
	if !exists {
		return false, nil
	}
	return false, p.show(ctx, d)
}

// start starts the controller that a Deployment describes.
func (p *playground) start(ctx context.Context, d *appsv1.Deployment) error {
	installed, err := shipped.Deployed(ctx, p.cluster, d.Namespace, d.Name, *binary)
	if err != nil {
		return err
	}
	if p.controller, err = installed.Start(shipped.RunOptions{Log: p.out}); err != nil {
		return err
	}
	p.generation = d.Generation
	fmt.Fprintf(p.out, "\nThe controller runs as process %d with %s\n",
		p.controller.Pid(), strings.Join(installed.Args, " "))
	return nil
}

// show has the status of the Deployment show its Pods, for all of which the process stands.
func (p *playground) show(ctx context.Context, d *appsv1.Deployment) error {
	all, ready := *d.Spec.Replicas, int32(0)
	if p.controller != nil {
		ready = all
	}
	shown := d.Status
	if shown.ObservedGeneration == d.Generation && shown.Replicas == all && shown.ReadyReplicas == ready {
		return nil
	}
	d.Status = appsv1.DeploymentStatus{ObservedGeneration: d.Generation, Replicas: all, UpdatedReplicas: all,
		ReadyReplicas: ready, AvailableReplicas: ready}
	_, err := p.cluster.Client().AppsV1().Deployments(d.Namespace).UpdateStatus(ctx, d, metav1.UpdateOptions{})
	if apierrors.IsConflict(err) {
		return nil // somebody has changed the Deployment meanwhile, and it is read again
	}
	return err
}

// notice sets when a controller that has ended by itself is started again.
func (p *playground) notice() {
	if p.controller == nil {
		return
	}
	select {
	case <-p.controller.Done():
		p.pause = min(max(2*p.pause, firstPause), longestPause)
		p.due = time.Now().Add(p.pause)
		fmt.Fprintf(p.out, "\nThe controller ended with exit code %d and is started again in %v. %s\n",
			p.controller.PodExitCode(), p.pause, printed(p.controller.Log()))
		p.controller = nil
	default:
	}
}

// printed returns a sentence about the log of a controller that has ended. One that is killed at once has none.
func printed(log string) string {
	if last := cluster.LastLines(log, 1); last != "" {
		return "It printed last:\n  " + last
	}
	return "It printed nothing."
}

// stop asks the controller to stop if one runs, and waits until it has.
func (p *playground) stop() error {
	if p.controller == nil {
		return nil
	}
	err := p.controller.Stop(stopPatience)
	p.controller = nil
	return err
}

// invitation is what play prints. A test runs its lines with two spaces before them.
const invitation = `
A control plane, the policies and the controller are running. You are the admin of the cluster, a publisher may publish
from platform, and a tenant may edit in team-a. In another terminal, in this folder:

  . LINK/env    # sets PATH, KUBECONFIG, PUBLISHER and TENANT

Publish, as the publisher. team-a, team-b and team-c get a copy, and other gets none:
  kubectl -n platform create configmap settings --from-literal=colour=blue --kubeconfig=$PUBLISHER
  kubectl -n platform label configmap settings mirror=true --kubeconfig=$PUBLISHER
  kubectl mirror wait platform/settings && kubectl get configmaps -A -l mirror

As the tenant, edit the copy, and see it restored; then try to publish, and be refused:
  kubectl -n team-a patch configmap settings -p '{"data":{"colour":"red"}}' --kubeconfig=$TENANT
  kubectl -n team-a get configmap settings -o yaml --kubeconfig=$TENANT
  kubectl -n team-a create configmap ours --kubeconfig=$TENANT
  kubectl -n team-a label configmap ours mirror=true --kubeconfig=$TENANT || echo refused

Change in stages, as the publisher. First only team-b turns green, then all:
  kubectl label namespace team-b tier=canary
  export STAGE=mirror-controller.github.io/rollout
  kubectl -n platform annotate configmap settings $STAGE=tier=canary --kubeconfig=$PUBLISHER
  kubectl -n platform patch configmap settings -p '{"data":{"colour":"green"}}' --kubeconfig=$PUBLISHER
  kubectl mirror wait platform/settings --kubeconfig=$PUBLISHER; kubectl mirror status platform/settings
  kubectl -n platform annotate configmap settings $STAGE- --kubeconfig=$PUBLISHER

Delete by mistake, see what is announced, and undo it:
  kubectl -n platform delete configmap settings --kubeconfig=$PUBLISHER
  kubectl mirror status -A; kubectl mirror status platform/settings
  kubectl -n platform create configmap settings --from-literal=colour=green --kubeconfig=$PUBLISHER
  kubectl -n platform label configmap settings mirror=true --kubeconfig=$PUBLISHER
  kubectl mirror wait platform/settings

Start the controller with other flags, on top of the usual ones; "make run" alone goes back to those. With a narrower
prefix, all copies stay:
  make run ARGS=--namespace-prefix=team-a
  kubectl mirror status -A

The controller is a process here, in place of the Pod of its Deployment. It is started again when it has ended, and when
the Deployment has changed, as by "kubectl apply -k" of an overlay. Its log follows. Ctrl-C stops everything and removes
all files.
`
