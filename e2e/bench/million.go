package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/plotutil"
	"gonum.org/v1/plot/vg"
)

// millionSources is the number of sources, each with a copy in each target.
const millionSources = 100

// million is what the rows about a million copies share. They are measured on one cluster. The copies are made by
// rungs: each has ten times as many as the one before, and a process of its own, which finds the copies of the one
// before.
type million struct {
	sizes
	ladder  []rung
	curve   []growthPoint
	before  use // of a create by the plain program, before the first rung
	version int // of the data of the source that changes
	fresh   int // namespaces that were made while a controller mirrored
}

// rung is what there is with so many copies.
type rung struct {
	namespaces       int
	made             int     // copies that the process of this rung made
	filled           use     // what that took
	maker            float64 // bytes, of that process
	programs         map[string]float64
	database         float64       // bytes, of etcd's file
	restarted        time.Duration // until a process that starts with all copies in sync mirrors
	found, foundLive float64       // bytes, of that process
	changed          time.Duration // a change of a source, to its last copy
}

// growthPoint is what programs have in memory when so many copies have been made.
type growthPoint struct {
	copies   int
	resident map[string]float64
}

// rungs are the numbers of namespaces.
func (m *million) rungs() (rungs []int) {
	for _, part := range []int{1000, 100, 10, 1} {
		if n := m.million / part; n > 0 {
			rungs = append(rungs, n)
		}
	}
	return rungs
}

// prefixOfRung is that of the namespaces that the rung adds.
func prefixOfRung(i int) string { return fmt.Sprintf("rung-%d-", i) }

// freshPrefix begins the names of namespaces that are created while a controller mirrors.
const freshPrefix = "fresh-"

// prefixes select the targets up to a rung.
func (m *million) prefixes(rung int) []string {
	prefixes := []string{freshPrefix}
	for i := range rung + 1 {
		prefixes = append(prefixes, prefixOfRung(i))
	}
	return prefixes
}

// names are those of the targets of all rungs.
func (m *million) names() (names []string) {
	for i, n := range m.rungs() {
		names = append(names, numbered(prefixOfRung(i), n-len(names))...)
	}
	return names
}

func (m *million) copies() int { return millionSources * m.million }

// ready makes sure that all copies are there. No controller runs before and after.
func (m *million) ready(b *bench) {
	if len(m.ladder) > 0 {
		return
	}
	b.progress("making %s namespaces", thousands(m.million))
	b.createNamespaces(m.names())
	for _, name := range sourceNames(millionSources) {
		b.createSource(name, "1", payload)
	}
	m.before = m.rate(b)
	for i := range m.rungs() {
		m.climb(b, i)
	}
}

// rate measures a create of the plain program, and deletes the objects again.
func (m *million) rate(b *bench) use {
	names := numbered("plain-", max(1, min(millionSources, 10_000/m.million)))
	o := order{Op: opCreate, Names: names, Namespaces: m.names(), Version: "1"}
	u := b.limit(o)
	o.Op = opDelete
	b.limit(o)
	return u.each(o.size())
}

// each is the share of one of n.
func (u use) each(n int) use {
	return use{u.took / time.Duration(n), u.cpu / time.Duration(n), u.server / time.Duration(n)}
}

// climb has a process make the copies of a rung, and notes what that took, and what there is then.
func (m *million) climb(b *bench, i int) {
	r := rung{namespaces: m.rungs()[i]}
	before := 0
	if i > 0 {
		before = millionSources * m.rungs()[i-1]
	}
	r.made = millionSources*r.namespaces - before
	b.progress("making %s copies", thousands(r.made))
	w := b.watch(mirrorSelector)
	x := w.expect(r.made, holds("", "1"))
	c := b.launch(m.prefixes(i))
	c.during(func() {
		stop := m.sample(b, x, before)
		defer stop()
		defer w.stop()
		r.filled = b.used(c.Pid(), func() time.Duration { return x.wait().Sub(c.started) })
		r.maker = b.settled(c)
		r.programs = b.residents()
		info := get(os.Stat(filepath.Join(b.cluster.Dir(), "etcd", "member", "snap", "db")))
		r.database = float64(info.Size())
	})
	b.progress("starting with %s copies", thousands(millionSources*r.namespaces))
	c = b.launch(m.prefixes(i))
	c.during(func() {
		r.restarted = c.waitMirrors()
		r.found = b.settled(c)
		r.foundLive = c.liveHeap()
		r.changed = m.change(b, c, r.namespaces).took
	})
	m.ladder = append(m.ladder, r)
}

// sample notes every five seconds what programs have in memory.
func (m *million) sample(b *bench, x *expectation, before int) (stop func()) {
	ticks := time.NewTicker(5 * time.Second)
	over, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case <-over:
				return
			case <-ticks.C:
			}
			p := growthPoint{copies: before + x.count()}
			if attempt(func() { p.resident = b.residents() }) == nil { // a process may end meanwhile
				m.curve = append(m.curve, p)
			}
		}
	}()
	return func() { ticks.Stop(); close(over); <-ended }
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

// nextVersion is that of the next change. It begins as the first one did, for other rows look for that.
func (m *million) nextVersion() string {
	m.version++
	return fmt.Sprintf("1-%d-", m.version)
}

// pictures are the table of how things grow, and the picture.
func (m *million) pictures() []picture {
	if len(m.ladder) == 0 {
		return nil
	}
	var lines [][]string
	for _, r := range m.ladder {
		lines = append(lines, []string{thousands(millionSources * r.namespaces), thousands(r.namespaces),
			fmt.Sprintf("%s in %s", thousands(r.made), asTime(r.filled.took.Seconds())),
			asTime(r.restarted.Seconds()), asTime(r.changed.Seconds()),
			asBytes(r.maker), asBytes(r.found), asBytes(r.foundLive),
			asBytes(r.programs["kube-apiserver"]), asBytes(r.programs["etcd"]), asBytes(r.database)})
	}
	var text bytes.Buffer
	printTable(&text, []string{"copies", "namespaces", "filling", "start until it mirrors", "change of one source",
		"controller that made them", "restarted", "live heap", "API server", "etcd", "its file"}, lines)
	return []picture{{text.String(), "growth.svg", m.draw}}
}

// draw draws what programs have in memory while copies are made.
func (m *million) draw(path string) error {
	p := plot.New()
	p.X.Label.Text, p.Y.Label.Text = "thousand copies", "GiB"
	p.Legend.Top, p.Legend.Left = true, true
	var lines []any
	for _, program := range []string{"mirror-controller", "kube-apiserver", "etcd"} {
		var points plotter.XYs
		for _, at := range m.curve {
			points = append(points, plotter.XY{X: float64(at.copies) / 1000, Y: at.resident[program] / (1 << 30)})
		}
		lines = append(lines, program, points)
	}
	if err := plotutil.AddLines(p, lines...); err != nil {
		return err
	}
	return p.Save(18*vg.Centimeter, 9*vg.Centimeter, path)
}
