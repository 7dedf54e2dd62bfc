package main

import (
	"context"
	"fmt"
	"time"
)

// millionRestart is a process that starts with all copies in sync: until it mirrors, and what it has in memory then. The limit is a
// bare informer on the same ConfigMaps.
type millionRestart struct {
	*million
	time, requests       *row
	resident, peak, live *row
}

// restartBar is how many times the bare informer's time a start may take.
const restartBar = 1.8

func newMillionRestart(m *million) group {
	figure := fmt.Sprintf("restart, %s copies in sync", thousands(m.copies()))
	return &millionRestart{
		million:  m,
		time:     &row{figure: figure + ", until it mirrors", unit: asSeconds, bar: restartBar},
		requests: &row{figure: "requests, " + figure, unit: asCount, exact: true},
		resident: &row{figure: figure + ": resident", unit: asGiB, bar: 1},
		peak:     &row{figure: figure + ": peak", unit: asGiB},
		live:     &row{figure: figure + ": live heap", unit: asGiB},
	}
}

func (g *millionRestart) rows() []*row {
	return []*row{g.time, g.requests, g.resident, g.peak, g.live}
}

func (g *millionRestart) measure(ctx context.Context, b *bench) error {
	if err := g.ready(ctx, b); err != nil {
		return err
	}
	return interleave(g.restarts, g.time,
		func() (time.Duration, error) { return g.ours(ctx, b) },
		func() (time.Duration, error) {
			b.progress("a bare informer")
			return b.informerSync(ctx)
		})
}

func (g *millionRestart) ours(ctx context.Context, b *bench) (mirrors time.Duration, err error) {
	b.progress("a start with all copies in sync")
	err = b.audit.during(ctx, g.requests, want{lists: watchedResources, ended: true}, func() error {
		c, err := b.launch(g.prefixes(b))
		if err != nil {
			return err
		}
		return c.stopAfter(ctx, func() (err error) {
			if mirrors, err = c.waitReady(ctx); err != nil {
				return err
			}
			var f figures
			err = g.rest(ctx, b, c, &f)
			g.resident.add(f.resident, residentBar)
			g.peak.ours, g.live.ours = append(g.peak.ours, f.peak), append(g.live.ours, f.live)
			return err
		}())
	})
	return mirrors, err
}

// millionIdle is a process with nothing to do, and then with a resync: CPU time, and no request.
type millionIdle struct {
	*million
	idle, resync, requests *row
}

const (
	// resyncBar is the CPU time that a resync may take, in seconds.
	resyncBar = 5
	// startGrace is how long a process may take after it has begun to mirror, until it is quiet.
	startGrace = 30 * time.Second
	// resyncSpan is for how long CPU time counts as that of the resync in its midst.
	resyncSpan = 20 * time.Second
)

func newMillionIdle(m *million) group {
	all := thousands(m.copies())
	return &millionIdle{
		million:  m,
		idle:     &row{figure: fmt.Sprintf("idle for %s, %s copies, share of a core", m.millionSizes.idle, all), unit: asShare, bar: 1},
		resync:   &row{figure: fmt.Sprintf("resync of %s copies, CPU", all), unit: asSeconds, bar: 1},
		requests: &row{figure: fmt.Sprintf("requests, idle and resync, %s copies", all), unit: asCount, exact: true},
	}
}

func (g *millionIdle) rows() []*row { return []*row{g.idle, g.resync, g.requests} }

func (g *millionIdle) measure(ctx context.Context, b *bench) error {
	if err := g.ready(ctx, b); err != nil {
		return err
	}
	c, err := b.launchArgs(append(prefixFlags(g.prefixes(b)), "--resync-period="+g.million.resync.String()))
	if err != nil {
		return err
	}
	return c.stopAfter(ctx, g.watch(ctx, b, c))
}

// watch fills the rows, from a process that has just started.
func (g *millionIdle) watch(ctx context.Context, b *bench, c *controller) error {
	if _, err := c.waitReady(ctx); err != nil {
		return err
	}
	due := c.ready.at.Add(g.million.resync)
	if err := c.quiet(ctx); err != nil {
		return err
	}
	if time.Until(due) < g.million.idle+resyncSpan/2 {
		return fmt.Errorf("it was busy for %s after its start, and -resync leaves no time to watch it idle", time.Since(c.ready.at))
	}
	if err := b.audit.skip(); err != nil {
		return err
	}
	return b.audit.during(ctx, g.requests, want{alone: true}, func() error {
		used, err := g.cpuWithin(ctx, b, c, g.million.idle)
		if err != nil {
			return err
		}
		share := used.Seconds() / g.million.idle.Seconds()
		g.idle.add(share, idleShare)
		if err := b.sleep(ctx, time.Until(due.Add(-resyncSpan/2))); err != nil {
			return err
		}
		used, err = g.cpuWithin(ctx, b, c, resyncSpan)
		g.resync.add(max(0, used.Seconds()-share*resyncSpan.Seconds()), resyncBar)
		return err
	})
}

// cpuWithin returns the CPU time that a process uses in a time.
func (m *million) cpuWithin(ctx context.Context, b *bench, c *controller, span time.Duration) (time.Duration, error) {
	return cpuDuring([]int{c.Pid()}, func() error { return b.sleep(ctx, span) })
}
