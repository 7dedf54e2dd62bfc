package main

import (
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/mirror-controller/mirror-controller/e2e/shipped"
)

const growthName = "Growth"

// largestAsked is the largest rung, in namespaces, at which kubectl mirror is measured: 100,000 copies.
const largestAsked = 1000

// growthSources is the number of sources, each with a copy in each target.
const growthSources = 100

// ladder is what the rungs of growth share.
type ladder struct {
	*bench
	names    []string   // of the targets up to this rung
	prefixes []string   // of the targets up to this rung, and of fresh namespaces
	memory   [3]float64 // of the rung before: of the process that made the copies, of one restarted, and its live heap
	version  int        // of the data of the source that changes
	fresh    int        // namespaces that were made while a controller mirrored
}

const freshPrefix = "fresh-"

// growth is how things grow up to a million copies, in one run on one cluster. The copies are made by rungs: each has
// ten times as many as the one before, and processes of its own. What a rung costs is compared with what a plain
// program needs for the same, and with the first rung.
func growth(b *bench) {
	l := &ladder{bench: b, prefixes: []string{freshPrefix}}
	for _, name := range sourceNames(growthSources) {
		b.createSource(name, "1")
	}
	for _, part := range []int{1000, 100, 10, 1} {
		if n := *growTo / part; n > 0 {
			l.climb(n)
		}
	}
}

// climb makes the copies of a rung, so that there are those in n namespaces, and measures.
func (l *ladder) climb(n int) {
	prefix := fmt.Sprintf("rung-%d-", n)
	more := numbered(prefix, n-len(l.names))
	l.createNamespaces(more)
	l.names, l.prefixes = append(l.names, more...), append(l.prefixes, prefix)
	l.name = fmt.Sprintf("Growth/n=%d", growthSources*n)
	memory := [3]float64{l.filling(more)}
	l.progress("%s: a process that finds them", l.name)
	c := l.launch(l.prefixes, shipped.RunOptions{Args: []string{"--resync-period=" + l.resync().String()}})
	c.during(func() {
		due := c.started.Add(c.waitMirrors() + l.resync())
		memory[1], memory[2] = l.settled(c), c.liveHeap()
		l.print("restarted", metrics{"resident-B": memory[1], "live-B": memory[2]})
		if n == *growTo {
			l.idling(c, due)
		}
	})
	if l.memory[0] > 0 {
		for i, what := range []string{"made/bar=2.0KiB", "restarted/bar=2.0KiB", "live/bar=0.8KiB"} {
			l.print("memory/"+what, metrics{"B/copy": (memory[i] - l.memory[i]) / float64(growthSources*len(more))})
		}
	}
	l.memory = memory
	l.with(l.prefixes, func(c *controller) {
		c.quiet()
		l.changing(c)
		l.freshNamespaces()
		l.repairing()
	})
	if n <= largestAsked {
		l.asking()
	}
	for round := range *few { // at last: a bare informer is the largest program of all
		l.starting(round)
	}
}

// starting is a controller that starts with all copies in sync, until it mirrors. The limit is the time in which a bare
// informer in a plain program has the same ConfigMaps, without the start of its process: the ratio leaves out 0.3 s of
// ours.
func (l *ladder) starting(round int) {
	var ours, limit time.Duration
	alternately(round, func() {
		l.sleep(pause)
		c := l.launch(l.prefixes, shipped.RunOptions{})
		c.during(func() { ours = c.waitMirrors() })
	}, func() { limit = l.informerSync() })
	const start = 300 * time.Millisecond
	l.print("start/bar=1.80", metrics{"sec/op": ours.Seconds(), "limit-sec/op": limit.Seconds(),
		"x-limit": max(0, ours-start).Seconds() / limit.Seconds()})
}

// settled leaves a process alone for a while and returns what it has in memory then.
func (b *bench) settled(c *controller) float64 {
	c.quiet()
	b.sleep(*settleFor)
	return residentOf(c.Pid())
}

