package main

import (
	"bytes"
	"fmt"
	"time"

	"github.com/prometheus/procfs"
)

// Bars of kubectl mirror: a person waits for it, on a laptop.
const (
	timeOfPlugin   = 10 * time.Second
	memoryOfPlugin = 300 << 20
)

// newPlugin is what `kubectl mirror status` and `plan` take in a large cluster that is in sync.
func newPlugin(s sizes) group {
	all := scene{10, s.pluginAt, payload}
	var rows []*row
	for _, name := range []string{"status", "plan"} {
		figure := fmt.Sprintf("kubectl mirror %s, %s namespaces, %s copies: ", name, thousands(s.pluginAt), thousands(all.copies()))
		rows = append(rows, &row{figure: figure + "time", unit: asTime, bar: 1},
			&row{figure: figure + "peak", unit: asBytes, bar: 1})
	}
	return group{rows, func(b *bench) {
		b.fill(all)
		for range s.few {
			b.runPlugin(rows[0], rows[1], "status", "-A", "--namespace-prefix="+all.prefix())
			b.runPlugin(rows[2], rows[3], "plan", "--namespace-prefix="+all.prefix())
		}
	}}
}

// runPlugin runs a command once. Exit code 1 would mean that the cluster is not in sync.
func (b *bench) runPlugin(took, memory *row, args ...string) {
	cmd := b.cluster.Command(b.ctx, b.plugin, append(args, "--kubeconfig="+b.cluster.AdminKubeconfig())...)
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
	took.addTimes(time.Since(began), timeOfPlugin)
	if err := cmd.Wait(); err != nil {
		check(fmt.Errorf("kubectl mirror %s: %w: %s", args[0], err, stderr.Bytes()))
	}
	memory.add(peak, memoryOfPlugin)
}
