package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

// pollPeriod is how often we look whether something has come up.
const pollPeriod = 50 * time.Millisecond

// startPlane starts etcd and the API server. envtest looks for free ports and gives them back before the
// programs take them: when somebody else was faster, it is tried again with others.
func (c *Cluster) startPlane() error {
	const tries = 3
	for try := 1; ; try++ {
		plane, err := c.newPlane()
		if err != nil {
			return err
		}
		c.plane = plane
		err = plane.Start()
		if err == nil || try == tries || !c.portTaken() {
			return err
		}
		if err := removeAll(filepath.Join(c.dir, "etcd", "*")); err != nil {
			return err
		}
	}
}

// portTaken reports whether etcd or the API server has complained that its port is in use.
func (c *Cluster) portTaken() bool {
	for _, name := range []string{Etcd, APIServer} {
		content, _ := os.ReadFile(c.LogFile(name))
		if bytes.Contains(content, []byte("address already in use")) {
			return true
		}
	}
	return false
}

// newPlane describes etcd and the API server. It uses envtest's ControlPlane and not its Environment, as
// the latter obeys environment variables, among them one which has it use the caller's own cluster.
func (c *Cluster) newPlane() (*envtest.ControlPlane, error) {
	etcd, err := c.wrap(Etcd)
	if err != nil {
		return nil, err
	}
	apiServer, err := c.wrap(APIServer)
	if err != nil {
		return nil, err
	}
	if err := WriteAuditPolicy(c.auditPolicyFile(), c.options.auditLevel(), c.options.AuditUsers...); err != nil {
		return nil, err
	}
	plane := &envtest.ControlPlane{
		Etcd: &envtest.Etcd{
			Path:         etcd,
			DataDir:      filepath.Join(c.dir, "etcd"),
			Out:          c.logs[Etcd],
			Err:          c.logs[Etcd],
			StartTimeout: startTimeout,
			StopTimeout:  stopTimeout,
		},
		APIServer: &envtest.APIServer{
			Path:         apiServer,
			CertDir:      filepath.Join(c.dir, "apiserver"),
			Out:          c.logs[APIServer],
			Err:          c.logs[APIServer],
			StartTimeout: startTimeout,
			StopTimeout:  stopTimeout,
		},
	}
	plane.Etcd.Configure().
		Set("unsafe-no-fsync", "true").
		Set("log-level", "warn").
		// Thousands of namespaces, written again and again within the five minutes between compactions; or a million
		// copies: some 3 GiB, and their last changes.
		Set("quota-backend-bytes", fmt.Sprint(16<<30))
	plane.APIServer.Configure().
		// envtest turns the ServiceAccount plug-in off as it runs nothing that creates ServiceAccounts; we do.
		Disable("disable-admission-plugins").
		// The other reconcilers refuse to publish a loopback address.
		Set("endpoint-reconciler-type", "none").
		// A server told to stop waits a minute for its watches, unless it may end them itself.
		Set("shutdown-send-retry-after", "true").
		Set("shutdown-watch-termination-grace-period", "1s").
		Set("audit-policy-file", c.auditPolicyFile()).
		Set("audit-log-path", c.auditLogFile()).
		Set("audit-log-mode", "blocking").
		// Megabytes before the log is rotated away under its reader: never.
		Set("audit-log-maxsize", "1000000")
	c.audit = OpenAuditLog(c.auditLogFile())
	return plane, nil
}

// StopAPIServer stops the API server, as an upgrade of a control plane does. Clients find nobody on its
// port until StartAPIServer; etcd and the controller manager keep running.
func (c *Cluster) StopAPIServer() error {
	_ = c.Signal(APIServer, syscall.SIGCONT) // one that hangs could not stop; fails for one that is not there
	if err := c.plane.APIServer.Stop(); err != nil {
		return fmt.Errorf("stop the API server: %w", err)
	}
	return os.Remove(c.pidFile(APIServer)) // somebody else may get the id
}

