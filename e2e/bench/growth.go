package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/prometheus/procfs"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	growthName = "Growth"
	// growing is the prefix of all targets.
	growing = "grow-"
	// growthSources is the number of sources, each with a copy in each target.
	growthSources = 100
	// largestAsked is the largest rung, in namespaces, at which kubectl mirror is measured: 100,000 copies.
	largestAsked = 1000
	// resyncSpan is for how long CPU time counts as that of the resync in its midst.
	resyncSpan = 20 * time.Second
)

// ladder is what the rungs of growth share.
type ladder struct {
	*bench
	names   []string   // of the targets up to this rung
	fresh   []string   // of more targets, which were made while a controller mirrored
	memory  [3]float64 // of the rung before: of the process that made the copies, of one restarted, and its live heap
	version int        // of the data of the source that changes
}

// growth is how things grow up to a million copies, in one run on one cluster. The copies are made by rungs: each has
// ten times as many as the one before, and processes of its own. What a rung costs is compared with what a plain
// program needs for the same, and with the first rung.
func growth(b *bench) {
	l := &ladder{bench: b}
	for _, name := range sourceNames(growthSources) {
		b.create(source(home, name, "1"))
	}
	for _, part := range []int{1000, 100, 10, 1} {
		if n := *growTo / part; n > 0 {
			l.climb(n)
		}
	}
}

// climb makes the copies of a rung, so that there are those in n namespaces, and measures.
func (l *ladder) climb(n int) {
	more := l.createNamespaces(fmt.Sprintf("%s%d-", growing, n), n-len(l.names))
	l.names = append(l.names, more...)
	l.name = fmt.Sprintf("Growth/n=%d", growthSources*n)
	l.progress("making copies")
	memory := [3]float64{l.filling(growthSources * len(more))}
	l.progress("a process that finds them")
	l.with(growing, func(c *controller) {
		due := c.started.Add(c.mirrors + l.resync())
		memory[1], memory[2] = c.settled(), c.liveHeap()
		l.print("restarted", metrics{"resident-B": memory[1], "live-B": memory[2]})
		if n == *growTo {
			l.idling(c, due)
		}
	}, "--resync-period="+l.resync().String())
	if l.memory[0] > 0 {
		for i, what := range []string{"made/bar=2.0KiB", "restarted/bar=2.0KiB", "live/bar=0.8KiB"} {
			l.print("memory/"+what, metrics{"B/copy": (memory[i] - l.memory[i]) / float64(growthSources*len(more))})
		}
	}
	l.memory = memory
	l.with(growing, func(c *controller) {
		c.quiet()
		l.changing(c)
		l.freshNamespaces()
		l.repairing()
	})
	for range *few {
		if n <= largestAsked {
			l.asking("plan") // the only command that reads all copies
		}
	}
	for round := range *few { // at last: a bare informer is the largest program of all
		l.starting(round)
	}
}

// starting is a controller that starts with all copies in sync, until it mirrors. The limit is the time in which a bare
// informer in a plain program has the same ConfigMaps, without the start of its process: the ratio leaves out 0.3 s of
// ours.
func (l *ladder) starting(round int) {
	took := alternately(round, func() (took time.Duration) {
		l.sleep(pause)
		l.with(growing, func(c *controller) { took = c.mirrors })
		return took
	}, l.informerSync)
	const start = 300 * time.Millisecond
	l.print("start/bar=1.80", metrics{"sec/op": took[0].Seconds(), "limit-sec/op": took[1].Seconds(),
		"x-limit": max(0, took[0]-start).Seconds() / took[1].Seconds()})
}

// filling has a process make the copies in new namespaces, and returns what it has in memory then. The limit is a
// create by the plain program.
func (l *ladder) filling(made int) (resident float64) {
	w := l.watch(mirrorSelector)
	l.with(growing, func(c *controller) {
		took := w.shown(func() {}, made, copies("", "", "1"))[0].Sub(c.started)
		w.Stop() // what it decodes takes memory
		resident = c.settled()
		database := get(os.Stat(filepath.Join(l.cluster.Dir(), "etcd", "member", "snap", "db")))
		l.print("made/bar=2.2GiB", metrics{
			"sec/op": took.Seconds(), "sec/copy": took.Seconds() / float64(made), "resident-B": resident,
			"apiserver-B": residentOf(l.servers[0]), "etcd-B": residentOf(l.servers[1]), "database-B": float64(database.Size()),
		})
	})
	o := order{Op: opCreate, Names: numbered("plain-", max(1, 1000/len(l.names))), Namespaces: l.names, Version: "1"}
	l.print("made/limit", metrics{"sec/copy": l.limit(o).took.Seconds() / float64(o.size())})
	l.remove(o)
	return resident
}

