package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"time"
)

// soakSizes say how long the soak goes on, and with how much.
type soakSizes struct {
	duration                     time.Duration
	namespaces, sources, payload int
	churn                        time.Duration // between two times of rest
	cores                        float64       // how busy everything together is meanwhile
	seed                         uint64
}

func (s *soakSizes) bind(fs *flag.FlagSet) {
	fs.DurationVar(&s.duration, "duration", 30*time.Minute, "how `long` things change")
	fs.IntVar(&s.namespaces, "namespaces", 200, "target `namespaces`")
	fs.IntVar(&s.sources, "sources", 50, "`sources`, each with a copy in each of -namespaces")
	fs.IntVar(&s.payload, "payload", 1024, "`bytes` of data of a source")
	fs.DurationVar(&s.churn, "churn", 45*time.Second, "how `long` things change before each time of rest, in which is measured")
	fs.Float64Var(&s.cores, "cores", 1, "how many `cores` the control plane, the controller and this program keep busy together")
	fs.Uint64Var(&s.seed, "seed", 1, "`seed` of the random changes")
}

// parseSoak reads the flags.
func parseSoak(args []string) (settings, soakSizes, error) {
	var o settings
	var s soakSizes
	fs := flag.NewFlagSet("bench soak", flag.ContinueOnError)
	read := o.bind(fs, "soak")
	s.bind(fs)
	memory := fs.Float64("memory", 20, "`GiB` that all processes may have in memory together; beyond that the run ends")
	if err := read(args); err != nil {
		return o, s, err
	}
	if s.duration < 6*s.churn || s.namespaces < 1 || s.sources < 1 {
		return o, s, errors.New("-duration has to be at least six times -churn: two times of rest in each third")
	}
	o.given = describe(fs, new(soakSizes).bind)
	if s.duration < 30*time.Minute {
		o.caution = "; the bars are for half an hour"
	}
	o.bounds = newBounds(0, *memory)
	o.ends = []int{s.namespaces}
	o.prefix = soakPrefix
	o.args = []string{"--profiling"}
	o.env = []string{fmt.Sprintf("GOMEMLIMIT=%dMiB", goMemoryLimit(memoryLimit(s.sources*s.namespaces)))}
	return o, s, nil
}

// soak is one controller while sources, copies, namespaces and foreign ConfigMaps change all the time. Every now and then all changes
// are taken back and everything comes to rest: then it is compared with the model of the storm, and measured. The figures have
// to be the same each time, because the numbers of all objects are.
type soak struct {
	soakSizes
	began time.Time
	rests []sample
	busy  []sample

	live, goroutines, connections, sync *row
	resident, changes                   *row
}

// sample is what the controller has at a time.
type sample struct {
	at                      time.Duration
	live                    float64 // bytes, behind a collection; not measured while it is busy
	resident                float64
	goroutines, connections float64
	waiting                 float64 // keys in both queues
}

// liveHeapBar is how many times the largest live heap of the middle third that of the last third may be.
const liveHeapBar = 1.05

func newSoak(s soakSizes) *soak {
	figure := fmt.Sprintf("%s of changes to %s copies: ", s.duration, thousands(s.sources*s.namespaces))
	return &soak{
		soakSizes:   s,
		live:        &row{figure: figure + "largest live heap, last third against middle third", unit: asBytes, bar: liveHeapBar},
		goroutines:  &row{figure: figure + "goroutines at rest, last third against middle third", unit: asCount, exact: true},
		connections: &row{figure: figure + "connections at rest, last third against middle third", unit: asCount, exact: true},
		sync:        &row{figure: figure + "places out of sync at the end, by the model", unit: asCount, exact: true},
		resident:    &row{figure: figure + "largest resident memory, last third against middle third", unit: asBytes},
		changes:     &row{figure: figure + "changes", unit: asCount},
	}
}

func (s *soak) rows() []*row {
	return []*row{s.live, s.goroutines, s.connections, s.sync, s.resident, s.changes}
}

// runSoak measures and reports.
func runSoak(ctx context.Context, args []string) error {
	o, sizes, err := parseSoak(args)
	if err != nil {
		return err
	}
	s := newSoak(sizes)
	return newBench(options{settings: o}).run(ctx, [][]group{{s, total{o.bounds.most}}}, s.sections)
}

