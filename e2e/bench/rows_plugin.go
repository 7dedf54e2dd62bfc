package main

import (
	"bytes"
	"context"
	"fmt"
	"time"
)

// Bars of kubectl mirror: a person waits for it, on a laptop.
const (
	timeOfPlugin   = 10 * time.Second
	memoryOfPlugin = 300 << 20
)

// plugin is what `kubectl mirror status` and `plan` take in a large cluster that is in sync.
type plugin struct {
	scene  scene
	rounds int
	of     []pluginCommand
}

type pluginCommand struct {
	name         string
	time, memory *row
}

func newPlugin(s sizes) group {
	g := &plugin{scene: scene{10, s.pluginAt, s.payload}, rounds: s.few}
	for _, name := range []string{"status", "plan"} {
		figure := fmt.Sprintf("kubectl mirror %s, %s namespaces, %s copies: ", name, thousands(s.pluginAt), thousands(g.scene.copies()))
		g.of = append(g.of, pluginCommand{name, &row{figure: figure + "time", unit: asTime, bar: 1}, &row{figure: figure + "peak", unit: asBytes, bar: 1}})
	}
	return g
}

func (g *plugin) rows() (out []*row) {
	for _, c := range g.of {
		out = append(out, c.time, c.memory)
	}
	return out
}

func (g *plugin) measure(ctx context.Context, b *bench) error {
	if err := b.fill(ctx, g.scene); err != nil {
		return err
	}
	for range g.rounds {
		for _, c := range g.of {
			if err := g.run(ctx, b, c); err != nil {
				return err
			}
		}
	}
	return nil
}

// run runs a command once. Exit code 1 would mean that the cluster is not in sync.
func (g *plugin) run(ctx context.Context, b *bench, c pluginCommand) error {
	args := []string{c.name, "--kubeconfig=" + b.cluster.AdminKubeconfig()}
	if c.name == "status" {
		args = append(args, "-A")
	}
	for _, prefix := range b.pool.prefixes(g.scene.targets) {
		args = append(args, "--namespace-prefix="+prefix)
	}
	cmd := b.cluster.Command(ctx, b.plugin, args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	began := time.Now()
	if err := cmd.Start(); err != nil {
		return err
	}
	peak := peakUntilExit(cmd.Process.Pid)
	c.time.addTimes(time.Since(began), timeOfPlugin)
	if err := cmd.Wait(); err != nil {
		return fmt.Errorf("kubectl mirror %s: %w: %s", c.name, err, stderr.Bytes())
	}
	c.memory.add(peak, memoryOfPlugin)
	return nil
}

// peakUntilExit returns the most that a child process had in memory, in bytes, when the child has ended. The kernel's own
// account, ru_maxrss, begins with the memory of the parent.
func peakUntilExit(pid int) (peak float64) {
	for {
		_, now, err := memoryOf(pid)
		if err != nil { // a process that has ended has no memory
			return peak
		}
		peak = now
		time.Sleep(time.Millisecond)
	}
}
