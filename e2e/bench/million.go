package main

import (
	"fmt"
	"os"
	"path/filepath"
	"time"
)

const (
	// millionSources is the number of sources, each with a copy in each target.
	millionSources = 100
	// freshPrefix begins the names of namespaces that are created while a controller mirrors.
	freshPrefix = "fresh-"
)

// million is what the rows about a million copies share. They are measured on one cluster. The copies are made by
// rungs: each has ten times as many as the one before, and a process of its own, which finds the copies of the one
// before.
type million struct {
	sizes
	names    []string      // of the targets of all rungs
	prefixes []string      // of the targets up to the last rung that was made
	before   time.Duration // a create of the plain program, before the first rung
	perCopy  time.Duration // what the last rung took for one
	maker    float64       // bytes, of the process that made it
	version  int           // of the data of the source that changes
	fresh    int           // namespaces that were made while a controller mirrored
}

// ready makes sure that all copies are there. No controller runs before and after.
func (m *million) ready(b *bench) {
	if len(m.names) > 0 {
		return
	}
	var rungs []int // the namespaces that there are with each
	for _, part := range []int{1000, 100, 10, 1} {
		if n := m.million / part; n > 0 {
			rungs = append(rungs, n)
			m.names = append(m.names, numbered(rungPrefix(n), n-len(m.names))...)
		}
	}
	b.progress("making %s namespaces", thousands(m.million))
	b.createNamespaces(m.names)
	for _, name := range sourceNames(millionSources) {
		b.createSource(name, "1", payload)
	}
	m.before = m.rate(b)
	m.prefixes = []string{freshPrefix}
	before := 0
	for _, n := range rungs {
		m.prefixes = append(m.prefixes, rungPrefix(n))
		m.climb(b, before, n)
		before = n
	}
}

// rungPrefix begins the names of the namespaces that a rung adds, so that there are n.
func rungPrefix(n int) string { return fmt.Sprintf("rung-%d-", n) }

// rate measures a create of the plain program, and deletes the objects again.
func (m *million) rate(b *bench) time.Duration {
	names := numbered("plain-", max(1, min(millionSources, 10_000/m.million)))
	o := order{Op: opCreate, Names: names, Namespaces: m.names, Version: "1"}
	took := b.limit(o).took
	o.Op = opDelete
	b.limit(o)
	return took / time.Duration(o.size())
}

// climb has a process make the copies of a rung, and adds to the table of growth what that took and what there is then.
func (m *million) climb(b *bench, before, namespaces int) {
	made, all := millionSources*(namespaces-before), millionSources*namespaces
	var took time.Duration
	var resident []float64 // of the programs
	var database int64
	b.progress("making %s copies", thousands(made))
	w := b.watch(mirrorSelector)
	x := w.expect(made, holds("", "1"))
	c := b.launch(m.prefixes)
	c.during(func() {
		stop := b.follow(c, func() int { return all - made + x.count() })
		defer stop()
		defer w.stop()
		took = x.wait().Sub(c.started)
		m.perCopy, m.maker = took/time.Duration(made), b.settled(c)
		resident = b.residents(c)
		database = get(os.Stat(filepath.Join(b.cluster.Dir(), "etcd", "member", "snap", "db"))).Size()
	})
	b.progress("starting with %s copies", thousands(all))
	c = b.launch(m.prefixes)
	c.during(func() {
		restarted := c.waitMirrors()
		found, live := b.settled(c), c.liveHeap()
		changed := m.change(b, c, namespaces).took
		b.growth.lines = append(b.growth.lines, []string{thousands(all), thousands(namespaces),
			fmt.Sprintf("%s in %s", thousands(made), asTime(took.Seconds())),
			asTime(restarted.Seconds()), asTime(changed.Seconds()), asBytes(m.maker), asBytes(found), asBytes(live),
			asBytes(resident[1]), asBytes(resident[2]), asBytes(float64(database))})
	})
}

// change changes the first source and returns what it takes until its copies in so many namespaces, and in those that
// were made while a controller mirrored, hold it.
func (m *million) change(b *bench, c *controller, namespaces int) use {
	w := b.watch(mirrorSelector)
	defer w.stop()
	b.sleep(pause)
	source, version := sourceNames(1)[0], m.nextVersion()
	return b.used(c.Pid(), func() time.Duration {
		return w.timed(namespaces+m.fresh, holds(source, version), func() { b.updateSource(source, version, payload) })
	})
}

// nextVersion is that of the next change. It begins as the first one did, for other rows wait for that.
func (m *million) nextVersion() string {
	m.version++
	return fmt.Sprintf("1-%d-", m.version)
}
