package node

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	certutil "k8s.io/client-go/util/cert"

	"github.com/mirror-controller/mirror-controller/e2e/cluster"
	"github.com/mirror-controller/mirror-controller/e2e/programs"
)

// ownNetwork is set in the environment of a process that has a network of its own.
const ownNetwork = "MIRROR_CONTROLLER_NODE_NETWORK"

// The addresses of the node and of the API server's Service. The bridge of the Pods brings its own, see cniConfig.
const (
	nodeAddress   = "10.77.0.1"
	serverAddress = "10.96.0.1"
)

// Enter gives this process a network of its own. To that end it starts the program anew in it, and does not return
// the first time.
func Enter(ctx context.Context) error {
	if os.Getenv(ownNetwork) == "" {
		runtime.LockOSThread() // the namespace is this thread's, and exec keeps that of the thread that calls it
		if err := syscall.Unshare(syscall.CLONE_NEWNET); err != nil {
			return fmt.Errorf("a network of its own, which takes root: %w", err)
		}
		return syscall.Exec("/proc/self/exe", os.Args, append(os.Environ(), ownNetwork+"=1"))
	}
	for _, args := range [][]string{
		{"link", "set", "lo", "up"},
		{"address", "add", nodeAddress + "/32", "dev", "lo"},
		{"address", "add", serverAddress + "/32", "dev", "lo"},
	} {
		if out, err := exec.CommandContext(ctx, "ip", args...).CombinedOutput(); err != nil {
			return fmt.Errorf("ip %v: %w: %s", args, err, out)
		}
	}
	return nil
}

// initScript is process 1 of the node. What it mounts stays in the node, and reaches the containers, as the kubelet
// wants it. While the shell waits, it takes in orphans.
const initScript = `
mount --make-rprivate /
mount --make-rshared /
mount -t proc proc /proc
mount -t tmpfs run /run
for folder in /var/lib /var/log; do mount --bind "$1$folder" $folder; done
for setting in $(cd "$1/sys" && find . -type f); do mount --bind "$1/sys/$setting" "/proc/sys/$setting"; done
echo mounted
while :; do sleep 3600; done
`

// kernelSettings are what a kubelet sets in /proc/sys for the whole machine, if it has to. The node has files in their
// place, so that it has not.
var kernelSettings = map[string]string{
	"vm/overcommit_memory": "1", "vm/panic_on_oom": "0", "kernel/panic": "10", "kernel/panic_on_oops": "1",
	"kernel/keys/root_maxkeys": "1000000", "kernel/keys/root_maxbytes": "25000000",
}

// startInit starts process 1 of the node in a folder, and returns when its mounts are made. It ends with the folder,
// and the kernel then kills the rest of the node.
func startInit(ctx context.Context, folder *cluster.Folder) (*exec.Cmd, error) {
	cmd := exec.CommandContext(ctx, "sh", "-e", "-c", initScript, "sh", folder.Path)
	cmd.Env = append(os.Environ(), folder.Mark())
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWNS, Setsid: true}
	cmd.Stderr = os.Stderr
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	if _, err := bufio.NewReader(stdout).ReadString('\n'); err != nil {
		return nil, errors.Join(errors.New("process 1 of the node did not start"), cmd.Wait())
	}
	return cmd, nil
}

// makeCgroups makes the cgroup below which the kubelet makes those of Pods, in each hierarchy there is.
func makeCgroups(name string) error {
	hierarchies, err := filepath.Glob("/sys/fs/cgroup/*/cgroup.procs")
	if _, unified := os.Stat("/sys/fs/cgroup/cgroup.procs"); unified == nil {
		hierarchies = []string{"/sys/fs/cgroup/cgroup.procs"}
	}
	for _, file := range hierarchies {
		if err := os.MkdirAll(filepath.Join(filepath.Dir(file), name), 0o755); err != nil {
			return err
		}
	}
	return err
}

const (
	// name is that of the node.
	name = "node1"
	// pauseImage is the image of the container that holds a Pod's namespaces.
	pauseImage = "localhost/pause:node"
)

// user is one that the API server knows by a token, which is the user's name.
type user struct{ name, group string }

var (
	admin   = user{"admin", "system:masters"}
	kubelet = user{"system:node:" + name, "system:nodes"}
	users   = []user{admin, kubelet}
)

