package node

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
)

// remainsScript waits until its input ends, as it does when the tests end, and removes what a node leaves: its cgroups,
// which can be removed when its last process is gone, and its folder.
const remainsScript = `
trap '' HUP INT TERM
IFS= read -r dir || exit 0
while read -r _; do :; done
for try in $(seq 600); do
	groups=$(find /sys/fs/cgroup -depth -type d -path "*/${dir##*/}*")
	[ -n "$groups" ] || exec rm -rf "$dir"
	rmdir $groups 2>/dev/null || sleep 0.1
done
echo "cgroups of $dir cannot be removed" >&2
exit 1
`

// remains is the shell that removes what a node leaves, also when this process is killed.
type remains struct {
	cmd   *exec.Cmd
	stdin io.Closer
}

// newFolder makes the folder of a node, and starts the shell that will remove it.
func newFolder() (string, *remains, error) {
	dir, err := os.MkdirTemp("", "mirror-node-*.d")
	if err != nil {
		return "", nil, err
	}
	cmd := exec.Command("/bin/sh", "-c", remainsScript)
	cmd.Dir, cmd.Stderr = "/", os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // no Ctrl-C reaches it
	stdin, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err == nil {
		_, err = fmt.Fprintln(stdin, dir)
	}
	return dir, &remains{cmd, stdin}, err
}

// remove has everything removed, and returns when it is.
func (r *remains) remove() error {
	r.stdin.Close()
	return r.cmd.Wait()
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
