package cluster

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"
)

// markName is the environment variable that marks a process as belonging to the folder that is its value:
// that of a cluster, or of a build. Only an entry of the environment counts: a person who looks into the folder with an
// editor, or who has set KUBECONFIG to a file in it, must not lose the editor or the shell.
const markName = "MIRROR_CONTROLLER_CLUSTER"

// reaperScript waits until its input ends, kills every process that carries the mark, until there is
// none, and removes the folder. It learns the folder from its input, so that its own command line does
// not name it. grep finds the mark as a part of the environment; the ending of the folder's name sees to
// it that no other name begins with it.
const reaperScript = `
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
for try in 1 2 3 4 5; do
	rm -rf "$dir" && exit 0
	sleep 0.1
done
exit 1
`

// reaper is the process that cleans up behind this one. See the package's documentation.
type reaper struct {
	cmd  *exec.Cmd
	in   io.Closer
	once sync.Once
	err  error
}

// startReaper starts the reaper of the folder dir.
func startReaper(dir string) (*reaper, error) {
	cmd := exec.Command("/bin/sh", "-c", reaperScript)
	cmd.Dir = "/"
	cmd.Env = []string{"PATH=" + os.Getenv("PATH")}
	// A session of its own: no Ctrl-C, and no end of the terminal, reaches it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the shell that cleans up: %w", err)
	}
	if _, err := fmt.Fprintln(in, dir); err != nil {
		return nil, fmt.Errorf("tell the shell that cleans up: %w", err)
	}
	return &reaper{cmd: cmd, in: in}, nil
}

// reap has everything killed and removed, and returns when it is. Calls after the first return what the first did.
func (r *reaper) reap() error {
	r.once.Do(func() {
		r.in.Close()
		if err := r.cmd.Wait(); err != nil {
			r.err = fmt.Errorf("the shell that cleans up: %w", err)
		}
	})
	return r.err
}
