package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
)

// kubeconfigVariable is KUBECONFIG, the environment variable with a list of
// files.
const kubeconfigVariable = clientcmd.RecommendedConfigPathEnvVar

// errNoCluster is the error of a process that runs outside a cluster without a
// kubeconfig.
var errNoCluster = errors.New("--kubeconfig: required outside a cluster: " +
	"give a kubeconfig file, or set $" + kubeconfigVariable)

// clientConfig returns the client configuration that the options ask for. It
// sends no request, so the API server may be away. An error begins with the
// flag, or the variable, that is wrong.
func (o *options) clientConfig() (*rest.Config, error) {
	config, origin, err := o.findCluster()
	if err != nil {
		return nil, err
	}
	// The audit log then distinguishes one instance from another.
	config.UserAgent = program + "/" + version() + " instance/" + o.Instance
	config.ContentType = runtime.ContentTypeProtobuf
	config.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	// API servers compress a watch that begins as a list, event by event. That
	// costs both sides more time than the network saves. Kubernetes' own
	// controllers switch it off, too.
	config.DisableCompression = true
	config.WarningHandlerWithContext = &warnings{rate.Sometimes{Interval: time.Minute}}
	config.QPS = -1 // no throttle: the API server has its priority and fairness
	// Certificates and credentials are read here for the first time. A fault in
	// them is an error of usage.
	if _, err := rest.HTTPClientFor(config); err != nil {
		return nil, fmt.Errorf("%s: %w", origin, err)
	}
	return config, nil
}

// warnings logs what the API server warns of, at most once in the interval: a
// policy may warn of each write.
type warnings struct{ rate.Sometimes }

// HandleWarningHeaderWithContext implements [rest.WarningHandlerWithContext].
func (w *warnings) HandleWarningHeaderWithContext(
	ctx context.Context, code int, _, text string,
) {
	if code != 299 || text == "" { // the only code that Kubernetes sends
		return
	}
	w.Do(func() {
		// The text may be that of a webhook, of any length. A thousand
		// characters do.
		text = fmt.Sprintf("%.1024s", text)
		klog.FromContext(ctx).Info("The API server warns", "warning", text)
	})
}

// findCluster returns how to reach the API server, and where that was found:
// --kubeconfig, $KUBECONFIG, or the service account of the pod, whichever is
// set first. ~/.kube/config is no default: it names the cluster that its owner
// used last.
func (o *options) findCluster() (config *rest.Config, origin string, err error) {
	files := os.Getenv(kubeconfigVariable)
	switch {
	case o.kubeconfig != "":
		origin = fmt.Sprintf("--kubeconfig=%q", o.kubeconfig)
		config, err = o.loadKubeconfig(origin, []string{o.kubeconfig})
	case files != "":
		origin = fmt.Sprintf("$%s=%q", kubeconfigVariable, files)
		config, err = o.loadKubeconfig(origin, filepath.SplitList(files))
	case o.context != "":
		err = fmt.Errorf("--context=%q: needs a kubeconfig: give --kubeconfig, or set $%s",
			o.context, kubeconfigVariable)
	default:
		origin = "service account of the pod"
		config, err = rest.InClusterConfig()
		if errors.Is(err, rest.ErrNotInCluster) {
			err = errNoCluster
		} else if err != nil {
			err = fmt.Errorf("%s: %w: is automountServiceAccountToken false?", origin, err)
		}
	}
	return config, origin, err
}

// loadKubeconfig returns the chosen context of the files, merged as kubectl
// merges them. Unlike kubectl, it returns an error if a file does not exist:
// the other files could name another cluster.
func (o *options) loadKubeconfig(origin string, files []string) (*rest.Config, error) {
	files = slices.DeleteFunc(files, func(file string) bool { return file == "" })
	for _, file := range files {
		if _, err := clientcmd.LoadFromFile(file); err != nil {
			return nil, fmt.Errorf("%s: cannot load %s: %w", origin, file, err)
		}
	}
	kubeconfig, err := (&clientcmd.ClientConfigLoadingRules{Precedence: files}).Load()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", origin, err)
	}
	chosen := cmp.Or(o.context, kubeconfig.CurrentContext)
	if _, ok := kubeconfig.Contexts[chosen]; !ok {
		return nil, fmt.Errorf("%s: has no context %q: give --context, one of %q",
			origin, chosen, slices.Sorted(maps.Keys(kubeconfig.Contexts)))
	}
	config, err := clientcmd.NewNonInteractiveClientConfig(*kubeconfig, chosen, nil, nil).
		ClientConfig()
	if err != nil {
		err = fmt.Errorf("%s: context %q: %w", origin, chosen, err)
	}
	return config, err
}
