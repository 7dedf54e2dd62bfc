package cluster

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// markName is the environment variable that marks a process as belonging to the folder that is its value. Only an entry
// of the environment counts: a person who looks into the folder with an editor, or who has set KUBECONFIG to a file in
// it, must not lose the editor or the shell.
const markName = "MIRROR_CONTROLLER_CLUSTER"

// cleanUpScript waits until its input ends, kills every process that carries the mark, until there is none, and removes
// the cgroups and the folder. It learns the folder from its input, so that its own command line does not name it.
const cleanUpScript = `
trap '' HUP INT TERM
IFS= read -r dir || exit 0
while read -r _; do :; done
mark="` + markName + `=$dir"
members() {
	if [ -r /proc/self/environ ]; then
		grep -lsF -e "$mark" /proc/[0-9]*/environ | while IFS=/ read -r _ _ pid _; do echo "$pid"; done
	else
		ps -axEww -o pid= -o command= | while read -r pid rest; do
			case "$rest " in *" $mark "*) echo "$pid" ;; esac
		done
	fi
}
while pids=$(members); [ -n "$pids" ]; do
	kill -KILL $pids
	sleep 0.1
done
for try in $(seq 600); do
	groups=$(find /sys/fs/cgroup -depth -type d -path "*/${dir##*/}*" 2>/dev/null)
	if [ -n "$groups" ]; then rmdir $groups 2>/dev/null; else rm -rf "$dir" && exit 0; fi
	sleep 0.1
done
echo "$dir or its cgroups cannot be removed" >&2
exit 1
`

// Folder is a temporary folder with what belongs to it: the processes that carry its mark, and the cgroups below one of
// its name. A shell removes all of this when Remove is called or this process ends: see the package's documentation.
type Folder struct {
	Path string
	end  func() error // has the shell do it
}

// NewFolder makes a folder whose name begins so, in another one or in that for temporary files.
func NewFolder(parent, name string) (*Folder, error) {
	// The ending makes this name no prefix of another one: the shell finds the mark as a part of the environment.
	path, err := os.MkdirTemp(parent, name+"-*.d")
	if err != nil {
		return nil, err
	}
	shell := exec.CommandContext(context.Background(), "/bin/sh", "-c", cleanUpScript)
	shell.Dir, shell.Stderr = "/", os.Stderr
	shell.Env = []string{"PATH=" + os.Getenv("PATH")}
	// A session of its own: no Ctrl-C, and no end of the terminal, reaches it.
	shell.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	input, err := shell.StdinPipe()
	if err == nil {
		err = shell.Start()
	}
	if err == nil {
		_, err = fmt.Fprintln(input, path)
	}
	if err != nil {
		return nil, fmt.Errorf("start the shell that cleans up: %w", errors.Join(err, os.RemoveAll(path)))
	}
	return &Folder{path, sync.OnceValue(func() error { return errors.Join(input.Close(), shell.Wait()) })}, nil
}

// Mark is the variable in the environment of a process that belongs to the folder.
func (f *Folder) Mark() string { return markName + "=" + f.Path }

// File returns the path of a file in the folder.
func (f *Folder) File(name ...string) string {
	return filepath.Join(append([]string{f.Path}, name...)...)
}

// OpenLog opens the log of a program to append to it.
func (f *Folder) OpenLog(program string) (*os.File, error) {
	if err := os.MkdirAll(f.File("logs"), 0o700); err != nil {
		return nil, err
	}
	return os.OpenFile(f.logFile(program), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
}

func (f *Folder) logFile(program string) string { return f.File("logs", program+".log") }

// LogTails returns the last lines of each log as an error, or nil if nothing was logged.
func (f *Folder) LogTails() error {
	var errs []error
	logs, _ := filepath.Glob(f.logFile("*"))
	for _, log := range logs {
		content, err := os.ReadFile(log)
		if err == nil && len(content) > 0 {
			errs = append(errs, fmt.Errorf("%s has last:\n%s", filepath.Base(log), LastLines(string(content), 15)))
		}
	}
	return errors.Join(errs...)
}

// Remove kills the processes and removes everything, and returns when that is done. It may be called again.
func (f *Folder) Remove() error {
	// The shell does it, unless somebody has killed it, or writes a file after that.
	return errors.Join(f.end(), os.RemoveAll(f.Path))
}

// Until repeats try until it succeeds. When ctx or the time ends before, the error is the last one of try. A try may
// start processes, so the pauses grow, by about a tenth of the time that is over, up to a second. Otherwise the
// tries of waits side by side slow down the work that ends these waits.
func Until(ctx context.Context, timeout time.Duration, try func() error) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	pauses := wait.Backoff{Duration: pollPeriod, Factor: 1.1, Steps: math.MaxInt, Cap: time.Second}
	var last error
	err := pauses.DelayFunc().Until(ctx, true, true, func(context.Context) (bool, error) {
		last = try()
		return last == nil, nil
	})
	if err != nil {
		return errors.Join(err, last)
	}
	return nil
}

// LastLines returns the last n lines of a text.
func LastLines(text string, n int) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}

// removeAll removes every file and folder that matches the pattern.
func removeAll(pattern string) error {
	found, err := filepath.Glob(pattern)
	for _, path := range found {
		err = errors.Join(err, os.RemoveAll(path))
	}
	return err
}
