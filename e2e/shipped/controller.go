package shipped

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mirror-controller/mirror-controller/e2e/cluster"
)

// Installation is the controller installed in a cluster. It runs the binary with the account and the flags of its Pod.
type Installation struct {
	Manifests Manifests // nil if somebody else applied them
	// Args are the arguments of the container in the Deployment.
	Args []string
	// Kubeconfig is a file with a token of the ServiceAccount of the Deployment.
	Kubeconfig string
	// User is the name of that ServiceAccount, as RBAC and the audit log have it.
	User string
	// Namespace is that of the Deployment, and of its Lease.
	Namespace string

	cluster *cluster.Cluster
	binary  string
}

// Install applies the manifests that dir renders to the cluster. binary is the path of the controller.
func Install(ctx context.Context, c *cluster.Cluster, dir, binary string) (*Installation, error) {
	if _, err := os.Stat(binary); err != nil {
		return nil, fmt.Errorf("the controller is not built (make build builds it): %w", err)
	}
	manifests, err := Render(dir)
	if err != nil {
		return nil, err
	}
	if err := manifests.Apply(ctx, c.Admin()); err != nil {
		return nil, err
	}
	deployment, err := manifests.Deployment()
	if err != nil {
		return nil, err
	}
	installed, err := Deployed(ctx, c, deployment.Namespace, deployment.Name, binary)
	if err == nil {
		installed.Manifests = manifests
	}
	return installed, err
}

// Deployed returns what somebody else has installed in a cluster, by its Deployment there.
func Deployed(ctx context.Context, c *cluster.Cluster, namespace, name, binary string) (*Installation, error) {
	deployment, err := c.Client().AppsV1().Deployments(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	pod := deployment.Spec.Template.Spec
	i := &Installation{Args: pod.Containers[0].Args, Namespace: namespace, cluster: c, binary: binary}
	return i, i.setAccount(ctx, namespace, pod.ServiceAccountName)
}

// setAccount has the controller run as a ServiceAccount, which must exist.
func (i *Installation) setAccount(ctx context.Context, namespace, name string) (err error) {
	i.User = cluster.ServiceAccountUser(namespace, name)
	i.Kubeconfig, err = i.cluster.ServiceAccountKubeconfig(ctx, namespace, name)
	return err
}

// As returns the installation with another ServiceAccount, which must exist, and without the prefixes of the
// Deployment: a list of prefixes grows, and the caller names all.
func (i *Installation) As(ctx context.Context, namespace, account string) (*Installation, error) {
	other := *i
	other.Args = slices.DeleteFunc(slices.Clone(i.Args), func(arg string) bool {
		return strings.HasPrefix(arg, "--namespace-prefix=")
	})
	return &other, other.setAccount(ctx, namespace, account)
}

// Process is a running controller.
type Process struct {
	*cluster.Process
	log string // its file
}

// RunOptions say how to run the controller, besides what the Deployment says.
type RunOptions struct {
	// Args come behind those of the Deployment. Of equal flags the last counts.
	Args []string
	// Env are variables on top of the environment, as "NAME=value".
	Env []string
	// Kubeconfig replaces the one of the installation.
	Kubeconfig string
	// Log gets all that the controller prints, besides Process.Log.
	Log io.Writer
}

// Start runs the controller. Whoever starts it stops it, but it does not outlive the cluster.
func (i *Installation) Start(o RunOptions) (*Process, error) {
	kubeconfig := cmp.Or(o.Kubeconfig, i.Kubeconfig)
	// What a Pod does by itself: it tells the namespace of the Lease, and has ports of its own. Which one was free is in
	// the log.
	local := []string{"--leader-elect-resource-namespace=" + i.Namespace, "--health-probe-bind-address=127.0.0.1:0",
		"--metrics-bind-address=127.0.0.1:0"}
	args := slices.Concat(i.Args, local, o.Args, []string{"--kubeconfig=" + kubeconfig})
	log, err := os.CreateTemp(i.cluster.Dir(), "controller-*.log")
	if err != nil {
		return nil, err
	}
	cmd := i.cluster.Command(context.Background(), i.binary, args...)
	cmd.Env = append(cmd.Env, o.Env...)
	cmd.Stdout = log
	if o.Log != nil {
		cmd.Stdout = io.MultiWriter(log, o.Log)
	}
	cmd.Stderr = cmd.Stdout
	running, err := cluster.Run(cmd)
	if err != nil {
		return nil, errors.Join(err, log.Close())
	}
	go func() {
		<-running.Done()
		log.Close()
	}()
	return &Process{running, log.Name()}, nil
}

// Log returns what the controller has printed so far.
func (p *Process) Log() string {
	content, _ := os.ReadFile(p.log) // it is there as long as the cluster
	return string(content)
}

// Address returns where the controller serves its "health" or its "metrics", and with --profiling its profiles.
func (p *Process) Address(what string) (string, error) {
	address := regexp.MustCompile(`"Serving ` + what + `" address="([^"]+)"`).FindStringSubmatch(p.Log())
	if address == nil {
		return "", fmt.Errorf("the controller has not logged that it serves %s", what)
	}
	return address[1], nil
}

// Get returns what the controller answers there within a minute, and an error
// that holds it unless the code is 200. It leaves no connection behind.
func (p *Process) Get(ctx context.Context, what, path string) (string, error) {
	address, err := p.Address(what)
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+path, nil)
	if err != nil {
		return "", err
	}
	request.Close = true // as a kubelet does
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s: %s", path, response.Status, text)
	}
	return string(text), err
}
