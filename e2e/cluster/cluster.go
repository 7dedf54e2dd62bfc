package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

// startTimeout and stopTimeout bound what one program of the control plane takes to start and to stop. On
// an idle machine with two cores they take 3 s and 1 s; the rest is for machines that are busy.
const (
	startTimeout = 15 * time.Minute
	stopTimeout  = 5 * time.Minute
)

// stopGrace is what another program has to stop when it is told to.
const stopGrace = 10 * time.Second

// Options say what cluster to start.
type Options struct {
	// AuditUsers are users whose requests are in the audit log beside those of ServiceAccounts.
	AuditUsers []string
	// AuditBodies has the audit log hold what requests and answers carry. Watches have none.
	AuditBodies bool
	// Lean leaves out the controllers that keep every ConfigMap of the cluster in memory: garbage collector, quotas, and
	// the publisher of kube-root-ca.crt. A million ConfigMaps take them several GiB.
	Lean bool
	// Bare leaves out kube-controller-manager: nothing makes default ServiceAccounts, and nothing ends a namespace. It takes
	// etcd and kube-apiserver from the folder that KUBEBUILDER_ASSETS names, if these are new enough.
	Bare bool
	// Inlined takes programs that are compiled as what is released, for measurements.
	Inlined bool
}

// auditLevel returns how much the audit log holds of a request.
func (o Options) auditLevel() string {
	if o.AuditBodies {
		return "RequestResponse"
	}
	return "Metadata"
}

// Cluster is a running control plane. Its methods may be called concurrently, but those that stop and
// start programs not with each other.
type Cluster struct {
	dir     string // holds everything of this cluster
	bin     string // holds the programs
	options Options
	kubectl sync.Once // builds it
	reaper  *reaper
	plane   *envtest.ControlPlane
	manager *child
	audit   *AuditLog
	logs    map[string]*os.File

	admin           *rest.Config
	adminKubeconfig string
	users           sync.Mutex // the certificate authority is not safe for concurrent use

	stopped sync.Once
	stopErr error
}

// Start builds the programs where they are not built yet, starts them, and returns when the controllers
// work: the default namespace has its ServiceAccount and kube-root-ca.crt. That takes 5 to 10 seconds.
// When it fails, or ctx ends while it runs, nothing is left, and the error has the last lines that the
// programs logged. ctx bounds only the start.
func Start(ctx context.Context, o Options) (*Cluster, error) {
	bin, err := o.programs(ctx)
	if err != nil {
		return nil, err
	}
	return startFrom(ctx, bin, o)
}

// programs returns the folder of the programs.
func (o Options) programs(ctx context.Context) (string, error) {
	switch {
	case o.Inlined:
		return BuildInlined(ctx)
	case !o.Bare:
		return Build(ctx)
	}
	if folder := os.Getenv("KUBEBUILDER_ASSETS"); folder != "" {
		version, err := assets(ctx, folder)
		if err == nil {
			fmt.Fprintf(os.Stderr, "Taking etcd and kube-apiserver %s from KUBEBUILDER_ASSETS=%s.\n", version, folder)
			return folder, nil
		}
		fmt.Fprintf(os.Stderr, "KUBEBUILDER_ASSETS=%s is not used: %v.\n", folder, err)
	}
	return Build(ctx, Etcd, APIServer)
}

// startFrom starts the programs that are in the folder bin.
func startFrom(ctx context.Context, bin string, o Options) (*Cluster, error) {
	// The ending makes this name no prefix of another one: see reaperScript.
	dir, err := os.MkdirTemp("", "mirror-cluster-*.d")
	if err != nil {
		return nil, err
	}
	r, err := startReaper(dir)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	c := &Cluster{dir: dir, bin: bin, options: o, reaper: r, logs: map[string]*os.File{}}
	// envtest knows no contexts. It fails soon when the programs are killed under it.
	keep := context.AfterFunc(ctx, func() { _ = r.reap() })
	err = c.start(ctx)
	if !keep() || err != nil {
		if ctx.Err() != nil { // what failed then was killed
			err = ctx.Err()
		} else {
			err = errors.Join(err, c.logTails())
		}
		return nil, fmt.Errorf("start the control plane: %w", errors.Join(err, c.Stop()))
	}
	return c, nil
}

// start lays out the folder and starts one program after the other.
func (c *Cluster) start(ctx context.Context) error {
	for _, name := range []string{"bin", "logs", "etcd", "apiserver", "kubeconfigs"} {
		if err := os.Mkdir(filepath.Join(c.dir, name), 0o700); err != nil {
			return err
		}
	}
	for _, name := range []string{Etcd, APIServer, ControllerManager} {
		file, err := os.OpenFile(c.LogFile(name), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		if err != nil {
			return err
		}
		c.logs[name] = file
	}
	if err := c.startPlane(); err != nil {
		return err
	}
	if err := c.addAdmin(); err != nil {
		return err
	}
	if c.options.Bare {
		return nil
	}
	if err := c.startManager(); err != nil {
		return err
	}
	return c.waitForControllers(ctx)
}

// Stop ends every program in order, kills processes of Command that still run, and removes the folder.
// What did not end in time is killed: an error says so, but nothing is left. Calls after the first return
// what the first did.
func (c *Cluster) Stop() error {
	c.stopped.Do(func() { c.stopErr = c.stop() })
	return c.stopErr
}

func (c *Cluster) stop() error {
	for name := range c.logs {
		_ = c.Signal(name, syscall.SIGCONT) // one that a test has stopped could not end; fails for one that is not there
	}
	errs := []error{c.manager.stop()}
	if c.plane != nil {
		errs = append(errs, c.plane.Stop())
	}
	for _, file := range c.logs {
		errs = append(errs, file.Close())
	}
	errs = append(errs, c.reaper.reap())
	// The reaper has done it, unless somebody has killed it.
	errs = append(errs, os.RemoveAll(c.dir))
	return errors.Join(errs...)
}

// Dir returns the folder that holds everything of this cluster, and is removed with it. Tests may put files there.
func (c *Cluster) Dir() string { return c.dir }

// Bin returns the path of a program: Etcd, APIServer or ControllerManager.
func (c *Cluster) Bin(name string) string { return filepath.Join(c.bin, name) }

// Kubectl returns the path of a kubectl of the cluster's version. The first call builds it where it is not
// built yet: most clusters need none. When that fails, standard error has the reason, and the path leads to nothing.
func (c *Cluster) Kubectl() string {
	c.kubectl.Do(func() {
		if _, err := Build(context.Background(), Kubectl); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	})
	return c.Bin(Kubectl)
}

// Audit returns the API server's audit log.
func (c *Cluster) Audit() *AuditLog { return c.audit }

// LogFile returns the path of what Etcd, APIServer or ControllerManager logs.
func (c *Cluster) LogFile(name string) string { return filepath.Join(c.dir, "logs", name+".log") }

// logTails returns the last lines of each log as an error, or nil when nothing was logged.
func (c *Cluster) logTails() error {
	var errs []error
	for name := range c.logs {
		content, err := os.ReadFile(c.LogFile(name))
		if err == nil && len(content) > 0 {
			errs = append(errs, fmt.Errorf("%s logged last:\n%s", name, lastLines(string(content), 15)))
		}
	}
	return errors.Join(errs...)
}
