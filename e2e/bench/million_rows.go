package main

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// groups are all rows about a million copies, in the order in which they are measured.
func (m *million) groups() []group {
	return []group{m.filling(), m.idling(), m.changing(), m.freshNamespaces(), m.repairing(), m.failover(),
		m.restarting()} // at last: a bare informer is the largest program of all
}

// figure is the name of a row.
func (m *million) figure(format string, args ...any) string {
	return fmt.Sprintf("%s copies: ", thousands(millionSources*m.million)) + fmt.Sprintf(format, args...)
}

// with starts a controller for all copies, waits until what it does at its start is done, and calls f.
func (m *million) with(b *bench, f func(*controller)) {
	m.ready(b)
	b.with(m.prefixes, func(c *controller) {
		c.quiet()
		f(c)
	})
}

// filling is the making of the last rung. The limit is a create by the plain program, before the first rung and
// behind the last one.
func (m *million) filling() group {
	took := &row{figure: m.figure("filling, time a copy"), unit: asCPU}
	resident := &row{figure: m.figure("resident, the process that made them"), unit: asBytes, bar: 1}
	return group{[]*row{took, resident}, func(b *bench) {
		m.ready(b)
		took.addTimes(m.perCopy, m.before)
		took.addTimes(m.perCopy, m.rate(b))
		resident.add(m.maker, 2.2*(1<<30))
	}}
}

// changing is a change of one source, to its last copy; the limit is as many updates by the plain program.
func (m *million) changing() group {
	took := &row{figure: m.figure("change of a source"), unit: asTime, bar: 1.15}
	cpu := &row{figure: m.figure("change of a source, CPU a write"), unit: asCPU, bar: 1.75}
	cpuAll := &row{figure: m.figure("change of a source, CPU a write, with API server and etcd"), unit: asCPU}
	requests := &row{figure: m.figure("requests, change of a source"), unit: asCount, exact: true}
	return group{[]*row{took, cpu, cpuAll, requests}, func(b *bench) {
		m.with(b, func(c *controller) {
			o := order{Op: opCreate, Names: []string{"changed"}, Namespaces: m.names, Version: "0-"}
			b.limit(o)
			o.Op = opUpdate
			for i := range m.rounds {
				b.progress("change %d of %d", i+1, m.rounds)
				o.Version = fmt.Sprintf("%d-", i+1)
				var ours, limit use
				alternately(i, func() {
					b.requests(requests, m.million, func() { ours = m.change(b, c, m.million) })
				}, func() { limit = b.limit(o) })
				took.addTimes(ours.took, limit.took)
				cpu.addTimes(ours.cpuEach(m.million), limit.cpuEach(m.million))
				cpuAll.addTimes(ours.allEach(m.million), limit.allEach(m.million))
			}
			o.Op = opDelete
			b.limit(o)
		})
	}}
}

// freshNamespaces is a new namespace, to the last of its copies: by itself, against as many creates by the plain
// program, and while a change of a source runs.
func (m *million) freshNamespaces() group {
	alone := &row{figure: m.figure("new namespace"), unit: asTime, bar: 1.25}
	during := &row{figure: m.figure("new namespace while a source changes"), unit: asTime}
	return group{[]*row{alone, during}, func(b *bench) {
		m.with(b, func(c *controller) {
			limits := 0
			interleave(m.rounds, alone, func() time.Duration { return m.freshNamespace(b) }, func() time.Duration {
				limits++
				name := fmt.Sprintf("plain-%d", limits)
				b.createNamespaces([]string{name})
				return b.limit(order{Op: opCreate, Names: sourceNames(millionSources), Namespaces: []string{name}, Version: "1"}).took
			})
			w := b.watch(mirrorSelector)
			defer w.stop()
			for range m.few {
				source, version := sourceNames(1)[0], m.nextVersion()
				part := w.expect(max(1, m.million/4), holds(source, version))
				all := w.expect(m.million+m.fresh+1, holds(source, version))
				b.updateSource(source, version, payload)
				part.wait()
				during.tell(m.freshNamespace(b).Seconds())
				all.wait()
				b.sleep(afterthought)
			}
		})
	}}
}

// freshNamespace returns how long it takes to create a namespace and all its copies.
func (m *million) freshNamespace(b *bench) time.Duration {
	w := b.watch(mirrorSelector)
	defer w.stop()
	name := fmt.Sprintf("%s%05d", freshPrefix, m.fresh)
	m.fresh++
	b.sleep(pause)
	return w.timed(millionSources, in(name, holds("", "1")), func() { b.createNamespace(name) })
}

// smallLabel marks what the second process of repairing has.
const smallLabel = "small"

