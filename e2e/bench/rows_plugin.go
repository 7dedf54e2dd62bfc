package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"syscall"
	"time"
)

// Bars of kubectl mirror: what a person waits for, and what a laptop has to spare.
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
	for _, prefix := range b.pool.prefixes(g.scene.targets) {
		args = append(args, "--namespace-prefix="+prefix)
	}
	cmd := b.cluster.Command(ctx, b.plugin, args...)
	began := time.Now()
	_, err := cmd.Output()
	c.time.addTimes(time.Since(began), timeOfPlugin)
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return fmt.Errorf("kubectl mirror %s: %w: %s", c.name, err, exit.Stderr)
	} else if err != nil {
		return err
	}
	usage := cmd.ProcessState.SysUsage().(*syscall.Rusage)
	c.memory.add(float64(usage.Maxrss<<10), memoryOfPlugin)
	return nil
}
