package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/mirror-controller/mirror-controller/e2e/cluster"
)

const (
	pollPeriod   = 50 * time.Millisecond
	startTimeout = 10 * time.Minute
)

// Node is a cluster of one node.
type Node struct {
	dir     string // holds all of it
	bin     string // the programs of Kubernetes
	remains *remains
	init    *initProcess
	admin   *rest.Config
	client  kubernetes.Interface
}

// Start brings up a node that has the image of the controller under that name, and returns when it is ready. It is built by
// the Makefile in the folder repository. Whoever starts a node stops it, also where Start fails.
func Start(ctx context.Context, repository, image string) (*Node, error) {
	bin, err := cluster.Build(ctx, cluster.Etcd, cluster.APIServer, cluster.ControllerManager, cluster.Scheduler, cluster.Kubelet,
		cluster.Kubectl)
	if err != nil {
		return nil, err
	}
	n := &Node{bin: bin}
	if n.dir, n.remains, err = newFolder(); err != nil {
		return n, err
	}
	if err := n.configure(); err != nil {
		return n, err
	}
	if n.admin, err = clientcmd.BuildConfigFromFlags("", n.kubeconfig(admin)); err != nil {
		return n, err
	}
	n.admin.QPS = -1
	if n.client, err = kubernetes.NewForConfig(n.admin); err != nil {
		return n, err
	}
	archives, err := images(ctx, repository, image, n.file("images"))
	if err != nil {
		return n, err
	}
	return n, n.powerOn(ctx, archives)
}

// Stop ends the node and removes all of it.
func (n *Node) Stop() error {
	if n == nil || n.remains == nil {
		return nil
	}
	n.init.end()
	return n.remains.remove()
}

// powerOn starts the programs, and returns when the node is ready.
func (n *Node) powerOn(ctx context.Context, archives []string) error {
	if err := makeCgroups(filepath.Base(n.dir)); err != nil {
		return err
	}
	var err error
	if n.init, err = startInit(n.dir); err != nil {
		return err
	}
	for _, program := range n.programs() {
		if err := n.run(program); err != nil {
			return err
		}
		if program[0] == containerd {
			if err := n.load(ctx, archives); err != nil {
				return err
			}
		}
	}
	if err := n.waitReady(ctx); err != nil {
		return errors.Join(err, n.logTails())
	}
	return nil
}

// run starts a program on the node, as a descendant of its process 1, and again if it fails: the API server does where it cannot
// serve within a minute. nsenter, as a parent, stops when the program is stopped.
func (n *Node) run(program []string) error {
	log, err := os.OpenFile(n.file(program[0]+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := n.inside(context.Background(), append([]string{"sh", "-c", `until "$@"; do sleep 1; done &`, "sh"}, program...)...)
	cmd.Stdout, cmd.Stderr = log, log
	return cmd.Run()
}

// inside returns a command that runs on the node.
func (n *Node) inside(ctx context.Context, args ...string) *exec.Cmd {
	target := fmt.Sprintf("--target=%d", n.init.cmd.Process.Pid)
	cmd := exec.CommandContext(ctx, "nsenter", append([]string{target, "--pid", "--mount", "--"}, args...)...)
	cmd.Env = []string{"PATH=" + n.bin + ":/usr/sbin:/usr/bin:/sbin:/bin"}
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C is for the tests
	return cmd
}

// load waits for containerd and gives it images.
func (n *Node) load(ctx context.Context, archives []string) error {
	for _, archive := range append([]string{""}, archives...) {
		args := []string{"ctr", "version"}
		if archive != "" {
			args = []string{"ctr", "--namespace=k8s.io", "images", "import", "--snapshotter=native", archive}
		}
		err := n.until(ctx, func() error {
			if out, err := n.inside(ctx, args...).CombinedOutput(); err != nil {
				return fmt.Errorf("%v: %w: %s", args, err, out)
			}
			return nil
		})
		if err != nil {
			return errors.Join(err, n.logTails())
		}
	}
	return nil
}

// waitReady waits until Pods can run.
func (n *Node) waitReady(ctx context.Context) error {
	return n.until(ctx, func() error {
		node, err := n.client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, taint := range node.Spec.Taints {
			return fmt.Errorf("the node is tainted: %s", taint.Key)
		}
		for _, c := range node.Status.Conditions {
			if c.Type == corev1.NodeReady && c.Status != corev1.ConditionTrue {
				return fmt.Errorf("the node is not ready: %s", c.Message)
			}
		}
		_, err = n.client.CoreV1().ServiceAccounts(metav1.NamespaceDefault).Get(ctx, "default", metav1.GetOptions{})
		return err
	})
}

// until waits until the condition returns nil.
func (n *Node) until(ctx context.Context, condition func() error) error {
	var last error
	err := wait.PollUntilContextTimeout(ctx, pollPeriod, startTimeout, true, func(context.Context) (bool, error) {
		last = condition()
		return last == nil, nil
	})
	if err != nil {
		return errors.Join(err, last)
	}
	return nil
}

// Processes returns the ids of the node's processes of that program whose cgroup has a part in its name: the UID of a Pod,
// or nothing.
func (n *Node) Processes(program, cgroup string) []int {
	var out []int
	own, _ := os.Readlink(fmt.Sprintf("/proc/%d/ns/mnt", n.init.cmd.Process.Pid))
	folders, _ := filepath.Glob("/proc/[0-9]*")
	for _, folder := range folders {
		var pid int
		_, _ = fmt.Sscanf(folder, "/proc/%d", &pid)
		exe, _ := os.Readlink(filepath.Join(folder, "exe"))
		if filepath.Base(exe) != program {
			continue
		}
		groups, _ := os.ReadFile(filepath.Join(folder, "cgroup"))
		mounts, _ := os.Readlink(filepath.Join(folder, "ns/mnt"))
		inPod := strings.Contains(string(groups), filepath.Base(n.dir))
		if (inPod || mounts == own) && strings.Contains(string(groups), cgroup) {
			out = append(out, pid)
		}
	}
	return out
}

// logTails returns the last lines of each log as an error.
func (n *Node) logTails() error {
	var errs []error
	logs, _ := filepath.Glob(n.file("*.log"))
	for _, log := range logs {
		content, _ := os.ReadFile(log)
		lines := strings.Split(strings.TrimSpace(string(content)), "\n")
		if filepath.Base(log) != "audit.log" {
			errs = append(errs, fmt.Errorf("%s:\n%s", filepath.Base(log), strings.Join(lines[max(0, len(lines)-8):], "\n")))
		}
	}
	return errors.Join(errs...)
}
