package node

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"syscall"
)

const (
	// ownNetwork is set in the environment of a process that has a network of its own.
	ownNetwork = "MIRROR_CONTROLLER_NODE_NETWORK"
	// initRole as the first argument makes this program process 1 of the node in the folder that follows.
	initRole = "node-init"
)

// Enter gives this process a network of its own. To that end it starts the program anew in it, and does not return
// the first time. In the process that Start makes process 1 of the node it never returns.
func Enter() error {
	if len(os.Args) == 3 && os.Args[1] == initRole {
		err := serveAsInit(os.Args[2])
		fmt.Fprintln(os.Stderr, "process 1 of the node:", err)
		os.Exit(1)
	}
	if os.Getenv(ownNetwork) != "" {
		return configureNetwork()
	}
	runtime.LockOSThread() // the namespace is this thread's, and exec keeps that of the thread that calls it
	if err := syscall.Unshare(syscall.CLONE_NEWNET); err != nil {
		return fmt.Errorf("a network of its own, which takes root: %w", err)
	}
	return syscall.Exec("/proc/self/exe", os.Args, append(os.Environ(), ownNetwork+"=1"))
}

// The addresses of the node and of the API server's Service. The bridge of the Pods brings its own, see cniConfig.
const (
	nodeAddress   = "10.77.0.1"
	serverAddress = "10.96.0.1"
)

func configureNetwork() error {
	for _, args := range [][]string{
		{"link", "set", "lo", "up"},
		{"address", "add", nodeAddress + "/32", "dev", "lo"},
		{"address", "add", serverAddress + "/32", "dev", "lo"},
	} {
		if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
			return fmt.Errorf("ip %v: %w: %s", args, err, out)
		}
	}
	return nil
}

// initProcess is process 1 of a running node.
type initProcess struct {
	cmd   *exec.Cmd
	stdin io.Closer
}

// startInit starts process 1 of the node in a folder, and returns when its mounts are made.
func startInit(dir string) (*initProcess, error) {
	cmd := exec.Command("/proc/self/exe", initRole, dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWNS, Setsid: true}
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
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
	return &initProcess{cmd, stdin}, nil
}

// end kills the node as a power cut would, and returns when its last process is gone.
func (i *initProcess) end() {
	if i != nil {
		_ = i.cmd.Process.Kill() // fails if it has ended
		i.stdin.Close()
		_ = i.cmd.Wait()
	}
}

// serveAsInit is process 1: it makes the mounts, says so, takes in orphans, and ends with its input.
func serveAsInit(dir string) error {
	if err := mountAll(dir); err != nil {
		return err
	}
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, syscall.SIGCHLD)
	go func() {
		for range ended {
			for pid := 1; pid > 0; {
				pid, _ = syscall.Wait4(-1, nil, syscall.WNOHANG, nil)
			}
		}
	}()
	fmt.Println("mounted")
	_, err := io.Copy(io.Discard, os.Stdin)
	return errors.Join(err, errors.New("the tests have ended"))
}

// ownFolders are the folders of the machine in whose place the node has its own.
var ownFolders = []string{"/var/lib", "/var/log"}

// kernelSettings are what a kubelet sets in /proc/sys for the whole machine, if it has to. The node has files in their place, so
// that it has not.
var kernelSettings = map[string]string{
	"vm/overcommit_memory": "1", "vm/panic_on_oom": "0", "kernel/panic": "10", "kernel/panic_on_oops": "1",
	"kernel/keys/root_maxkeys": "1000000", "kernel/keys/root_maxbytes": "25000000",
}

func mountAll(dir string) error {
	type mount struct {
		source, target, kind string
		flags                uintptr
	}
	mounts := []mount{
		{"", "/", "", syscall.MS_REC | syscall.MS_PRIVATE}, // what is mounted from here on stays here
		{"", "/", "", syscall.MS_REC | syscall.MS_SHARED},  // and reaches the containers, as the kubelet wants it
		{"proc", "/proc", "proc", 0},
		{"run", "/run", "tmpfs", 0},
	}
	for _, folder := range ownFolders {
		mounts = append(mounts, mount{filepath.Join(dir, folder), folder, "", syscall.MS_BIND})
	}
	for name := range kernelSettings {
		mounts = append(mounts, mount{filepath.Join(dir, "sys", name), filepath.Join("/proc/sys", name), "", syscall.MS_BIND})
	}
	for _, m := range mounts {
		if err := syscall.Mount(m.source, m.target, m.kind, m.flags, ""); err != nil {
			return fmt.Errorf("mount %s: %w", m.target, err)
		}
	}
	return nil
}
