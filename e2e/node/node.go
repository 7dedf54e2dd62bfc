// Package node brings up a Kubernetes node on this machine, for the tests beside it: kubelet, containerd and runc run
// the image of the controller, as the shipped Deployment asks for it. There is no Docker, and nothing is downloaded.
//
//	node.Enter(ctx) // first thing in main: a network of its own
//	n, err := node.Start(ctx, repository, image)
//	defer n.Stop()
//
// # What keeps it apart
//
// The tests run in a network namespace of their own, so all addresses are theirs. The node runs in a process and a
// mount namespace besides. Process 1 in there, a shell, mounts an empty /run, and folders of the node's own at
// /var/lib and /var/log. So every program has its usual paths, and no file, mount, bridge or process of the node is one
// of the machine's, nor is a setting of the kernel.
//
// When the tests end, for whatever reason, cluster.Folder kills process 1, the kernel kills the rest of the node, and
// then the folder and the cgroups are removed.
//
// # The network
//
// The API server listens on the address of its Service, 10.96.0.1:443, which is one of this network's own. So Pods
// find it without kube-proxy, and without a rule of iptables. There is no DNS, and nobody enforces a NetworkPolicy.
package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/mirror-controller/mirror-controller/e2e/cluster"
	"github.com/mirror-controller/mirror-controller/e2e/programs"
)

// patience is how long the start of the node and the tests wait before they fail.
const patience = 10 * time.Minute

// Node is a cluster of one node.
type Node struct {
	folder     *cluster.Folder // holds all of it
	repository string          // the folder of the Makefile
	bin        programs.Paths  // of Kubernetes
	init       *exec.Cmd       // process 1
	client     kubernetes.Interface
}

// Start brings up a node that has the image of the controller under that name, and returns when it is ready. It is
// built by the Makefile in the folder repository. Whoever starts a node stops it, also where Start fails.
func Start(ctx context.Context, repository, image string) (*Node, error) {
	bin, err := programs.Build(ctx, programs.Etcd, programs.APIServer, programs.KubeControllerManager, programs.Scheduler,
		programs.Kubelet, programs.Kubectl)
	if err != nil {
		return nil, err
	}
	folder, err := cluster.NewFolder("", "mirror-node")
	if err != nil {
		return nil, err
	}
	n := &Node{bin: bin, folder: folder, repository: repository}
	if err := n.configure(); err != nil {
		return n, err
	}
	archives, err := images(ctx, repository, image, folder)
	if err != nil {
		return n, err
	}
	if err = n.powerOn(ctx, archives); err != nil {
		err = errors.Join(err, folder.LogTails())
	}
	return n, err
}

// Stop ends the node as a power cut would, and removes all of it.
func (n *Node) Stop() error {
	if n == nil {
		return nil
	}
	err := n.folder.Remove()
	if n.init != nil {
		_ = n.init.Wait() // it was killed
	}
	return err
}

// Shell returns a command of sh as the admin in the repository, with kubectl, its plug-in and helm.
func (n *Node) Shell(ctx context.Context, script string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "sh", "-ec", script)
	cmd.Dir = n.repository
	cmd.Env = []string{
		"PATH=" + n.bin.Folders() + ":" + n.repository + "/bin:" + os.Getenv("PATH"),
		"KUBECONFIG=" + n.kubeconfig(admin), "HOME=" + n.folder.File("home"), "KUBERC=off",
	}
	return cmd
}

// powerOn starts the programs, and returns when the node is ready.
func (n *Node) powerOn(ctx context.Context, archives []string) error {
	if err := makeCgroups(filepath.Base(n.folder.Path)); err != nil {
		return err
	}
	var err error
	if n.init, err = startInit(context.WithoutCancel(ctx), n.folder); err != nil {
		return err
	}
	for _, program := range n.programs() {
		if err := n.run(ctx, program); err != nil {
			return err
		}
	}
	for _, archive := range archives { // as soon as containerd takes it
		err := cluster.Until(ctx, patience, func() error {
			cmd := n.inside(ctx, "ctr", "--namespace=k8s.io", "images", "import", "--snapshotter=native", archive)
			if out, err := cmd.CombinedOutput(); err != nil {
				return fmt.Errorf("%v: %w: %s", cmd, err, out)
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return cluster.Until(ctx, patience, func() error { return n.ready(ctx) })
}

// run starts a program on the node, as a descendant of its process 1, and again if it fails: the API server does where
// it cannot serve within a minute, and the kubelet where containerd does not answer yet.
func (n *Node) run(ctx context.Context, program []string) error {
	log, err := n.folder.OpenLog(program[0])
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := n.inside(ctx, append([]string{"sh", "-c", `until "$@"; do sleep 1; done &`, "sh"}, program...)...)
	cmd.Stdout, cmd.Stderr = log, log
	return cmd.Run()
}

// inside returns a command that runs on the node.
func (n *Node) inside(ctx context.Context, args ...string) *exec.Cmd {
	target := fmt.Sprintf("--target=%d", n.init.Process.Pid)
	cmd := exec.CommandContext(ctx, "nsenter", append([]string{target, "--pid", "--mount", "--"}, args...)...)
	cmd.Env = []string{"PATH=" + n.bin.Folders() + ":/usr/sbin:/usr/bin:/sbin:/bin"}
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C is for the tests
	return cmd
}

// ready returns nil if Pods can run.
func (n *Node) ready(ctx context.Context) error {
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
}

// images builds the image of the controller under that name, by the last stage of its Dockerfile, and that of the pause
// container. It returns their archives. repository is the folder of the Makefile.
func images(ctx context.Context, repository, image string, folder *cluster.Folder) ([]string, error) {
	dir := folder.File("images")
	archives := []string{dir + "/controller.tar", dir + "/pause.tar"}
	for _, args := range [][]string{
		{"make", "-C", repository, "image-prebuilt", "BUILDER=buildah", "IMAGE=" + image},
		{"env", "CGO_ENABLED=0", "go", "build", "-buildvcs=false", "-o", dir + "/pause", "./pause"},
		{"buildah", "build", "--quiet", "--tag", pauseImage, dir},
		{"buildah", "push", "--quiet", image, "docker-archive:" + archives[0] + ":" + image},
		{"buildah", "push", "--quiet", pauseImage, "docker-archive:" + archives[1] + ":" + pauseImage},
	} {
		cmd := exec.CommandContext(ctx, args[0], args[1:]...)
		// A store of its own. Chroot and plain folders work where this runs in a container itself.
		cmd.Env = append(os.Environ(), folder.Mark(),
			"CONTAINERS_STORAGE_CONF="+folder.File("images", "storage.conf"), "STORAGE_DRIVER=vfs", "BUILDAH_ISOLATION=chroot")
		if out, err := cmd.CombinedOutput(); err != nil {
			return nil, fmt.Errorf("%v: %w: %s", args, err, out)
		}
	}
	return archives, nil
}

const pauseDockerfile = "FROM scratch\nCOPY pause /\nENTRYPOINT [\"/pause\"]\n"

// storageConfig has two folders, for images and for what is running.
const storageConfig = "[storage]\ndriver = \"vfs\"\ngraphroot = %q\nrunroot = %q\n"