// repairing is a repair of an edited copy by the process that has all copies; the limit is the same by a second
// process on the same cluster, with a label and an instance of its own, that has a hundred.
func (m *million) repairing() group {
	r := &row{figure: m.figure("repair, against %d copies", smallTargets), unit: asTime, bar: 1.3}
	return group{[]*row{r}, func(b *bench) {
		m.with(b, func(*controller) {
			small := scene{1, smallTargets, payload}
			b.createNamespaces(small.names())
			source := newSource("small", "1", payload)
			source.Labels = map[string]string{smallLabel: plan.SourceValue}
			get(b.maps(home).Create(b.ctx, source, metav1.CreateOptions{}))
			w, other := b.watch(mirrorSelector), b.watch(smallLabel+" in ("+plan.SourceValue+","+plan.CopyValue+")")
			defer w.stop()
			defer other.stop()
			copied := other.expect(smallTargets, holds("small", "1"))
			c := b.launch([]string{small.prefix()}, "--mirror-label="+smallLabel, "--instance="+smallLabel, "--leader-elect=false")
			c.during(func() {
				copied.wait()
				c.quiet()
				for i := range samples {
					var ours, limit time.Duration
					alternately(i, func() {
						b.sleep(breath)
						ours = b.repair(w, opUpdate, m.names[i*m.million/samples], sourceNames(millionSources)[millionSources-1])
					}, func() {
						b.sleep(breath)
						limit = b.repair(other, opUpdate, small.names()[i%smallTargets], "small")
					})
					r.addTimes(ours, limit)
				}
			})
		})
	}}
}

// restarting is a process that starts with all copies in sync, until it mirrors. The limit is a bare informer on the
// same ConfigMaps.
func (m *million) restarting() group {
	r := &row{figure: m.figure("start until it mirrors"), unit: asTime, bar: 1.8}
	return group{[]*row{r}, func(b *bench) {
		m.ready(b)
		interleave(m.few, r, func() time.Duration { return b.startTime(m.prefixes) }, b.informerSync)
	}}
}

// failover is a standby with warm caches that takes over, from a leader that is told to stop, and from one that is
// killed: until it mirrors. The lease is asked for every two seconds, and has to run out where the leader is killed.
func (m *million) failover() group {
	told := &row{figure: m.figure("failover, the leader is told to stop"), unit: asTime}
	killed := &row{figure: m.figure("failover, the leader is killed"), unit: asTime}
	leading := &row{figure: m.figure("resident, leader"), unit: asBytes}
	standing := &row{figure: m.figure("resident, standby"), unit: asBytes}
	return group{[]*row{told, killed, leading, standing}, func(b *bench) {
		m.ready(b)
		handover := func(r *row, end func(*controller)) {
			leader := b.launch(m.prefixes)
			defer leader.Kill() // it has ended by then, if nothing failed
			leader.waitMirrors()
			standby := b.launch(m.prefixes)
			standby.during(func() {
				standing.tell(b.settled(standby))
				leading.tell(residentOf(leader.Pid()))
				began := time.Now()
				end(leader)
				standby.waitMirrors()
				r.tell(time.Since(began).Seconds())
			})
		}
		handover(told, func(c *controller) { c.during(func() {}) })
		handover(killed, func(c *controller) { c.Kill() })
	}}
}

// idling is a process with nothing to do, and then with a resync: CPU time, and no request.
func (m *million) idling() group {
	idle := &row{figure: m.figure("idle for %s, share of a core", m.idle), unit: asShare, bar: 1}
	resync := &row{figure: m.figure("resync, CPU"), unit: asTime, bar: 1}
	requests := &row{figure: m.figure("requests, idle and resync"), unit: asCount, exact: true}
	return group{[]*row{idle, resync, requests}, func(b *bench) {
		m.ready(b)
		period := m.idle + time.Minute
		c := b.launch(m.prefixes, "--resync-period="+period.String())
		c.during(func() {
			due := c.started.Add(c.waitMirrors() + period)
			c.quiet()
			b.requests(requests, 0, func() {
				share := c.shareOfCore(m.idle)
				idle.add(share, idleShare)
				if time.Until(due) < resyncSpan/2 {
					check(fmt.Errorf("the resync came before it was watched"))
				}
				b.sleep(time.Until(due) - resyncSpan/2)
				resync.add(max(0, c.shareOfCore(resyncSpan)-share)*resyncSpan.Seconds(), secondsOfResync)
			})
		})
	}}
}

const (
	// resyncSpan is for how long CPU time counts as that of the resync in its midst.
	resyncSpan = 20 * time.Second
	// secondsOfResync is how much CPU time a resync may take.
	secondsOfResync = 5
)
