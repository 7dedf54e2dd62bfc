package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/mirror-controller/mirror-controller/e2e/programs"
)

// pollPeriod is how often we look whether something has come up.
const pollPeriod = 20 * time.Millisecond

// startPlane starts etcd and the API server. envtest looks for free ports and gives them back before the programs take
// them: somebody else may be faster, and then it is tried again with others.
func (c *Cluster) startPlane() (err error) {
	for range 3 {
		if c.plane, err = c.newPlane(); err != nil {
			return err
		}
		if err = c.plane.Start(); err == nil {
			return nil
		}
		if err := removeAll(c.folder.File("etcd", "*")); err != nil {
			return err
		}
	}
	return err
}

// newPlane describes etcd and the API server. It uses envtest's ControlPlane and not its Environment, as
// the latter obeys environment variables, among them one which has it use the caller's own cluster.
func (c *Cluster) newPlane() (*envtest.ControlPlane, error) {
	etcd, errEtcd := c.wrap(Etcd)
	apiServer, errServer := c.wrap(APIServer)
	policyFile, auditLog := c.folder.File("audit-policy.json"), string(c.Audit())
	level, compaction := auditv1.LevelMetadata, "5m"
	if c.options.Recorded {
		level, compaction = auditv1.LevelRequestResponse, "0"
	}
	err := errors.Join(errEtcd, errServer, os.WriteFile(auditLog, nil, 0o600), // for who reads it before the first request
		os.WriteFile(policyFile, fmt.Appendf(nil, auditPolicy, level), 0o600))
	if err != nil {
		return nil, err
	}
	plane := &envtest.ControlPlane{
		Etcd: &envtest.Etcd{
			Path: etcd, DataDir: c.folder.File("etcd"), Out: c.logs[Etcd], Err: c.logs[Etcd],
			StartTimeout: startTimeout, StopTimeout: stopTimeout,
		},
		APIServer: &envtest.APIServer{
			Path: apiServer, CertDir: c.folder.File("apiserver"), Out: c.logs[APIServer], Err: c.logs[APIServer],
			StartTimeout: startTimeout, StopTimeout: stopTimeout,
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
		Set("etcd-compaction-interval", compaction).
		Set("audit-policy-file", policyFile).
		Set("audit-log-path", auditLog).
		Set("audit-log-mode", "blocking").
		// Megabytes before the log is rotated away under its reader: never.
		Set("audit-log-maxsize", "1000000")
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
	return Until(ctx, startTimeout, func() error {
		return c.client.CoreV1().RESTClient().Get().AbsPath("/readyz").Do(ctx).Error()
	})
}

// controllers returns those of kube-controller-manager that run: which a test of ours can notice.
func (o Options) controllers() string {
	names := []string{"clusterrole-aggregation", "namespace", "serviceaccount", "validatingadmissionpolicy-status"}
	if !o.Lean { // these keep every ConfigMap in memory
		names = append(names, "garbage-collector", "resourcequota", "root-ca-certificate-publisher")
	}
	return strings.Join(names, "-controller,") + "-controller"
}

// startManager starts the controller manager. As its user is in system:masters, its requests are exempt
// from priority and fairness: it does not wait in one queue with the controller under test.
func (c *Cluster) startManager() error {
	kubeconfig, err := c.Kubeconfig(User{Name: "system:kube-controller-manager", Groups: []string{"system:masters"}})
	rootCA := c.folder.File("root-ca.crt")
	program, errWrap := c.wrap(ControllerManager)
	if err := errors.Join(err, errWrap, os.WriteFile(rootCA, c.admin.CAData, 0o600)); err != nil {
		return err
	}
	cmd := c.Command(context.Background(), program,
		"--kubeconfig="+kubeconfig,
		"--root-ca-file="+rootCA,
		"--concurrent-namespace-syncs=50",
		"--concurrent-resource-quota-syncs=20",
		// An object that comes at the same moment as the quota it falls under is counted by the next round
		// only, and the default round is five minutes.
		"--resource-quota-sync-period=1s",
	)
	if filepath.Base(c.programs[ControllerManager]) == programs.KubeControllerManager {
		cmd.Args = append(cmd.Args,
			"--controllers="+c.options.controllers(),
			"--leader-elect=false",
			"--secure-port=0", // no port: no metrics
			"--authentication-skip-lookup",
			// The default of 20 requests a second makes thousands of namespaces slow.
			"--kube-api-qps=5000", "--kube-api-burst=10000",
			"--concurrent-gc-syncs=20",
		)
	}
	cmd.Stdout, cmd.Stderr = c.logs[ControllerManager], c.logs[ControllerManager]
	c.manager, err = Run(cmd)
	return err
}

// stopManager stops the controller manager if it runs. The folder kills one that does not end in time.
func (c *Cluster) stopManager() {
	if c.manager != nil {
		_ = c.manager.Stop(stopTimeout)
	}
}

// waitForControllers waits until the default namespace has what the controllers put into it.
func (c *Cluster) waitForControllers(ctx context.Context) error {
	return wait.PollUntilContextTimeout(ctx, pollPeriod, startTimeout, true, func(context.Context) (bool, error) {
		select {
		case <-c.manager.Done():
			return false, fmt.Errorf("the controller manager has ended: %w", c.manager.err)
		default:
		}
		_, err := c.client.CoreV1().ServiceAccounts(metav1.NamespaceDefault).Get(ctx, "default", metav1.GetOptions{})
		if err == nil && !c.options.Lean {
			_, err = c.client.CoreV1().ConfigMaps(metav1.NamespaceDefault).Get(ctx, "kube-root-ca.crt", metav1.GetOptions{})
		}
		return err == nil, nil
	})
}
