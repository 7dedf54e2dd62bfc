package main

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mirror-controller/mirror-controller/mirror"
)

// Bars of the rows about memory.
const (
	liveHeapOfCopy = 2 << 10 // bytes
	residentOfCopy = 4 << 10 // bytes
)

// memory is what the controller has in memory. Resident and peak are VmRSS and VmHWM of a process that was left
// alone for a while, after it has made all copies or after a start with all copies in line; the latter is the
// median of several processes. The live heap is what Go's collector has marked in its last cycle, by the runtime's
// trace, in a process that collects after each 5% of growth.
type memory struct {
	few, many, fat scene
	payloadBytes   int // of a source whose cost is measured
	starts         int
	settle         time.Duration

	payloadMade, payloadMadePeak, payload, payloadPeak *row
	copyLive, copyResident                             *row
	neighbours, neighboursLive                         *row
	sourceLive, namespaceLive                          *row
}

func newMemory(s sizes) group {
	many := s.standingScene()
	few, fat := many, many
	few.sources = max(1, many.sources/4)
	fat.payload = s.fat
	payload := fmt.Sprintf("memory, %s copies, %s against %s, ", thousands(many.copies()), asSize(s.fat), asSize(s.thin))
	growth := fmt.Sprintf("memory a copy, %s to %s copies: ", thousands(few.copies()), thousands(many.copies()))
	beside := fmt.Sprintf("memory beside %s unrelated ConfigMaps: ", thousands(many.copies()))
	return &memory{
		few: few, many: many, fat: fat, payloadBytes: s.payload, starts: s.starts, settle: s.settle,
		payloadMade:     &row{figure: payload + "made: resident", unit: asBytes, bar: 1.15},
		payloadMadePeak: &row{figure: payload + "made: peak", unit: asBytes, bar: 1.4},
		payload:         &row{figure: payload + "restarted: resident", unit: asBytes, bar: 1.15},
		payloadPeak:     &row{figure: payload + "restarted: peak", unit: asBytes, bar: 1.4},
		copyLive:        &row{figure: growth + "live heap", unit: asBytes, bar: 1},
		copyResident:    &row{figure: growth + "resident", unit: asBytes, bar: 1},
		neighbours:      &row{figure: beside + "resident", unit: asBytes, bar: 1.05},
		neighboursLive:  &row{figure: beside + "live heap", unit: asBytes, bar: 1.05},
		sourceLive:      &row{figure: fmt.Sprintf("memory a source of %s: live heap", asSize(s.payload)), unit: asBytes},
		namespaceLive:   &row{figure: "memory a namespace: live heap", unit: asBytes},
	}
}

func (g *memory) rows() []*row {
	return []*row{g.payloadMade, g.payloadMadePeak, g.payload, g.payloadPeak, g.copyLive, g.copyResident,
		g.neighbours, g.neighboursLive, g.sourceLive, g.namespaceLive}
}

func (g *memory) measure(ctx context.Context, b *bench) error {
	few, err := g.footprint(ctx, b, g.few)
	if err != nil {
		return err
	}
	thinMade, err := g.made(ctx, b, g.many)
	if err != nil {
		return err
	}
	many, err := g.footprint(ctx, b, g.many)
	if err != nil {
		return err
	}
	g.copyLive.add((many.live-few.live)/float64(g.many.copies()-g.few.copies()), liveHeapOfCopy)
	g.copyResident.add((median(many.resident)-median(few.resident))/float64(g.many.copies()-g.few.copies()), residentOfCopy)
	if err := g.compareNeighbours(ctx, b, many); err != nil {
		return err
	}
	fatMade, err := g.made(ctx, b, g.fat)
	if err != nil {
		return err
	}
	fat, err := g.footprint(ctx, b, g.fat)
	if err != nil {
		return err
	}
	g.payloadMade.ours, g.payloadMade.limit = fatMade.resident, thinMade.resident
	g.payloadMadePeak.ours, g.payloadMadePeak.limit = fatMade.peak, thinMade.peak
	g.payload.ours, g.payload.limit = fat.resident, many.resident
	g.payloadPeak.ours, g.payloadPeak.limit = fat.peak, many.peak
	return g.measureGrowth(ctx, b)
}

