package main

import (
	"bytes"
	"fmt"
	"time"

	"github.com/prometheus/procfs"
)

// plugin is what `kubectl mirror status` and `plan` take in a large cluster that is in sync. A person waits for it, on
// a laptop.
func plugin(b *bench) {
	all := scene{10, *pluginAt, payload}
	b.fill(all)
	for range *few {
		b.runPlugin(all, "status", "-A")
		b.runPlugin(all, "plan")
	}
}

// runPlugin runs a command once. Exit code 1 would mean that the cluster is not in sync.
func (b *bench) runPlugin(s scene, args ...string) {
	name := args[0]
	args = append(args, "--namespace-prefix="+s.prefix(), "--kubeconfig="+b.cluster.AdminKubeconfig())
	cmd := b.cluster.Command(b.ctx, *kubectlMirror, args...)
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
	b.print(fmt.Sprintf("%s/n=%d/bar=10s,300MiB", name, s.copies()), metrics{"sec/op": took.Seconds(), "peak-B": peak})
}
