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
	"k8s.io/apimachinery/pkg/util/sets"
	typedappsv1 "k8s.io/client-go/kubernetes/typed/apps/v1"
	"k8s.io/client-go/util/flowcontrol"

	"github.com/mirror-controller/mirror-controller/e2e/cluster"
	"github.com/mirror-controller/mirror-controller/e2e/programs"
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
	bin, err := programs.Build(ctx, cluster.Kubectl)
	if err != nil {
		return err
	}
	installed, err := shipped.Render(*manifests)
	if err != nil {
		return err
	}
	if err := configure(installed, more); err != nil {
		return err
	}
	if _, err := os.Stat(*link); err == nil {
		if err := apply(ctx, bin, *link, installed); err != nil {
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
		furnish(c, bin),
		os.Symlink(c.Dir(), *link),
		apply(ctx, bin, c.Dir(), installed),
		cluster.CreateNamespaces(ctx, client, home, prefix+"a", prefix+"b", prefix+"c", "other"),
		admit(ctx, client, "publisher", home, "edit", "mirror-controller-publisher"),
		admit(ctx, client, tenantName, prefix+"a", "edit"))
	if err != nil {
		return err
	}
	fmt.Fprint(out, strings.ReplaceAll(invitation, "LINK", *link))
	deployment, err := installed.Deployment()
	if err != nil {
		return err
	}
	deployments := client.AppsV1().Deployments(deployment.Namespace)
	return (&playground{cluster: c, deployments: deployments, name: deployment.Name, out: out}).run(ctx)
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
	given := sets.New[string]()
	for _, arg := range more {
		given.Insert(flagOf(arg))
	}
	if given.Has("--all-namespaces") {
		given.Insert("--namespace-prefix") // the controller takes one of the two
	}
	kept := slices.DeleteFunc(slices.Clone(args), func(arg string) bool { return given.Has(flagOf(arg)) })
	return append(kept, more...)
}

func flagOf(arg string) string {
	name, _, _ := strings.Cut(arg, "=")
	return name
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

// furnish leaves in the folder of the cluster a kubeconfig for each user, and the settings of a terminal.
func furnish(c *cluster.Cluster, bin string) error {
	for _, user := range []cluster.User{
		{Name: "admin", Groups: []string{"system:masters"}}, {Name: "publisher"}, {Name: tenantName},
	} {
		cfg, err := c.Config(user)
		if err != nil {
			return err
		}
		if err := cluster.WriteKubeconfig(filepath.Join(c.Dir(), user.Name+".kubeconfig"), user.Name, cfg); err != nil {
			return err
		}
	}
	env := fmt.Sprintf(terminal, filepath.Dir(*binary), bin, c.Dir())
	return os.WriteFile(filepath.Join(c.Dir(), "env"), []byte(env), 0o600)
}

// terminal is what furnish has a terminal set.
const terminal = `export PATH="%s:%s:$PATH" KUBECACHEDIR="%[3]s/cache" KUBECONFIG="%[3]s/admin.kubeconfig"
export PUBLISHER="%[3]s/publisher.kubeconfig" TENANT="%[3]s/tenant.kubeconfig"
`

// apply applies manifests as a user does, so that what the user applies later is a change of them.
func apply(ctx context.Context, bin, dir string, m shipped.Manifests) error {
	list, err := json.Marshal(map[string]any{"apiVersion": "v1", "kind": "List", "items": m})
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, filepath.Join(bin, cluster.Kubectl),
		"--kubeconfig", filepath.Join(dir, "admin.kubeconfig"), "--cache-dir", filepath.Join(dir, "cache"),
		"apply", "-f", "-")
	cmd.Env = append(os.Environ(), "KUBERC=off")
	cmd.Stdin = bytes.NewReader(list)
	if said, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("kubectl apply: %w: %s", err, said)
	}
	return nil
}

// playground runs the controller of a Deployment in the place of a kubelet.
type playground struct {
	cluster     *cluster.Cluster
	deployments typedappsv1.DeploymentInterface
	name        string
	out         io.Writer

	controller *shipped.Process // nil while none runs
	generation int64            // of the Deployment that it was started for
}

// run runs the controller until ctx ends. It starts it again when the Deployment has changed and, after a pause, when
// it has ended by itself.
func (p *playground) run(ctx context.Context) error {
	pauses := flowcontrol.NewBackOff(firstPause, longestPause)
	for {
		if err := p.follow(ctx, pauses); err != nil && ctx.Err() == nil {
			return err
		}
		var ended <-chan struct{}
		if p.controller != nil {
			ended = p.controller.Done()
		}
		select {
		case <-ctx.Done():
			fmt.Fprintln(p.out, "\nStopping.")
			return p.stop()
		case <-ended:
			pauses.Next(p.name, time.Now())
			fmt.Fprintf(p.out, "\nThe controller ended with exit code %d and is started again in %v. It printed last:\n  %s\n",
				p.controller.PodExitCode(), pauses.Get(p.name), cluster.LastLines(p.controller.Log(), 1))
			p.controller = nil
		case <-time.After(time.Second / 4): // for changes of the Deployment
		}
	}
}

// follow stops and starts the controller as the Deployment wants it.
func (p *playground) follow(ctx context.Context, pauses *flowcontrol.Backoff) error {
	d, err := p.deployments.Get(ctx, p.name, metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	wanted := err == nil && *d.Spec.Replicas > 0
	settled := p.controller != nil || pauses.IsInBackOffSinceUpdate(p.name, time.Now())
	if wanted && settled && d.Generation == p.generation {
		return nil
	}
	if err := p.stop(); err != nil || !wanted {
		return err
	}
	installed, err := shipped.Deployed(ctx, p.cluster, d.Namespace, d.Name, *binary)
	if err != nil {
		return err
	}
	if d.Generation != p.generation {
		pauses.Reset(p.name)
	}
	if p.controller, err = installed.Start(shipped.RunOptions{Log: p.out}); err != nil {
		return err
	}
	p.generation = d.Generation
	args := strings.Join(installed.Args, " ")
	fmt.Fprintf(p.out, "\nThe controller runs as process %d with %s\n", p.controller.Pid(), args)
	// The process stands for the Pods.
	d.Status = appsv1.DeploymentStatus{ObservedGeneration: d.Generation, Replicas: *d.Spec.Replicas,
		UpdatedReplicas: *d.Spec.Replicas, ReadyReplicas: *d.Spec.Replicas, AvailableReplicas: *d.Spec.Replicas}
	_, err = p.deployments.UpdateStatus(ctx, d, metav1.UpdateOptions{})
	return err
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
