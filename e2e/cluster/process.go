package cluster

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/prometheus/procfs"
)

// wrapperScript starts a program of the control plane under its mark and with its GOGC, and
// notes its process id, which envtest keeps to itself. exec keeps the id: signals reach the program.
const wrapperScript = `#!/bin/sh
export %s GOGC=%d
echo $$ >%s
exec %s "$@"
`

// wrap writes a wrapper of the named program and returns its path.
func (c *Cluster) wrap(name string) (string, error) {
	file := c.folder.File("bin", name)
	gogc := 400 // With it an API server takes an eighth less CPU time, and a hundred MiB more.
	if c.options.Inlined {
		gogc = 100 // Go's default, as in what is measured
	}
	text := fmt.Sprintf(wrapperScript, quote(c.folder.Mark()), gogc, quote(c.pidFile(name)), quote(c.programs[name]))
	return file, os.WriteFile(file, []byte(text), 0o755)
}

// quote makes one word of s for the shell.
func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

func (c *Cluster) pidFile(name string) string { return c.folder.File("bin", name+".pid") }

// Pid returns the process id of Etcd, APIServer or ControllerManager.
func (c *Cluster) Pid(name string) (int, error) {
	content, err := os.ReadFile(c.pidFile(name))
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(strings.TrimSpace(string(content)))
}

// Signal sends a signal to Etcd, APIServer or ControllerManager: SIGSTOP and SIGCONT for one that hangs,
// SIGKILL for one that crashes. An API server that was killed is started again by StartAPIServer.
func (c *Cluster) Signal(name string, sig syscall.Signal) error {
	pid, err := c.Pid(name)
	if err == nil {
		err = Kill(pid, sig)
	}
	if err != nil {
		return fmt.Errorf("signal %s: %w", name, err)
	}
	return nil
}

// Process is a program that runs or has ended.
type Process struct {
	cmd  *exec.Cmd
	done chan struct{}
	err  error // when it has ended
}

// Run starts a command.
func Run(cmd *exec.Cmd) (*Process, error) {
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p := &Process{cmd: cmd, done: make(chan struct{})}
	go func() {
		defer close(p.done)
		p.err = cmd.Wait()
	}()
	return p, nil
}

// Stop asks the process to stop and waits until it has. It returns an error if the exit code is not 0.
func (p *Process) Stop(within time.Duration) error {
	_ = p.Signal(syscall.SIGTERM) // fails if it has ended by itself, which its exit code shows
	select {
	case <-p.done:
		return p.err
	case <-time.After(within):
		return fmt.Errorf("%s did not end within %s", filepath.Base(p.cmd.Path), within)
	}
}

// Kill ends the process at once and waits until it is gone.
func (p *Process) Kill() {
	_ = p.Signal(syscall.SIGKILL) // fails if it has ended by itself
	<-p.done
}

// Signal sends a signal to the process.
func (p *Process) Signal(sig syscall.Signal) error {
	select {
	case <-p.done:
		return os.ErrProcessDone // and its number may be that of another by now
	default:
		return Kill(p.Pid(), sig)
	}
}

// Pid returns the process id.
func (p *Process) Pid() int { return p.cmd.Process.Pid }

// Done is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// ExitCode returns the exit code of a process that has ended, -1 if a signal ended it.
func (p *Process) ExitCode() int { return p.cmd.ProcessState.ExitCode() }

// PodExitCode returns the exit code as the status of a Pod has it: 128 and the signal, if one ended the process.
func (p *Process) PodExitCode() int {
	if status, ok := p.cmd.ProcessState.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return 128 + int(status.Signal())
	}
	return p.ExitCode()
}

// Kill sends a signal to a process. With SIGSTOP it returns when all threads stand still: the kernel stops one after
// the other, and on a busy machine one of them may still answer a request or send one.
func Kill(pid int, sig syscall.Signal) error {
	if err := syscall.Kill(pid, sig); err != nil || sig != syscall.SIGSTOP {
		return err
	}
	for !stands(pid) {
		time.Sleep(time.Millisecond) // nothing tells who is not the parent
	}
	return nil
}

// stands reports whether no thread of a process runs any more. Where there is no /proc it cannot be told.
func stands(pid int) bool {
	threads, _ := procfs.AllThreads(pid)
	return !slices.ContainsFunc(threads, func(thread procfs.Proc) bool {
		now, err := thread.Stat() // fails for one that has ended
		return err == nil && !strings.Contains("TZX", now.State)
	})
}

// Command is exec.CommandContext for a process that must not outlive the cluster: the folder kills it, and what
// it started. It runs in a process group of its own, so that Ctrl-C is for the caller to pass on, and gets
// SIGTERM when ctx ends, SIGKILL ten seconds later.
//
// Its environment names no kubeconfig that exists: neither the person's who runs this nor the admin's is
// used by accident. Append to Env; whoever replaces it lets the process outlive it.
func (c *Cluster) Command(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = append(os.Environ(),
		c.folder.Mark(),
		"KUBECONFIG="+c.folder.File("no-kubeconfig"),
		"KUBECACHEDIR="+c.folder.File("kubectl-cache"),
		"KUBERC=off",
	)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = stopGrace
	return cmd
}

// Shell is a Command of sh as the admin, which has kubectl on its path.
func (c *Cluster) Shell(ctx context.Context, script string) *exec.Cmd {
	cmd := c.Command(ctx, "sh", "-ec", script)
	path := filepath.Dir(c.Kubectl()) + ":" + os.Getenv("PATH")
	cmd.Env = append(cmd.Env, "KUBECONFIG="+c.adminKubeconfig, "PATH="+path, "HOME="+c.Dir())
	return cmd
}
