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
	"syscall"

	"github.com/mirror-controller/mirror-controller/e2e/cluster"
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
