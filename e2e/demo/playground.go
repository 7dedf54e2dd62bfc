package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/mirror-controller/mirror-controller/e2e/cluster"
	"github.com/mirror-controller/mirror-controller/e2e/shipped"
)

// stopPatience is how long the controller has for its writes in flight when Ctrl-C comes.
const stopPatience = 40 * time.Second

// playground starts a control plane and the controller, with arguments besides those of its Deployment, says how to
// reach them, and runs until ctx ends.
func playground(ctx context.Context, more []string, out io.Writer) (err error) {
	c, err := cluster.Start(ctx, cluster.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Stop()) }()
	installed, err := shipped.Install(ctx, c, *manifests, *binary)
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(c.Admin())
	if err != nil {
		return err
	}
	publisher, err1 := c.Kubeconfig(cluster.User{Name: "publisher"})
	tenant, err2 := c.Kubeconfig(cluster.User{Name: tenantName})
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	err = errors.Join(
		configure(ctx, client, installed, more),
		createNamespaces(ctx, client, home, prefix+"a", prefix+"b", prefix+"c", "other"),
		admit(ctx, client, "publisher", home, "edit", "mirror-controller-publisher"),
		admit(ctx, client, tenantName, prefix+"a", "edit"))
	if err != nil {
		return err
	}
	controller, err := installed.Start(shipped.RunOptions{Log: out})
	if err != nil {
		return err
	}
	fmt.Fprintf(out, invitation, strings.Join(installed.Args, " "), filepath.Dir(*binary), filepath.Dir(c.Kubectl()),
		c.AdminKubeconfig(), publisher, tenant, filepath.Join(filepath.Dir(publisher), "cache"))
	select {
	case <-ctx.Done():
		fmt.Fprintln(out, "\nStopping.")
		stopCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopPatience)
		defer cancel()
		return controller.Stop(stopCtx)
	case <-controller.Done():
		return fmt.Errorf("the controller ended with code %d", controller.ExitCode())
	}
}

// configure adds arguments to the Deployment, where the plug-in reads them, and says there that one replica is ready:
// the process stands for its Pod.
func configure(ctx context.Context, client kubernetes.Interface, i *shipped.Installation, more []string) error {
	deployments := client.AppsV1().Deployments(i.Namespace)
	list, err := deployments.List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	deployment := &list.Items[0]
	container := &deployment.Spec.Template.Spec.Containers[0]
	container.Args = append(container.Args, more...)
	i.Args = container.Args
	if deployment, err = deployments.Update(ctx, deployment, metav1.UpdateOptions{}); err != nil {
		return err
	}
	status := &deployment.Status
	status.ObservedGeneration = deployment.Generation
	status.Replicas, status.UpdatedReplicas, status.ReadyReplicas = 1, 1, 1
	_, err = deployments.UpdateStatus(ctx, deployment, metav1.UpdateOptions{})
	return err
}

// invitation is what playground prints. A test runs its lines with two spaces before them.
const invitation = `
A control plane, the policies and the controller are running, with %s
The controller is a process here, in place of the Pod of its Deployment: neither "kubectl logs" nor "scale" reach it.
You are the admin, a publisher may publish from platform, and a tenant may edit in team-a. In another terminal:

  export PATH=%s:%s:$PATH KUBECONFIG=%s
  export PUBLISHER=%s TENANT=%s KUBECACHEDIR=%s

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
  kubectl mirror wait platform/settings --kubeconfig=$PUBLISHER; kubectl mirror status platform/settings --all
  kubectl -n platform annotate configmap settings $STAGE- --kubeconfig=$PUBLISHER

Delete by mistake, see what is announced, and undo it:
  kubectl -n platform delete configmap settings --kubeconfig=$PUBLISHER
  kubectl mirror status -A; kubectl mirror status platform/settings
  kubectl -n platform create configmap settings --from-literal=colour=green --kubeconfig=$PUBLISHER
  kubectl -n platform label configmap settings mirror=true --kubeconfig=$PUBLISHER
  kubectl mirror wait platform/settings

The log of the controller follows. Ctrl-C stops everything and removes all files.

`
