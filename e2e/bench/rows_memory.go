package main

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// Bars of the rows about memory.
const (
	liveHeapOfCopy = 819     // bytes, 0.80 KiB
	residentOfCopy = 2 << 10 // bytes
)

// memory is what the controller has in memory. Resident and peak are VmRSS and VmHWM of a process that was left alone for
// a while, once after it has made all copies and once after a start with all copies in sync. Each round has a few copies,
// many, and many with a large payload. The live heap is what Go's collector has marked in its last cycle, by the runtime's
// trace, in a process that collects after each 5% of growth.
type memory struct {
	few, many, fat scene
	starts         int
	settle         time.Duration

	payloadMade, payloadMadePeak, payload, payloadPeak *row
	copyLive, copyMade, copyResident                   *row
	neighbours, neighboursLive                         *row
}

func newMemory(s sizes) group {
	many := s.syncedScene()
	few, fat := many, many
	few.sources = max(1, many.sources/4)
	fat.payload = s.fat
	payload := fmt.Sprintf("memory, %s copies, %s against %s, ", thousands(many.copies()), asSize(s.fat), asSize(s.thin))
	growth := fmt.Sprintf("memory a copy, %s to %s copies: ", thousands(few.copies()), thousands(many.copies()))
	beside := fmt.Sprintf("memory beside %s unrelated ConfigMaps: ", thousands(many.copies()))
	return &memory{
		few: few, many: many, fat: fat, starts: s.starts, settle: s.settle,
		payloadMade:     &row{figure: payload + "made: resident", unit: asBytes, bar: 1.15},
		payloadMadePeak: &row{figure: payload + "made: peak", unit: asBytes, bar: 1.4},
		payload:         &row{figure: payload + "restarted: resident", unit: asBytes, bar: 1.15},
		payloadPeak:     &row{figure: payload + "restarted: peak", unit: asBytes, bar: 1.4},
		copyLive:        &row{figure: growth + "live heap", unit: asBytes, bar: 1},
		copyMade:        &row{figure: growth + "made: resident", unit: asBytes, bar: 1},
		copyResident:    &row{figure: growth + "restarted: resident", unit: asBytes, bar: 1},
		neighbours:      &row{figure: beside + "resident", unit: asBytes, bar: 1.05},
		neighboursLive:  &row{figure: beside + "live heap", unit: asBytes, bar: 1.05},
	}
}

func (g *memory) rows() []*row {
	return []*row{g.payloadMade, g.payloadMadePeak, g.payload, g.payloadPeak, g.copyLive, g.copyMade, g.copyResident,
		g.neighbours, g.neighboursLive}
}

func (g *memory) measure(ctx context.Context, b *bench) error {
	var few, many, fat rounds
	for range g.starts {
		for _, side := range []struct {
			scene scene
			read  *rounds
		}{{g.few, &few}, {g.fat, &fat}, {g.many, &many}} {
			if err := g.round(ctx, b, side.scene, side.read); err != nil {
				return err
			}
		}
	}
	copies := float64(g.many.copies() - g.few.copies())
	for i := range g.starts {
		g.copyMade.add((many.made.resident[i]-few.made.resident[i])/copies, residentOfCopy)
		g.copyResident.add((many.restarted.resident[i]-few.restarted.resident[i])/copies, residentOfCopy)
	}
	g.payloadMade.ours, g.payloadMade.limit = fat.made.resident, many.made.resident
	g.payloadMadePeak.ours, g.payloadMadePeak.limit = fat.made.peak, many.made.peak
	g.payload.ours, g.payload.limit = fat.restarted.resident, many.restarted.resident
	g.payloadPeak.ours, g.payloadPeak.limit = fat.restarted.peak, many.restarted.peak
	return g.measureLive(ctx, b, copies)
}

// rounds is what was read in all rounds with one scene.
type rounds struct{ made, restarted footprint }

// footprint is what processes have in memory, in bytes.
type footprint struct{ resident, peak []float64 }

// round has a process make all copies of a scene, and another start with them, and reads the memory of both.
func (g *memory) round(ctx context.Context, b *bench, s scene, read *rounds) error {
	b.progress("making %d copies of %d bytes", s.copies(), s.payload)
	if err := b.lay(ctx, s); err != nil {
		return err
	}
	c, err := b.makeCopies(ctx, s)
	if err != nil {
		return err
	}
	if err := c.stopAfter(ctx, g.read(ctx, c, &read.made)); err != nil {
		return err
	}
	return g.restart(ctx, b, s, &read.restarted)
}

// restart starts a process with the copies of a scene in sync and reads its memory.
func (g *memory) restart(ctx context.Context, b *bench, s scene, f *footprint) error {
	return b.with(ctx, b.pool.prefixes(s.targets), func(c *controller) error { return g.read(ctx, c, f) })
}

// read leaves a process alone for a while and reads its memory.
func (g *memory) read(ctx context.Context, c *controller, f *footprint) error {
	select {
	case <-time.After(g.settle):
	case <-ctx.Done():
		return ctx.Err()
	}
	resident, peak, err := memoryOf(c.Pid())
	f.resident, f.peak = append(f.resident, resident), append(f.peak, peak)
	return err
}

