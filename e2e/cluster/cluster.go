package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/mirror-controller/mirror-controller/e2e/programs"
)

// The programs of a cluster.
const (
	Etcd              = programs.Etcd
	APIServer         = programs.APIServer
	ControllerManager = programs.ControllerManager
	Kubectl           = programs.Kubectl
)

// startTimeout and stopTimeout bound what one program of the control plane
// takes to start and to stop. On an idle machine with two cores that is 3 s and
// 1 s. `make e2e` starts nine control planes at a time: beside four programs
// that spin that takes half a minute. The rest is for slower machines.
const (
	startTimeout = 5 * time.Minute
	stopTimeout  = 2 * time.Minute
)

// stopGrace is what another program has to stop when it is told to.
const stopGrace = 10 * time.Second

// Options say what cluster to start.
type Options struct {
	// Recorded has the audit log hold what requests and answers carry, which watches have not, and etcd keep every
	// revision.
	Recorded bool
	// Lean leaves out the controllers that keep every ConfigMap of the cluster in memory: garbage collector, quotas,
	// and the publisher of kube-root-ca.crt. A million ConfigMaps take them several GiB.
	Lean bool
	// Bare leaves out the controller manager: nothing makes default ServiceAccounts, and nothing ends a namespace.
	Bare bool
	// Inlined takes kube-controller-manager, and programs that are compiled as what is released, for measurements.
	Inlined bool
}

// Cluster is a running control plane. Its methods may be called concurrently, but those that stop and start programs
// not with each other.
type Cluster struct {
	folder   *Folder // holds everything of this cluster
	programs programs.Paths
	options  Options
	plane    *envtest.ControlPlane
	manager  *Process // of the controller manager
	logs     map[string]*os.File

	admin           *rest.Config
	adminKubeconfig string
	client          kubernetes.Interface // of the admin
	users           sync.Mutex           // the certificate authority is not safe for concurrent use

	stop func() error // once
}

// Start finds the programs, or builds them, starts them, and returns when the controllers work: the default namespace
// has its ServiceAccount and kube-root-ca.crt. That takes 5 to 10 seconds. When it fails, or ctx ends while it runs,
// nothing is left, and the error has the last lines of the logs. ctx bounds only the start.
func Start(ctx context.Context, o Options) (*Cluster, error) {
	build, names := programs.Build, programs.ControlPlane
	if o.Inlined {
		build = programs.BuildInlined
	}
	if o.Bare {
		names = []string{Etcd, APIServer}
	}
	paths, err := build(ctx, names...)
	if err != nil {
		return nil, err
	}
	folder, err := NewFolder("", "mirror-cluster")
	if err != nil {
		return nil, err
	}
	c := &Cluster{folder: folder, programs: paths, options: o, logs: map[string]*os.File{}}
	c.stop = sync.OnceValue(c.stopAll)
	// envtest knows no contexts. It fails soon when the programs are killed under it.
	keep := context.AfterFunc(ctx, func() { _ = folder.Remove() })
	err = c.start(ctx)
	if !keep() || err != nil {
		return nil, fmt.Errorf("start the control plane: %w", errors.Join(ctx.Err(), err, folder.LogTails(), c.Stop()))
	}
	return c, nil
}

// start lays out the folder and starts one program after the other.
func (c *Cluster) start(ctx context.Context) error {
	var errs []error
	for _, name := range []string{"bin", "etcd", "apiserver", "kubeconfigs"} {
		errs = append(errs, os.Mkdir(c.folder.File(name), 0o700))
	}
	for _, name := range programs.ControlPlane {
		log, err := c.folder.OpenLog(name)
		c.logs[name], errs = log, append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	if err := c.startPlane(); err != nil {
		return err
	}
	if err := c.addAdmin(); err != nil || c.options.Bare {
		return err
	}
	if err := c.startManager(); err != nil {
		return err
	}
	return c.waitForControllers(ctx)
}

// Stop ends every program in order, kills processes of Command that still run, and removes the folder. What does not
// end in time is killed. Calls after the first return what the first did.
func (c *Cluster) Stop() error { return c.stop() }

func (c *Cluster) stopAll() error {
	for name := range c.logs {
		_ = c.Signal(name, syscall.SIGCONT) // one that a test has stopped could not end; fails for one that is not there
	}
	c.stopManager()
	var errs []error
	if c.plane != nil {
		errs = append(errs, c.plane.Stop())
	}
	for _, file := range c.logs {
		errs = append(errs, file.Close())
	}
	return errors.Join(append(errs, c.folder.Remove())...)
}

// Dir returns the folder that holds everything of this cluster, and is removed with it. Tests may put files there.
func (c *Cluster) Dir() string { return c.folder.Path }

// Kubectl returns the path of a kubectl of the cluster's version, and builds it where it is not built yet: most
// clusters need none. When that fails, standard error has the reason, and the path leads to nothing.
func (c *Cluster) Kubectl() string {
	paths, err := programs.Build(context.Background(), Kubectl)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	return paths[Kubectl]
}

// CreateNamespaces makes sure that the namespaces are there.
func CreateNamespaces(ctx context.Context, client kubernetes.Interface, names ...string) error {
	for _, name := range names {
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
		_, err := client.CoreV1().Namespaces().Create(ctx, ns, metav1.CreateOptions{})
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return err
		}
	}
	return nil
}

// Audit returns the API server's audit log.
func (c *Cluster) Audit() AuditLog { return AuditLog(c.folder.File("audit.log")) }
