package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

// contention is several sources that are created at the same time: from just before that until each has its first copies.
// The limit is the same for one source alone.
type contention struct {
	targets, rounds, payload int
	time                     *row
}

const (
	// competitors is the number of these sources.
	competitors = 10
	// firstCopies is the number of copies of each that the row waits for.
	firstCopies = 100
)

func newContention(s sizes) group {
	return &contention{
		targets: s.contended, rounds: s.few, payload: s.payload,
		time: &row{figure: fmt.Sprintf("first %d copies, %d sources to %s against one", firstCopies, competitors, thousands(s.contended)), unit: asTime, bar: 20},
	}
}

func (g *contention) rows() []*row { return []*row{g.time} }

func (g *contention) measure(ctx context.Context, b *bench) error {
	return interleave(g.rounds, g.time,
		func() (time.Duration, error) { return g.slowest(ctx, b, competitors) },
		func() (time.Duration, error) { return g.slowest(ctx, b, 1) })
}

// slowest returns how long the slowest of the sources takes. Copies that are still missing then are not waited for.
func (g *contention) slowest(ctx context.Context, b *bench, sources int) (slowest time.Duration, err error) {
	if err := b.lay(ctx, scene{targets: g.targets}); err != nil {
		return 0, err
	}
	w, err := b.watch(ctx, mirrorSelector)
	if err != nil {
		return 0, err
	}
	defer w.stop()
	err = b.with(ctx, b.pool.prefixes(g.targets), func(*controller) error {
		if err := b.breathe(ctx); err != nil {
			return err
		}
		names := sourceNames(sources)
		var first []*expectation
		for _, name := range names {
			first = append(first, w.expect(min(firstCopies, g.targets), holds(name, "1")))
		}
		start := time.Now()
		err := parallel(sources, names, func(name string) error { return b.createSource(ctx, name, "1", g.payload) })
		if err != nil {
			return err
		}
		for _, x := range first {
			at, err := x.wait(ctx)
			if err != nil {
				return err
			}
			slowest = max(slowest, at.Sub(start))
		}
		return nil
	})
	return slowest, err
}

// editing is a source that is edited all the time: how long its targets take to get the last content, how old the content
// of a target ever is, and how many targets get nothing before the last content.
type editing struct {
	targets, rounds, payload int
	last, oldest, leftOut    *row
}

const (
	edits   = 1000
	editGap = 10 * time.Millisecond
	// editors make the edits, so that a slow answer does not make them fewer. More would only get into each other's way.
	editors  = 4
	lastEdit = "last"
)

func newEditing(s sizes) group {
	figure := fmt.Sprintf("source edited %d times a second, %s targets", time.Second/editGap, thousands(s.fanOut))
	return &editing{
		targets: s.fanOut, rounds: s.few, payload: s.payload,
		last:    &row{figure: figure + ": to the last copy, from the last edit", unit: asTime},
		oldest:  &row{figure: figure + ": age of the oldest content", unit: asTime},
		leftOut: &row{figure: figure + ": not written before the last edit", unit: asCount, exact: true},
	}
}

func (g *editing) rows() []*row { return []*row{g.last, g.oldest, g.leftOut} }

func (g *editing) measure(ctx context.Context, b *bench) error {
	for range g.rounds {
		if err := b.lay(ctx, scene{targets: g.targets}); err != nil {
			return err
		}
		w, err := b.watch(ctx, mirrorSelector)
		if err != nil {
			return err
		}
		err = b.with(ctx, b.pool.prefixes(g.targets), func(*controller) error { return g.round(ctx, b, w) })
		w.stop()
		if err != nil {
			return err
		}
	}
	return nil
}

func (g *editing) round(ctx context.Context, b *bench, w *watcher) error {
	name := sourceNames(1)[0]
	create := func() error { return b.createSource(ctx, name, "0", g.payload) }
	if _, err := w.timed(ctx, g.targets, holds(name, "0"), create); err != nil {
		return err
	}
	edit := func(version string) error {
		_, err := b.admin.CoreV1().ConfigMaps(home).Update(ctx, newSource(name, version, g.payload, true), metav1.UpdateOptions{})
		return err
	}
	h := newHistory(payload("0", g.payload)[dataKey], payload(lastEdit, g.payload)[dataKey])
	all := w.expect(g.targets, h.see)
	began := time.Now()
	var dues []time.Time
	for i := range edits {
		dues = append(dues, began.Add(time.Duration(i)*editGap))
	}
	err := parallel(editors, dues, func(due time.Time) error {
		time.Sleep(time.Until(due))
		return edit(due.Sub(began).String())
	})
	if err != nil {
		return err
	}
	g.last.say("%d edits in %s", edits, time.Since(began).Round(time.Second))
	start := time.Now()
	if err := edit(lastEdit); err != nil {
		return err
	}
	at, err := all.wait(ctx)
	if err != nil {
		return err
	}
	g.last.ours = append(g.last.ours, at.Sub(start).Seconds())
	g.oldest.ours = append(g.oldest.ours, h.oldest.Seconds())
	g.leftOut.add(float64(g.targets-len(h.between)), 0)
	g.last.count(map[string]int{"writes": h.writes})
	return nil
}