// measureLive fills the rows about the live heap, and those about neighbours: the copies are there already.
func (g *memory) measureLive(ctx context.Context, b *bench, copies float64) error {
	many, err := b.liveHeap(ctx, g.many)
	if err != nil {
		return err
	}
	if err := g.compareNeighbours(ctx, b, many); err != nil {
		return err
	}
	few, err := b.liveHeap(ctx, g.few)
	if err != nil {
		return err
	}
	g.copyLive.add((many-few)/copies, liveHeapOfCopy)
	return nil
}

// compareNeighbours fills the target namespaces with ConfigMaps that are none of ours, and compares the memory of processes
// that start before and after that. alone is the live heap without them.
func (g *memory) compareNeighbours(ctx context.Context, b *bench, alone float64) error {
	const label = "neighbour"
	var before, beside footprint
	for range g.starts {
		if err := g.restart(ctx, b, g.many, &before); err != nil {
			return err
		}
	}
	b.progress("making %d unrelated ConfigMaps", g.many.copies())
	err := parallel(helpers, b.pool.names(g.many.targets), func(namespace string) error {
		for i := range g.many.sources {
			cm := &corev1.ConfigMap{
				ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%d", label, i), Labels: map[string]string{label: "true"}},
				Data:       payload("1", g.fat.payload),
			}
			if _, err := b.admin.CoreV1().ConfigMaps(namespace).Create(ctx, cm, metav1.CreateOptions{}); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	for range g.starts {
		if err := g.restart(ctx, b, g.many, &beside); err != nil {
			return err
		}
	}
	live, err := b.liveHeap(ctx, g.many)
	if err != nil {
		return err
	}
	g.neighbours.ours, g.neighbours.limit = beside.resident, before.resident
	g.neighboursLive.add(live, alone)
	return b.clear(ctx, label)
}

// growthObjects is of how many sources, and of how many namespaces, the cost of one is the mean.
const growthObjects = 3000

// growth is what a source and a namespace cost by themselves. It comes last: its namespaces stay.
type growth struct {
	payload           int // bytes of data of a source
	source, namespace *row
}

func newGrowth(s sizes) group {
	return &growth{
		payload:   s.payload,
		source:    &row{figure: fmt.Sprintf("memory a source of %s: live heap", asSize(s.payload)), unit: asBytes},
		namespace: &row{figure: "memory a namespace: live heap", unit: asBytes},
	}
}

func (g *growth) rows() []*row { return []*row{g.source, g.namespace} }

func (g *growth) measure(ctx context.Context, b *bench) error {
	empty, err := b.liveHeap(ctx, scene{payload: g.payload})
	if err != nil {
		return err
	}
	sources, err := b.liveHeap(ctx, scene{sources: growthObjects, payload: g.payload})
	if err != nil {
		return err
	}
	g.source.ours = []float64{(sources - empty) / growthObjects}
	var names []string
	for i := range growthObjects {
		names = append(names, fmt.Sprintf("growth-%d", i))
	}
	if err := b.createNamespaces(ctx, names); err != nil {
		return err
	}
	namespaces, err := b.liveHeap(ctx, scene{sources: growthObjects, payload: g.payload})
	if err != nil {
		return err
	}
	g.namespace.ours = []float64{(namespaces - sources) / growthObjects}
	return nil
}

// gcLine is a line of the trace of Go's collector; the last of the three numbers is the live heap.
var gcLine = regexp.MustCompile(`(?m)^gc \d+ @.*, \d+->\d+->(\d+) MB, `)

// liveHeap returns the live heap of a process on a scene, in bytes; the trace gives it in whole MiB.
func (b *bench) liveHeap(ctx context.Context, s scene) (live float64, err error) {
	if err := b.fill(ctx, s); err != nil {
		return 0, err
	}
	err = b.with(ctx, b.pool.prefixes(s.targets), func(c *controller) error {
		time.Sleep(2 * time.Second) // the first round over everything is done
		if err := b.litter(ctx); err != nil {
			return err
		}
		lines := gcLine.FindAllStringSubmatch(c.Log(), -1)
		if len(lines) == 0 {
			return fmt.Errorf("no trace of Go's collector:\n%s", c.Log())
		}
		mib, err := strconv.Atoi(lines[len(lines)-1][1])
		live = float64(mib << 20)
		return err
	}, "GODEBUG=gctrace=1", "GOGC=5")
	return live, err
}

// litter has the controller receive some MiB that it need not keep, so that its collector runs after it has come to
// rest: a ConfigMap that carries its label and is none of its own changes again and again, and goes.
func (b *bench) litter(ctx context.Context) error {
	cm := newSource("litter", "1", 64<<10, true)
	cm.Labels[plan.DefaultLabel] = plan.CopyValue
	maps := b.admin.CoreV1().ConfigMaps(home)
	if _, err := maps.Create(ctx, cm, metav1.CreateOptions{}); err != nil {
		return err
	}
	for i := range 100 {
		cm.Data = payload(strconv.Itoa(i), 64<<10)
		if _, err := maps.Update(ctx, cm, metav1.UpdateOptions{}); err != nil {
			return err
		}
	}
	time.Sleep(tail)
	return maps.Delete(ctx, cm.Name, metav1.DeleteOptions{})
}