// compareNeighbours fills the target namespaces with ConfigMaps that are none of ours. alone is what the controller
// has in memory without them.
func (g *memory) compareNeighbours(ctx context.Context, b *bench, alone footprint) error {
	const label = "neighbour"
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
	beside, err := g.footprint(ctx, b, g.many)
	if err != nil {
		return err
	}
	g.neighbours.ours, g.neighbours.limit = beside.resident, alone.resident
	g.neighboursLive.add(beside.live, alone.live)
	return b.clear(ctx, label)
}

// growthObjects is of how many sources, and of how many namespaces, the cost of one is the mean.
const growthObjects = 3000

// measureGrowth measures what a source and a namespace cost by themselves.
func (g *memory) measureGrowth(ctx context.Context, b *bench) error {
	empty, err := g.live(ctx, b, scene{payload: g.payloadBytes})
	if err != nil {
		return err
	}
	sources, err := g.live(ctx, b, scene{sources: growthObjects, payload: g.payloadBytes})
	if err != nil {
		return err
	}
	g.sourceLive.ours = []float64{(sources - empty) / growthObjects}
	var names []string
	for i := range growthObjects {
		names = append(names, fmt.Sprintf("growth-%d", i))
	}
	if err := b.createNamespaces(ctx, names); err != nil {
		return err
	}
	namespaces, err := g.live(ctx, b, scene{sources: growthObjects, payload: g.payloadBytes})
	g.namespaceLive.ours = []float64{(namespaces - sources) / growthObjects}
	return err
}

// footprint is what one or more processes have in memory, in bytes.
type footprint struct {
	resident, peak []float64
	live           float64
}

// footprint reads the memory of processes that start with the copies of a scene in line.
func (g *memory) footprint(ctx context.Context, b *bench, s scene) (footprint, error) {
	f, err := g.restarted(ctx, b, s)
	if err != nil {
		return f, err
	}
	f.live, err = g.live(ctx, b, s)
	return f, err
}

// made has new processes make all copies of a scene, one after the other, and reads their memory. That takes long:
// they are half as many as those that are only restarted.
func (g *memory) made(ctx context.Context, b *bench, s scene) (f footprint, err error) {
	for range (g.starts + 1) / 2 {
		if err := b.lay(ctx, s); err != nil {
			return f, err
		}
		c, err := b.makeCopies(ctx, s)
		if err != nil {
			return f, err
		}
		if err := c.stopAfter(ctx, g.read(ctx, c, &f)); err != nil {
			return f, err
		}
	}
	return f, nil
}

// restarted starts processes on a scene one after the other, and reads their memory.
func (g *memory) restarted(ctx context.Context, b *bench, s scene) (f footprint, err error) {
	if err := b.fill(ctx, s); err != nil {
		return f, err
	}
	for range g.starts {
		err := b.with(ctx, b.pool.prefixes(s.targets), func(c *controller) error { return g.read(ctx, c, &f) })
		if err != nil {
			return f, err
		}
	}
	return f, nil
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

// gcLine is a line of the trace of Go's collector; the last of the three numbers is the live heap.
var gcLine = regexp.MustCompile(`(?m)^gc \d+ @.*, \d+->\d+->(\d+) MB, `)

// live returns the live heap of a process on a scene, in bytes; the trace gives it in whole MiB.
func (g *memory) live(ctx context.Context, b *bench, s scene) (live float64, err error) {
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
	cm.Labels[mirror.DefaultLabel] = mirror.CopyValue
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
	time.Sleep(afterthought)
	return maps.Delete(ctx, cm.Name, metav1.DeleteOptions{})
}
