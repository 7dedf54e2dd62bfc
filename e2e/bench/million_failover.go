package main

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// millionFailover is a standby with warm caches that takes over, from a leader that is told to stop, and from one that is killed:
// until it mirrors, and the memory of both.
type millionFailover struct {
	*million
	told, killed    *row
	leader, standby *row
}

func newMillionFailover(m *million) group {
	figure := fmt.Sprintf("failover to a standby, %s copies", thousands(m.copies()))
	return &millionFailover{
		million: m,
		told:    &row{figure: figure + ": the leader is told to stop", unit: asSeconds, note: "the lease is asked for every two seconds"},
		killed:  &row{figure: figure + ": the leader is killed", unit: asSeconds, note: "the lease has to run out"},
		leader:  &row{figure: figure + ": resident, leader", unit: asGiB},
		standby: &row{figure: figure + ": resident, standby", unit: asGiB},
	}
}

func (g *millionFailover) rows() []*row { return []*row{g.told, g.killed, g.leader, g.standby} }

func (g *millionFailover) measure(ctx context.Context, b *bench) error {
	if err := g.ready(ctx, b); err != nil {
		return err
	}
	leader, err := b.launchReady(ctx, g.prefixes(b))
	if err != nil {
		return err
	}
	leader, err = g.succeed(ctx, b, leader, g.told, func(c *controller) error { return c.stop(ctx) })
	if err != nil {
		return err
	}
	leader, err = g.succeed(ctx, b, leader, g.killed, func(c *controller) error { c.Kill(); return nil })
	if err != nil {
		return err
	}
	return leader.stop(ctx)
}

// succeed starts a standby, ends the leader when the standby is ready, fills a row with the time until the standby mirrors, and
// returns it. If that fails, neither runs.
func (g *millionFailover) succeed(ctx context.Context, b *bench, leader *controller, r *row, end func(*controller) error) (*controller, error) {
	b.progress("a standby beside the leader")
	standby, err := b.launch(g.prefixes(b))
	if err != nil {
		return nil, leader.stopAfter(ctx, err)
	}
	if err := g.wait(ctx, b, leader, standby); err != nil {
		return nil, errors.Join(standby.stopAfter(ctx, err), leader.stop(ctx))
	}
	ended := time.Now()
	if err := end(leader); err != nil {
		return nil, standby.stopAfter(ctx, err)
	}
	if _, err := standby.waitReady(ctx); err != nil {
		return nil, standby.stopAfter(ctx, err)
	}
	r.ours = append(r.ours, standby.ready.at.Sub(ended).Seconds())
	return standby, nil
}

// wait waits until the standby is ready and both are quiet, and reads their memory.
func (g *millionFailover) wait(ctx context.Context, b *bench, leader, standby *controller) error {
	if _, err := standby.waitReadyz(ctx); err != nil {
		return err
	}
	for _, side := range []struct {
		c *controller
		r *row
	}{{leader, g.leader}, {standby, g.standby}} {
		if err := side.c.quiet(ctx); err != nil {
			return err
		}
		resident, _, err := memoryOf(side.c.Pid())
		if err != nil {
			return err
		}
		side.r.ours = append(side.r.ours, resident)
	}
	return b.sleep(ctx, g.settle)
}