func (s *soak) measure(ctx context.Context, b *bench) error {
	if err := b.lay(ctx, scene{sources: s.sources, targets: s.namespaces, payload: s.payload}); err != nil {
		return err
	}
	c, err := b.makeCopies(ctx, b.laid)
	if err != nil {
		return err
	}
	err = s.goOn(ctx, b, c)
	s.judge()
	return c.stopAfter(ctx, err)
}

// goOn has things change, and come to rest, until the time is over.
func (s *soak) goOn(ctx context.Context, b *bench, c *controller) error {
	s.began = time.Now()
	churn := newChurn(b, s.soakSizes)
	for {
		if err := s.change(ctx, b, c, churn); err != nil {
			return err
		}
		wrong, err := s.rest(ctx, b, c, churn)
		if err != nil {
			return err
		}
		s.changes.ours = []float64{float64(churn.made.Load())}
		s.changes.besides = churn.kinds()
		if time.Since(s.began) >= s.duration {
			s.sync.add(float64(len(wrong)), 0)
			return errors.Join(wrong[:min(len(wrong), 10)]...)
		}
		if len(wrong) > 0 {
			return fmt.Errorf("out of sync after %s: %w", restPatience, errors.Join(wrong[:min(len(wrong), 10)]...))
		}
	}
}

// change has things change for a while, at a rate that keeps as many cores busy as are asked for, and notes meanwhile what the
// controller has.
func (s *soak) change(ctx context.Context, b *bench, c *controller, churn *churn) error {
	changing, cancel := context.WithTimeout(ctx, s.churn)
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- churn.run(changing) }()
	pids := append([]int{c.Pid()}, b.servers...)
	for changing.Err() == nil {
		began := time.Now()
		used, err := cpuDuring(append(pids, ownPid), func() error { _ = b.sleep(changing, pacePeriod); return nil })
		if err != nil {
			return err
		}
		churn.pace(s.cores, used.Seconds()/time.Since(began).Seconds())
		now, err := s.read(ctx, c, false)
		if err != nil {
			return err
		}
		s.busy = append(s.busy, now)
	}
	return <-ended
}

// rest waits until everything is in sync and the controller is quiet, and measures. It returns what is not in sync in the end.
func (s *soak) rest(ctx context.Context, b *bench, c *controller, churn *churn) (wrong []error, err error) {
	wrong, err = b.settled(ctx, b.pool.prefixes(s.namespaces))
	if err != nil || len(wrong) > 0 {
		return wrong, err
	}
	if err := c.quiet(ctx); err != nil {
		return nil, err
	}
	// Events of sources are put off for ten seconds.
	if err := b.sleep(ctx, restSpan); err != nil {
		return nil, err
	}
	now, err := s.read(ctx, c, true)
	if err != nil {
		return nil, err
	}
	s.rests = append(s.rests, now)
	b.progress("%s of %s: %s changes; live heap %s, resident %s, %.0f goroutines, %.0f connections", now.at.Round(time.Second), s.duration,
		thousands(int(churn.made.Load())), asBytes(now.live), asBytes(now.resident), now.goroutines, now.connections)
	return nil, nil
}

// restSpan is how long everything rests before it is measured.
const restSpan = 12 * time.Second

// read reads what the controller has; with the live heap, it collects before.
func (s *soak) read(ctx context.Context, c *controller, heap bool) (now sample, err error) {
	now.at = time.Since(s.began)
	if heap {
		if now.live, err = c.liveHeap(ctx); err != nil {
			return now, err
		}
	}
	open, err := connections(c.Pid())
	if err != nil {
		return now, err
	}
	now.connections = float64(open)
	metrics, err := c.metrics(ctx)
	if err != nil {
		return now, err
	}
	now.goroutines = metrics["go_goroutines"]
	now.waiting = metrics[`workqueue_depth{name="mirror"}`] + metrics[`workqueue_depth{name="mirror-sources"}`]
	now.resident, _, err = memoryOf(c.Pid())
	return now, err
}
