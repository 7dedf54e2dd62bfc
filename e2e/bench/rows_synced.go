package main

import (
	"context"
	"fmt"
	"time"
)

// restart is a controller that starts with all copies in sync: from the start of its process until it is ready, and
// what it writes, which is nothing. The limit is the time in which a bare informer in a plain program has the same
// ConfigMaps, without the start of its process.
type restart struct {
	scene
	rounds         int
	time, requests *row
	mirrors        *row // until it has the lease, too
}

// restartSlack is what a process may take besides.
const restartSlack = 300 * time.Millisecond

func newRestart(s sizes) group {
	figure := fmt.Sprintf("restart, %s copies in sync", thousands(s.synced*s.targets))
	return &restart{
		scene: s.syncedScene(), rounds: s.rounds,
		time:     &row{figure: figure, unit: asTime, bar: 1.3, slack: restartSlack.Seconds(), note: "ready by /readyz"},
		mirrors:  &row{figure: figure + ", until it mirrors", unit: asTime, note: `by the log line "` + readyLine + `"`},
		requests: &row{figure: "requests, " + figure, unit: asCount, exact: true},
	}
}

// syncedScene is that of the rows that begin with copies in sync.
func (s sizes) syncedScene() scene { return scene{s.synced, s.targets, s.thin} }

func (g *restart) rows() []*row { return []*row{g.time, g.mirrors, g.requests} }

func (g *restart) measure(ctx context.Context, b *bench) error {
	if err := b.fill(ctx, g.scene); err != nil {
		return err
	}
	return interleave(g.rounds, g.time,
		func() (time.Duration, error) { return g.ours(ctx, b) },
		func() (time.Duration, error) { return g.limit(ctx, b) })
}

func (g *restart) ours(ctx context.Context, b *bench) (ready time.Duration, err error) {
	if err := b.breathe(ctx); err != nil {
		return 0, err
	}
	err = b.audit.during(ctx, g.requests, want{lists: watchedResources, ended: true}, func() error {
		c, err := b.launch(b.pool.prefixes(g.targets))
		if err != nil {
			return err
		}
		if ready, err = c.waitReadyz(ctx); err != nil {
			return c.stopAfter(ctx, err)
		}
		mirrors, err := c.waitReady(ctx)
		if err != nil {
			return c.stopAfter(ctx, err)
		}
		g.mirrors.ours = append(g.mirrors.ours, mirrors.Seconds())
		time.Sleep(afterthought)
		return c.stop(ctx)
	})
	return ready, err
}

// limit is a round of the bare informer.
func (g *restart) limit(ctx context.Context, b *bench) (time.Duration, error) {
	if err := b.breathe(ctx); err != nil {
		return 0, err
	}
	return b.informerSync(ctx)
}

// idle is a controller with nothing to do: the share of a core that it uses, and its requests, which are none but
// watches and the lease.
type idle struct {
	scene
	span          time.Duration
	cpu, requests *row
}

// idleShare is the share of a core that it may use.
const idleShare = 0.003

func newIdle(s sizes) group {
	figure := fmt.Sprintf("idle for %s, %s copies", s.idle, thousands(s.synced*s.targets))
	return &idle{
		scene: s.syncedScene(), span: s.idle,
		cpu:      &row{figure: figure + ", share of a core", unit: asShare, bar: 1},
		requests: &row{figure: "requests, " + figure, unit: asCount, exact: true},
	}
}

func (g *idle) rows() []*row { return []*row{g.cpu, g.requests} }

func (g *idle) measure(ctx context.Context, b *bench) error {
	if err := b.fill(ctx, g.scene); err != nil {
		return err
	}
	return b.with(ctx, b.pool.prefixes(g.targets), func(c *controller) error {
		time.Sleep(5 * time.Second) // what it does at the start is done
		return b.audit.during(ctx, g.requests, want{alone: true}, func() error {
			used, err := cpuDuring([]int{c.Pid()}, func() error {
				select {
				case <-time.After(g.span):
					return nil
				case <-ctx.Done():
					return ctx.Err()
				}
			})
			g.cpu.add(used.Seconds()/g.span.Seconds(), idleShare)
			return err
		})
	})
}