// history is what a watch shows of a source and of its copies. In one watch the source always comes before its copies.
type history struct {
	last   string         // content
	number map[string]int // of each content of the source
	shown  []time.Time    // when each of them was shown, by number
	held   map[string]int // number of the content that each target holds
	oldest time.Duration  // the longest time for which a target held what was not the newest content any more
	writes int
	// between are the targets that were written before the last content was.
	between map[string]bool
}

// newHistory begins where all targets hold the first content.
func newHistory(first, last string) *history {
	return &history{last: last, number: map[string]int{first: 0}, shown: []time.Time{time.Now()}, held: map[string]int{}, between: map[string]bool{}}
}

// see takes note of an event, and reports whether it shows the last content in a target.
func (h *history) see(_ watch.EventType, cm *corev1.ConfigMap) bool {
	content, now := cm.Data[dataKey], time.Now()
	if cm.Namespace == home {
		h.number[content] = len(h.shown)
		h.shown = append(h.shown, now)
		return false
	}
	if next := h.held[cm.Namespace] + 1; next < len(h.shown) {
		h.oldest = max(h.oldest, now.Sub(h.shown[next]))
	}
	h.held[cm.Namespace] = h.number[content]
	h.writes++
	if content != h.last {
		h.between[cm.Namespace] = true
	}
	return content == h.last
}

// firstContact is a new source while many of its targets, which the controller has not written to before, hang: from just
// before its creation to the last copy in the healthy targets. The slowest round counts, because the first one is the
// hardest: an idle API server lends most of the places of our account to others, and returns them within some ten seconds.
type firstContact struct {
	hanging, rounds, payload int
	within                   time.Duration
	time                     *row
}

// fewHanging is the number of hanging targets in the smaller of the two rows. Beside them, smallTargets are healthy.
const fewHanging = 100

func newFirstContact(s sizes, hanging int, within time.Duration) group {
	return &firstContact{
		hanging: hanging, rounds: s.few, payload: s.payload, within: within,
		time: &row{figure: fmt.Sprintf("first contact, %d targets beside %s that hang", smallTargets, thousands(hanging)), unit: asTime, bar: 1},
	}
}

func (g *firstContact) rows() []*row {
	if g.hanging == 0 {
		return nil
	}
	return []*row{g.time}
}

func (g *firstContact) measure(ctx context.Context, b *bench) error {
	prefix := fmt.Sprintf("hang-%d-", g.hanging)
	var hanging []string
	for i := range g.hanging {
		hanging = append(hanging, fmt.Sprintf("%s%d", prefix, i))
	}
	if err := b.createNamespaces(ctx, hanging); err != nil {
		return err
	}
	h, err := b.startWebhook(ctx, prefix, hanging[0])
	if err != nil {
		return err
	}
	defer h.Close()
	var rounds []float64
	for range g.rounds {
		if err := b.lay(ctx, scene{targets: smallTargets}); err != nil {
			return err
		}
		for _, name := range hanging {
			b.touched[name] = true
		}
		took, err := g.round(ctx, b, h, prefix)
		if err != nil {
			return err
		}
		rounds = append(rounds, took.Seconds())
	}
	g.time.add(slices.Max(rounds), g.within.Seconds())
	g.time.say("the slowest of %d rounds; median %s", g.rounds, asTime(median(rounds)))
	return nil
}

// round begins with a new process: it knows nothing of any target.
func (g *firstContact) round(ctx context.Context, b *bench, h *webhook, prefix string) (took time.Duration, err error) {
	w, err := b.watch(ctx, mirrorSelector)
	if err != nil {
		return 0, err
	}
	defer w.stop()
	err = b.with(ctx, append(b.pool.prefixes(smallTargets), prefix), func(*controller) error {
		h.hold()
		defer h.release() // the process ends with no call in flight
		if err := b.breathe(ctx); err != nil {
			return err
		}
		name := sourceNames(1)[0]
		took, err = w.timed(ctx, smallTargets, inPool(holds(name, "1")), func() error { return b.createSource(ctx, name, "1", g.payload) })
		return err
	})
	return took, err
}