// programs are those of the node, with their arguments. They start in this order.
func (n *Node) programs() [][]string {
	file := n.folder.File
	kubeconfig := func(u user) string { return "--kubeconfig=" + n.kubeconfig(u) }
	return [][]string{
		{"containerd", "--config=" + file("containerd.toml")},
		{programs.Etcd, "--data-dir=/var/lib/etcd", "--unsafe-no-fsync", "--log-level=warn"},
		{programs.APIServer,
			"--etcd-servers=http://127.0.0.1:2379",
			"--bind-address=0.0.0.0", "--secure-port=443", "--advertise-address=" + nodeAddress,
			"--service-cluster-ip-range=10.96.0.0/16", "--endpoint-reconciler-type=none",
			"--tls-cert-file=" + file("server.crt"), "--tls-private-key-file=" + file("server.key"),
			"--token-auth-file=" + file("tokens.csv"),
			"--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction",
			"--service-account-issuer=https://kubernetes.default.svc",
			"--service-account-key-file=" + file("server.key"),
			"--service-account-signing-key-file=" + file("server.key"),
			"--kubelet-preferred-address-types=InternalIP",
		},
		{programs.KubeControllerManager, kubeconfig(admin),
			"--root-ca-file=" + file("server.crt"), "--leader-elect=false", "--authentication-skip-lookup",
			// Else hundreds of namespaces take long.
			"--kube-api-qps=1000", "--kube-api-burst=2000", "--concurrent-namespace-syncs=20",
		},
		{programs.Scheduler, kubeconfig(admin), "--leader-elect=false", "--authentication-skip-lookup"},
		{programs.Kubelet, kubeconfig(kubelet), "--config=" + file("kubelet.yaml"), "--hostname-override=" + name,
			"--node-ip=" + nodeAddress},
	}
}

func (n *Node) kubeconfig(u user) string {
	return n.folder.File(strings.ReplaceAll(u.name, ":", "-") + ".kubeconfig")
}

// configure writes the files that the programs read.
func (n *Node) configure() error {
	cert, key, err := certutil.GenerateSelfSignedCertKey(serverAddress, nil, nil)
	if err != nil {
		return err
	}
	tokens := ""
	for _, u := range users {
		tokens += fmt.Sprintf("%s,%s,%s,%s\n", u.name, u.name, u.name, u.group)
		cfg := &rest.Config{Host: "https://" + serverAddress, BearerToken: u.name}
		cfg.CAData = cert
		if err := cluster.WriteKubeconfig(n.kubeconfig(u), u.name, cfg); err != nil {
			return err
		}
		if u == admin {
			cfg.QPS = -1
			if n.client, err = kubernetes.NewForConfig(cfg); err != nil {
				return err
			}
		}
	}
	files := map[string]string{
		"server.crt": string(cert), "server.key": string(key), "tokens.csv": tokens,
		"containerd.toml":     fmt.Sprintf(containerdConfig, pauseImage, n.folder.Path),
		"cni/bridge.json":     cniConfig,
		"kubelet.yaml":        fmt.Sprintf(kubeletConfig, filepath.Base(n.folder.Path)),
		"var/lib/.exists":     "",
		"var/log/.exists":     "",
		"home/.kube/.none":    "",
		"images/Dockerfile":   pauseDockerfile,
		"images/storage.conf": fmt.Sprintf(storageConfig, n.folder.File("images", "graph"), n.folder.File("images", "run")),
	}
	for name, value := range kernelSettings {
		files[filepath.Join("sys", name)] = value + "\n"
	}
	for file, content := range files {
		file = n.folder.File(file)
		err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(content), 0o600))
		if err != nil {
			return err
		}
	}
	return nil
}

// The native snapshotter works on every file system, and an OOM score cannot be lowered in a container.
const containerdConfig = `version = 2
[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = %q
restrict_oom_score_adj = true
[plugins."io.containerd.grpc.v1.cri".containerd]
snapshotter = "native"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "/usr/lib/cni"
conf_dir = "%s/cni"
`

const cniConfig = `{
  "cniVersion": "0.4.0", "name": "pods", "type": "bridge", "bridge": "cni0", "isGateway": true,
  "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.88.0.0/16"}]], "routes": [{"dst": "0.0.0.0/0"}]}
}`

// The kubelet's port is as open as this network is closed: the API server reads logs and proxies through it. However
// full the disk of the machine is, the node evicts no Pod and deletes no image.
const kubeletConfig = `apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
authentication: {anonymous: {enabled: true}, webhook: {enabled: false}}
authorization: {mode: AlwaysAllow}
containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
cgroupDriver: cgroupfs
cgroupRoot: /%s
failCgroupV1: false
failSwapOn: false
evictionHard:
  {memory.available: "0%%", nodefs.available: "0%%", nodefs.inodesFree: "0%%", imagefs.available: "0%%",
  imagefs.inodesFree: "0%%"}
imageGCHighThresholdPercent: 100
resolvConf: ""
volumePluginDir: /var/lib/kubelet/plugins
`