// filling has a process make the copies in new namespaces, and returns what it has in memory then. The limit is a
// create by the plain program.
func (l *ladder) filling(namespaces []string) (resident float64) {
	made := growthSources * len(namespaces)
	l.progress("%s: making %d copies", l.name, made)
	w := l.watch(mirrorSelector)
	x := w.expect(made, holds("", "1"))
	c := l.launch(l.prefixes, shipped.RunOptions{})
	c.during(func() {
		took := x.wait().Sub(c.started)
		w.stop() // what it decodes takes memory
		resident = l.settled(c)
		database := get(os.Stat(filepath.Join(l.cluster.Dir(), "etcd", "member", "snap", "db")))
		l.print("made/bar=2.2GiB", metrics{
			"sec/op": took.Seconds(), "sec/copy": took.Seconds() / float64(made), "resident-B": resident,
			"apiserver-B": residentOf(l.servers[0]), "etcd-B": residentOf(l.servers[1]), "database-B": float64(database.Size()),
		})
	})
	o := order{Op: opCreate, Names: numbered("plain-", max(1, 1000/len(l.names))), Namespaces: l.names, Version: "1"}
	took := l.limit(o).took
	o.Op = opDelete
	l.limit(o)
	l.print("made/limit", metrics{"sec/copy": took.Seconds() / float64(o.size())})
	return resident
}

// resyncSpan is for how long CPU time counts as that of the resync in its midst.
const resyncSpan = 20 * time.Second

// resync is the period of a process that is watched while it is idle, and then once compares everything. A million
// copies take two minutes until all is quiet.
func (l *ladder) resync() time.Duration {
	return *settleFor + *idleFor + 30*time.Second + time.Duration(len(l.names))*9*time.Millisecond
}

// idling is a process with nothing to do, and then with a resync: CPU time.
func (l *ladder) idling(c *controller, due time.Time) {
	c.quiet()
	share := c.shareOfCore(*idleFor)
	l.print("idle/bar=0.3%", metrics{"%-of-a-core": 100 * share})
	if time.Until(due) < resyncSpan/2 {
		check(fmt.Errorf("the resync came before it was watched"))
	}
	l.sleep(time.Until(due) - resyncSpan/2)
	cpu := max(0, c.shareOfCore(resyncSpan)-share) * resyncSpan.Seconds()
	l.print("resync/bar=5s", metrics{"cpu-sec/op": cpu})
}

// changing is a change of one source, to its last copy; the limit is as many updates by the plain program.
func (l *ladder) changing(c *controller) {
	o := order{Op: opCreate, Names: []string{"changed"}, Namespaces: l.names, Version: "0-"}
	l.limit(o)
	o.Op = opUpdate
	for round := range *few {
		o.Version = fmt.Sprintf("%d-", round+1)
		var ours, limit use
		alternately(round, func() { ours = l.changeSource(c) }, func() { limit = l.limit(o) })
		l.compare("change/bar=1.15", ours.took, limit.took)
		l.compareCPU("change/bar=1.75", len(l.names), ours, limit)
	}
	o.Op = opDelete
	l.limit(o)
}

// changeSource changes the first source and returns what it takes until all its copies hold it. The data begin as the
// first ones did: what waits for copies in a fresh namespace takes any version.
func (l *ladder) changeSource(c *controller) use {
	l.version++
	update := phase{op: opUpdate, version: fmt.Sprintf("1-%d-", l.version)}
	return l.publish(c, len(l.names)+l.fresh, sourceNames(1)[0], update)
}

// freshNamespaces is a new namespace, to the last of its copies, against as many creates by the plain program.
func (l *ladder) freshNamespaces() {
	w := l.watch(mirrorSelector)
	defer w.stop()
	for round := range *rounds {
		var ours, limit time.Duration
		alternately(round, func() {
			name := numbered(freshPrefix, l.fresh+1)[l.fresh:]
			l.fresh++
			l.sleep(pause)
			ours = w.timed(growthSources, in(name[0], holds("", "1")), func() { l.createNamespaces(name) })
		}, func() {
			names := []string{fmt.Sprintf("plain-%d-%d", len(l.names), round)}
			l.createNamespaces(names)
			o := order{Op: opCreate, Names: sourceNames(growthSources), Namespaces: names, Version: "1"}
			limit = l.limit(o).took
		})
		l.compare("namespace/bar=1.25", ours, limit)
	}
}

// repairing is from the outside watch showing a damage to a copy to its showing the repair. The limit is one update,
// from just before it until it has been answered and shown by a watch; it takes turns with the damages. Each sample has
// a copy of its own: a copy that is damaged again and again is restored ever more slowly.
func (l *ladder) repairing() {
	w, plain := l.watch(mirrorSelector), l.watch(plainSelector)
	defer w.stop()
	defer plain.stop()
	for i := range 2 * samples {
		source, namespace := sourceNames(growthSources)[1+i%(growthSources-1)], l.names[i*len(l.names)/(2*samples)]
		damage := []string{opUpdate, opDelete}[i%2]
		limit := l.plainUpdate(plain, namespace)
		l.sleep(breath)
		l.compare("repair/"+damage+"/bar=2.00", l.repair(w, damage, namespace, source), limit)
		l.sleep(breath)
	}
}
