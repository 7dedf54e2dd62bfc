package main

import (
	"bytes"
	"fmt"
	"time"

	"github.com/prometheus/procfs"
)

// asking is what `kubectl mirror status` and `plan` take in a cluster that is in sync. A person waits for
// it, on a laptop.
func (l *ladder) asking() {
	for range *few {
		l.runPlugin("status", "-A")
		l.runPlugin("plan")
	}
}

// runPlugin runs a command once. Exit code 1 would mean that the cluster is not in sync.
func (l *ladder) runPlugin(args ...string) {
	name := args[0]
	for _, p := range l.prefixes {
		args = append(args, "--namespace-prefix="+p)
	}
	cmd := l.cluster.Command(l.ctx, *kubectlMirror, append(args, "--kubeconfig="+l.cluster.AdminKubeconfig())...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	began := time.Now()
	check(cmd.Start())
	// The kernel's own account, ru_maxrss, begins with the memory of the parent.
	process, peak := get(procfs.NewProc(cmd.Process.Pid)), 0.0
	for {
		now, err := process.NewStatus()
		if err != nil || now.VmHWM == 0 { // a process that has ended has no memory
			break
		}
		peak = float64(now.VmHWM)
		time.Sleep(time.Millisecond)
	}
	took := time.Since(began)
	if err := cmd.Wait(); err != nil {
		check(fmt.Errorf("kubectl mirror %s: %w: %s", name, err, stderr.Bytes()))
	}
	l.print("plugin/"+name+"/bar=10s,300MiB", metrics{"sec/op": took.Seconds(), "peak-B": peak})
}