// remove has the plain program delete what it wrote for an order.
func (l *ladder) remove(o order) {
	o.Op, o.Version = opDelete, ""
	l.limit(o)
}

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
		check(errors.New("the resync came before it was watched"))
	}
	l.sleep(time.Until(due) - resyncSpan/2)
	cpu := max(0, c.shareOfCore(resyncSpan)-share) * resyncSpan.Seconds()
	l.print("resync/bar=5s", metrics{"cpu-sec/op": cpu})
}

// changing is a change of one source, to its last copy; the limit is as many updates by the plain program. The data
// begin as the first ones did: what waits for copies in a fresh namespace takes any version.
func (l *ladder) changing(c *controller) {
	targets := slices.Concat(l.names, l.fresh)
	theirs := order{Op: opCreate, Names: []string{"changed"}, Namespaces: targets, Version: "1-"}
	l.limit(theirs)
	for round := range *few {
		l.version++
		theirs.Op, theirs.Version = opUpdate, fmt.Sprintf("1-%d-", l.version)
		ours := theirs
		ours.Names = sourceNames(1)
		uses := alternately(round, func() use { return c.publish(ours) }, func() use { return l.limit(theirs) })
		l.compare("change/bar=1.15", uses[0].took, uses[1].took)
		l.compareCPU("change/bar=1.75", len(targets), uses[0], uses[1])
	}
	l.remove(theirs)
}

// freshNamespaces is a new namespace, to the last of its copies, against as many creates by the plain program.
func (l *ladder) freshNamespaces() {
	w := l.watch(mirrorSelector)
	defer w.Stop()
	for round := range *rounds {
		suffix := fmt.Sprintf("fresh-%d-%d-", len(l.names), round)
		took := alternately(round, func() time.Duration {
			l.sleep(pause)
			return w.timed(growthSources, copies(growing+suffix, "", "1"), func() {
				l.fresh = append(l.fresh, l.createNamespaces(growing+suffix, 1)...)
			})
		}, func() time.Duration {
			names := l.createNamespaces("plain-"+suffix, 1)
			return l.limit(order{Op: opCreate, Names: sourceNames(growthSources), Namespaces: names, Version: "1"}).took
		})
		l.compare("namespace/bar=1.25", took[0], took[1])
	}
}

// repairing is from the outside watch showing a damage to a copy to its showing the repair. The limit is one update,
// from just before it until it has been answered and shown by a watch; it takes turns with the damages. Each sample has
// a copy of its own: a copy that is damaged again and again is restored ever more slowly.
func (l *ladder) repairing() {
	w, plain := l.watch(mirrorSelector), l.watch(plainSelector)
	defer w.Stop()
	defer plain.Stop()
	for i := range 2 * samples {
		at, name := l.names[i*len(l.names)/(2*samples)], sourceNames(growthSources)[1+i%(growthSources-1)]
		limit := l.plainUpdate(plain, at)
		l.sleep(breath)
		cm := get(l.maps(at).Get(l.ctx, name, metav1.GetOptions{}))
		op, version, damage := opDelete, "", func() { l.delete(cm) }
		if i%2 == 0 {
			cm.Data = data("damaged")
			op, version, damage = opUpdate, "damaged", func() { l.update(cm) }
		}
		shown := w.shown(damage, 1, copies(at, name, version), copies(at, name, "1"))
		l.compare("repair/"+op+"/bar=2.00", shown[1].Sub(shown[0]), limit)
		l.sleep(breath)
	}
}

// plainUpdate is a sample of the limit.
func (l *ladder) plainUpdate(w watcher, namespace string) time.Duration {
	cm := order{Version: "1"}.copyAt(namespace, "reference")
	created := l.create(cm)
	l.sleep(breath)
	cm.Data = data("2")
	cm.ResourceVersion = created.ResourceVersion
	var answered time.Time
	start := time.Now()
	shown := w.timed(1, copies(namespace, "", "2"), func() {
		l.update(cm)
		answered = time.Now()
	})
	l.delete(cm)
	return max(shown, answered.Sub(start))
}

// asking is what `kubectl mirror` takes in a cluster that is in sync. A person waits for it, on a laptop.
func (l *ladder) asking(args ...string) {
	cmd := l.cluster.Command(l.ctx, *kubectlMirror,
		append(args, "--namespace-prefix="+growing, "--kubeconfig="+l.cluster.AdminKubeconfig())...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	began := time.Now()
	check(cmd.Start())
	// The kernel's own account, ru_maxrss, begins with the memory of the parent.
	process, peak := get(procfs.NewProc(cmd.Process.Pid)), 0.0
	for {
		now, err := process.NewStatus()
		if err != nil || now.VmHWM == 0 { // a process that has ended has no memory
			break
		}
		peak = float64(now.VmHWM)
		time.Sleep(time.Millisecond)
	}
	took := time.Since(began)
	if err := cmd.Wait(); err != nil { // also if the cluster is not in sync
		check(fmt.Errorf("kubectl mirror %s: %w: %s", args[0], err, stderr.Bytes()))
	}
	l.print("plugin/"+args[0]+"/bar=10s,300MiB", metrics{"sec/op": took.Seconds(), "peak-B": peak})
}