// StartAPIServer starts the API server again, on the same port and with the same data, certificates and
// keys: kubeconfigs and tokens stay valid. It returns when the server is ready.
func (c *Cluster) StartAPIServer(ctx context.Context) error {
	if err := c.plane.APIServer.Start(); err != nil {
		return fmt.Errorf("start the API server again: %w", err)
	}
	client, err := kubernetes.NewForConfig(c.admin)
	if err != nil {
		return err
	}
	err = wait.PollUntilContextTimeout(ctx, pollPeriod, startTimeout, true, func(ctx context.Context) (bool, error) {
		return client.RESTClient().Get().AbsPath("/readyz").Do(ctx).Error() == nil, nil
	})
	if err != nil {
		return fmt.Errorf("wait until the API server is ready again: %w", err)
	}
	return nil
}

// controllers are those which a test of ours can notice.
var controllers = []string{
	"clusterrole-aggregation-controller",
	"garbage-collector-controller",
	"namespace-controller",
	"resourcequota-controller",
	"root-ca-certificate-publisher-controller",
	"serviceaccount-controller",
	"validatingadmissionpolicy-status-controller",
}

// hungry are those that keep every ConfigMap in memory.
var hungry = []string{"garbage-collector-controller", "resourcequota-controller", "root-ca-certificate-publisher-controller"}

// controllers returns those that run.
func (o Options) controllers() []string {
	return slices.DeleteFunc(slices.Clone(controllers), func(name string) bool { return o.Lean && slices.Contains(hungry, name) })
}

// startManager starts the controller manager. As its user is in system:masters, its requests are exempt
// from priority and fairness: it does not wait in one queue with the controller under test.
func (c *Cluster) startManager() error {
	kubeconfig, err := c.Kubeconfig(User{Name: "system:kube-controller-manager", Groups: []string{"system:masters"}})
	if err != nil {
		return err
	}
	rootCA := filepath.Join(c.dir, "root-ca.crt")
	if err := os.WriteFile(rootCA, c.admin.CAData, 0o600); err != nil {
		return err
	}
	program, err := c.wrap(ControllerManager)
	if err != nil {
		return err
	}
	cmd := exec.Command(program,
		"--kubeconfig="+kubeconfig,
		"--root-ca-file="+rootCA,
		"--controllers="+strings.Join(c.options.controllers(), ","),
		"--leader-elect=false",
		"--secure-port=0", // no port: no metrics
		"--authentication-skip-lookup",
		// The default of 20 requests a second makes thousands of namespaces slow.
		"--kube-api-qps=5000", "--kube-api-burst=10000",
		"--concurrent-namespace-syncs=50",
		"--concurrent-resource-quota-syncs=20",
		// An object that comes at the same moment as the quota it falls under is counted by the next round
		// only, and the default round is five minutes.
		"--resource-quota-sync-period=1s",
		"--concurrent-gc-syncs=20",
	)
	cmd.Stdout, cmd.Stderr = c.logs[ControllerManager], c.logs[ControllerManager]
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	c.manager, err = startChild(cmd)
	return err
}

// waitForControllers waits until the default namespace has what the controllers put into it.
func (c *Cluster) waitForControllers(ctx context.Context) error {
	client, err := kubernetes.NewForConfig(c.admin)
	if err != nil {
		return err
	}
	var last error
	err = wait.PollUntilContextTimeout(ctx, pollPeriod, startTimeout, true, func(ctx context.Context) (bool, error) {
		select {
		case <-c.manager.done:
			return false, fmt.Errorf("the controller manager has ended: %w", c.manager.err)
		default:
		}
		_, last = client.CoreV1().ServiceAccounts(metav1.NamespaceDefault).Get(ctx, "default", metav1.GetOptions{})
		if last == nil && !c.options.Lean {
			_, last = client.CoreV1().ConfigMaps(metav1.NamespaceDefault).Get(ctx, "kube-root-ca.crt", metav1.GetOptions{})
		}
		return last == nil, nil
	})
	if err != nil {
		return fmt.Errorf("wait for the controllers: %w", errors.Join(err, last))
	}
	return nil
}

func (c *Cluster) auditPolicyFile() string { return filepath.Join(c.dir, "audit-policy.json") }
func (c *Cluster) auditLogFile() string    { return filepath.Join(c.dir, "audit.log") }
