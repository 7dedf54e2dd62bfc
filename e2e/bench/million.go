package main

import (
	"context"
	"flag"
	"fmt"
	"time"
)

// Roles of this binary that measure something else than the rows of the benchmark.
const (
	millionRole = "million"
	soakRole    = "soak"
)

// millionSizes say how many copies are measured, and how often. The defaults make a million.
type millionSizes struct {
	namespaces, sources, payload int
	rounds                       int           // of a change of a source, and of a new namespace
	restarts                     int           // rounds of a start
	samples                      int           // repaired copies
	settle                       time.Duration // how long a process is left alone before its memory is read
	idle                         time.Duration // how long an idle controller is watched
	resync                       time.Duration // its --resync-period while it is
}

func (s *millionSizes) bind(fs *flag.FlagSet) {
	fs.IntVar(&s.namespaces, "namespaces", 10000, "target `namespaces`")
	fs.IntVar(&s.sources, "sources", 100, "`sources`, each with a copy in each of -namespaces")
	fs.IntVar(&s.payload, "payload", 1024, "`bytes` of data of a source")
	fs.IntVar(&s.rounds, "rounds", 7, "interleaved `rounds` of a change of a source, and of a new namespace")
	fs.IntVar(&s.restarts, "restarts", 3, "interleaved `rounds` of a start")
	fs.IntVar(&s.samples, "samples", 50, "`number` of repaired copies")
	fs.DurationVar(&s.settle, "settle", 15*time.Second, "how `long` a process is left alone before its memory is read")
	fs.DurationVar(&s.idle, "idle", 4*time.Minute, "how `long` an idle controller is watched before its resync")
	fs.DurationVar(&s.resync, "resync", 5*time.Minute, "`period` of the resync that is measured, at least 10 seconds longer than -idle")
}

func (s millionSizes) copies() int { return s.sources * s.namespaces }

func (s millionSizes) scene() scene { return scene{s.sources, s.namespaces, s.payload} }

// rungs are the numbers of namespaces at which is measured what there is, each ten times as many as the one before.
func (s millionSizes) rungs() []int {
	var rungs []int
	for _, part := range []int{1000, 100, 10, 1} {
		if n := s.namespaces / part; n > 0 && s.sources*n >= 100 {
			rungs = append(rungs, n)
		}
	}
	return rungs
}

// freshPrefix begins the names of namespaces that are created while a controller mirrors.
const freshPrefix = "fresh-"

// parseMillion reads the flags.
func parseMillion(args []string) (settings, millionSizes, error) {
	var o settings
	var s millionSizes
	fs := flag.NewFlagSet("bench million", flag.ContinueOnError)
	read := o.bind(fs, "million")
	s.bind(fs)
	within := fs.Duration("within", 75*time.Minute, "`time` for the whole run; what is not measured by then is left out")
	memory := fs.Float64("memory", 20, "`GiB` that all processes may have in memory together; beyond that the run ends")
	if err := read(args); err != nil {
		return o, s, err
	}
	if s.namespaces < 1 || s.sources < 1 || s.copies() < 100 || s.resync < s.idle+startGrace+resyncSpan/2 {
		return o, s, fmt.Errorf("there have to be 100 copies, and -resync has to be %s longer than -idle", startGrace+resyncSpan/2)
	}
	o.given = describe(fs, new(millionSizes).bind)
	if s.copies() < 1_000_000 {
		o.caution = "; the bars are for a million copies"
	}
	o.bounds = newBounds(*within, *memory)
	o.ends, o.prefix, o.lean = s.rungs(), freshPrefix, true
	o.args = []string{"--profiling"} // how the live heap is read; it costs nothing unless somebody asks
	o.env = []string{fmt.Sprintf("GOMEMLIMIT=%dMiB", goMemoryLimit(memoryLimit(s.copies())))}
	return o, s, nil
}

// newBounds are those of a run.
func newBounds(within time.Duration, gibibytes float64) bounds {
	return bounds{within: within, memory: gibibytes * (1 << 30),
		most: &row{figure: "memory of all processes of the run together, at most", unit: asGiB, bar: 1}}
}

// memoryLimit is the limit of memory that deploy/docs/operate.md advises for so many copies, in MiB.
func memoryLimit(copies int) int { return 512 + 4*max(0, copies-100_000)/1000 }

// goMemoryLimit is the GOMEMLIMIT that the chart sets for a limit, both in MiB.
func goMemoryLimit(limit int) int { return limit * 9 / 10 }

// asGiB prints large samples of memory.
func asGiB(v float64) string { return fmt.Sprintf("%.2f GiB", v/(1<<30)) }

// asSeconds prints samples of long times.
func asSeconds(v float64) string { return fmt.Sprintf("%.1f s", v) }

// million is what the rows about a million copies share. They are measured in this order, on one cluster: the first makes
// the copies, by rungs, and the others leave them as they were. Each makes them by itself if no other has.
type million struct {
	millionSizes
	ladder  []rung
	curve   []growthPoint
	version int // of the data of the source that changes
	fresh   int // namespaces that were made while a controller mirrored
}

// runMillion measures and reports.
func runMillion(ctx context.Context, args []string) error {
	o, s, err := parseMillion(args)
	if err != nil {
		return err
	}
	m := &million{millionSizes: s}
	return newBench(options{settings: o}).run(ctx, [][]group{m.groups(o.bounds)}, m.sections)
}

// groups are all rows, in the order in which they are measured.
func (m *million) groups(o bounds) []group {
	return []group{
		newMillionFill(m), newMillionIdle(m), newMillionChange(m), newMillionNamespace(m), newMillionRepair(m), newMillionFailover(m),
		newMillionRestart(m), // at last: a bare informer is the largest program of all
		total{o.most},
	}
}

// ready makes sure that all copies are there. No controller runs before and after.
func (m *million) ready(ctx context.Context, b *bench) error {
	if err := b.fill(ctx, m.scene()); err != nil {
		return err
	}
	return b.audit.skip()
}

// prefixes select all targets.
func (m *million) prefixes(b *bench) []string { return b.pool.prefixes(m.namespaces) }

// with starts a controller for all copies, leaves it alone until what it does at its start is done, calls f and stops it.
func (m *million) with(ctx context.Context, b *bench, f func(*controller) error) error {
	if err := m.ready(ctx, b); err != nil {
		return err
	}
	return b.with(ctx, m.prefixes(b), func(c *controller) error {
		if err := c.quiet(ctx); err != nil {
			return err
		}
		return f(c)
	})
}

// total has the row about all memory, which the bounds fill.
type total struct{ most *row }

func (t total) rows() []*row                          { return []*row{t.most} }
func (t total) measure(context.Context, *bench) error { return nil }
