package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/mirror-controller/mirror-controller/e2e/cluster"
	"github.com/mirror-controller/mirror-controller/e2e/shipped"
)

// stopPatience is how long the controller has for its writes in flight when Ctrl-C comes.
const stopPatience = 40 * time.Second

// restartDelay is the time between the end of a controller that has ended by itself and the start of the next.
const restartDelay = time.Second

// playground starts a control plane and the controller, says how to reach them, and runs until ctx ends.
func playground(ctx context.Context, binary, manifests string, out io.Writer) (err error) {
	c, err := cluster.Start(ctx, cluster.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Stop()) }()
	installed, err := shipped.Install(ctx, c, manifests, binary)
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(c.Admin())
	if err != nil {
		return err
	}
	for _, name := range []string{"platform", "team-a", "team-b", "other"} {
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if _, err := client.CoreV1().Namespaces().Create(ctx, ns, metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	controller, err := installed.Start(shipped.RunOptions{Log: out})
	if err != nil {
		return err
	}
	fmt.Fprintf(out, invitation, c.AdminKubeconfig(), filepath.Dir(c.Kubectl()), installed.Args)
	for {
		select {
		case <-ctx.Done():
			fmt.Fprintln(out, "\nStopping.")
			stopCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopPatience)
			defer cancel()
			return controller.Stop(stopCtx)
		case <-controller.Done():
			fmt.Fprintf(out, "\nThe controller ended with code %d. It is started again, as a kubelet would do.\n\n", controller.ExitCode())
		}
		select { // not at once, in case it cannot run
		case <-ctx.Done():
			return nil
		case <-time.After(restartDelay):
		}
		if controller, err = installed.Start(shipped.RunOptions{Log: out}); err != nil {
			return err
		}
	}
}

const invitation = `
A control plane and the controller are running. In another terminal:

  export KUBECONFIG=%s
  export PATH=%s:$PATH      # a kubectl of the right version, if you have none

The controller has the arguments of its Deployment, %v. The namespaces are
platform, team-a, team-b and other. Try this:

  kubectl -n platform create configmap settings --from-literal=colour=blue
  kubectl -n platform label configmap settings mirror=true
  kubectl get configmaps -A -l mirror
  kubectl -n team-a patch configmap settings -p '{"data":{"colour":"red"}}'    # restored at once
  kubectl -n team-a get configmap settings -o yaml
  kubectl create namespace team-c                                             # gets its copy
  kubectl label namespace team-b mirror=false                                 # loses its copy
  kubectl -n platform events --for configmap/settings
  kubectl -n platform delete configmap settings                               # deletes the copies

The log of the controller follows. Ctrl-C stops everything and removes all files.

`
