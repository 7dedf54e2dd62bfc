package main

import (
	"fmt"
	"time"
)

const (
	// restartSlack is what a process may take besides.
	restartSlack = 300 * time.Millisecond
	// idleShare is the share of a core that an idle controller may use.
	idleShare = 0.003
	// thin is the bytes of data of a source in the rows that begin in sync.
	thin = 100
	// syncedTargets is the number of target namespaces of these rows.
	syncedTargets = 200
)

// syncedScene is that of the rows that begin with copies in sync.
func (s sizes) syncedScene() scene { return scene{s.synced, syncedTargets, thin} }

// newRestart is a controller that starts with all copies in sync, until it mirrors. The limit is the time in which a bare
// informer in a plain program has the same ConfigMaps, without the start of its process.
func newRestart(s sizes) group {
	all := s.syncedScene()
	figure := fmt.Sprintf("restart, %s copies in sync", thousands(all.copies()))
	r := &row{figure: figure, unit: asTime, bar: 1.3, slack: restartSlack.Seconds()}
	return group{[]*row{r}, func(b *bench) {
		b.fill(all)
		interleave(s.rounds, r, func() time.Duration { return b.startTime([]string{all.prefix()}) }, b.informerSync)
	}}
}

// startTime starts a controller, and returns how long it takes until it mirrors.
func (b *bench) startTime(prefixes []string) (took time.Duration) {
	b.sleep(pause)
	c := b.launch(prefixes)
	c.during(func() { took = c.waitMirrors() })
	return took
}

// newIdle is a controller with nothing to do: the share of a core that it uses, and its requests, which are none but
// watches and the lease.
func newIdle(s sizes) group {
	all := s.syncedScene()
	figure := fmt.Sprintf("idle for %s, %s copies", s.idle, thousands(all.copies()))
	share := &row{figure: figure + ", share of a core", unit: asShare, bar: 1}
	requests := &row{figure: "requests, " + figure, unit: asCount, exact: true}
	return group{[]*row{share, requests}, func(b *bench) {
		b.fill(all)
		b.with([]string{all.prefix()}, func(c *controller) {
			c.quiet()
			b.requests(requests, 0, func() { share.add(c.shareOfCore(s.idle), idleShare) })
		})
	}}
}
