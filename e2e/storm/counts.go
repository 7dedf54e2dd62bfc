package main

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/mirror-controller/mirror-controller/e2e/storm/model"
)

// counts are of what happened in a run.
type counts struct {
	mu         sync.Mutex
	operations map[string]int
	misses     map[string]int
	faults     map[string]int
	effects    map[string]int // of faults, by the proxies
	writes     map[string]int // of the controller, by verb
	unsure     int            // operations of which it is not known what became of them
	blocks     int            // moments in which the prune limit had to block
	edges      int            // moments in which one copy more or less might have turned its decision
	deletions  int            // of the controller
	forgiven   int            // those of them that were not, or not strictly, judged
	timed      int            // those of them that were held against the grace
	states     int            // other than users are known to have made
	doubtful   int            // those of them that users may have made all the same, which are not judged
	idleAsks   int
	plans      map[string]int // operations that kubectl mirror plan announced
	statuses   map[string]int // targets that kubectl mirror status counted, by their state
	rounds     int
	slowest    time.Duration
}

func newCounts() *counts {
	return &counts{operations: map[string]int{}, misses: map[string]int{}, faults: map[string]int{}, effects: map[string]int{}, writes: map[string]int{},
		plans: map[string]int{}, statuses: map[string]int{}}
}

func (c *counts) in(change func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change()
}

func (c *counts) operation(kind string, err error) {
	c.in(func() {
		switch {
		case errors.Is(err, errMiss):
			c.misses[kind]++
		case errors.Is(err, errUnsure):
			c.unsure++
		default:
			c.operations[kind]++
		}
	})
}

func (c *counts) fault(kind string)            { c.in(func() { c.faults[kind]++ }) }
func (c *counts) write(verb string)            { c.in(func() { c.writes[verb]++ }) }
func (c *counts) block()                       { c.in(func() { c.blocks++ }) }
func (c *counts) edge()                        { c.in(func() { c.edges++ }) }
func (c *counts) timely()                      { c.in(func() { c.timed++ }) }
func (c *counts) idle(n int)                   { c.in(func() { c.idleAsks += n }) }
func (c *counts) round()                       { c.in(func() { c.rounds++ }) }
func (c *counts) converged(took time.Duration) { c.in(func() { c.slowest = max(c.slowest, took) }) }

// predicted counts operations that were announced.
func (c *counts) predicted(operations map[model.Key]string) {
	c.in(func() {
		for _, operation := range operations {
			c.plans[operation]++
		}
	})
}

// agreed counts targets about which all agree.
func (c *counts) agreed(counts map[string]int) {
	c.in(func() {
		for state, n := range totals(counts) {
			c.statuses[state] += n
		}
	})
}

// deletion counts a deletion of the controller. excused says whether there was doubt on what it may rest.
func (c *counts) deletion(excused bool) {
	c.in(func() {
		c.deletions++
		if excused {
			c.forgiven++
		}
	})
}

// state counts a state that users are not known to have made. doubtful says whether they may have.
func (c *counts) state(doubtful bool) {
	c.in(func() {
		c.states++
		if doubtful {
			c.doubtful++
		}
	})
}

// print writes a summary.
func (c *counts) print(w io.Writer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	fmt.Fprintf(w, "%d rounds, %d operations (and %d that found nothing to act on, %d without an answer), %d faults with %d effects on requests and watches\n",
		c.rounds, sum(c.operations), sum(c.misses), c.unsure, sum(c.faults), sum(c.effects))
	for _, list := range []struct {
		what string
		of   map[string]int
	}{{"operations", c.operations}, {"found nothing", c.misses}, {"faults", c.faults}, {"effects", c.effects}, {"writes of the controller", c.writes},
		{"planned", c.plans}, {"counted", c.statuses}} {
		fmt.Fprintf(w, "%s:", list.what)
		for _, k := range slices.Sorted(maps.Keys(list.of)) {
			fmt.Fprintf(w, " %s %d,", k, list.of[k])
		}
		fmt.Fprintln(w)
	}
	fmt.Fprintf(w, "slowest to be what the model says: %s; requests without effect in times of quiet: %d; prune limits that had to block: %d, at the edge: %d\n",
		c.slowest.Round(time.Millisecond), c.idleAsks, c.blocks, c.edges)
	fmt.Fprintf(w, "deletions of copies judged: %d, of them with an excuse: %d, held against the grace: %d; states that users are not known to have made: %d, of them not judged, for they may have: %d\n",
		c.deletions, c.forgiven, c.timed, c.states, c.doubtful)
}

func sum(m map[string]int) int {
	n := 0
	for _, v := range m {
		n += v
	}
	return n
}
