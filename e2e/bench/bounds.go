package main

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// bounds end a run that takes too much time or memory. The figures measured until then are reported. The zero value ends none.
type bounds struct {
	within time.Duration // from the start of the run to its end, with the time to clear up
	memory float64       // bytes that all processes of the run have together
	most   *row          // gets what they had at most; nil if there are no bounds
}

// clearing is how long the end of a run takes at most: the API server writes nothing then, but it is large.
const clearing = 3 * time.Minute

// deadline ends ctx in time to clear up.
func (o bounds) deadline(ctx context.Context) (context.Context, context.CancelFunc) {
	if o.within == 0 {
		return ctx, func() {}
	}
	return context.WithTimeoutCause(ctx, o.within-min(clearing, o.within/4),
		fmt.Errorf("the run has to end within %s: what was not measured by now is left out", o.within))
}

// guardPeriod is how often the memory is looked at. At 2,000 copies a second that is some 30 MiB.
const guardPeriod = 2 * time.Second

// guard ends the context that it returns when there is too much in memory, and notes what there was at most.
func (o bounds) guard(ctx context.Context, b *bench) (context.Context, context.CancelFunc) {
	if o.most == nil {
		return ctx, func() {}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for b.sleep(ctx, guardPeriod) == nil {
			if err := o.check(b); err != nil {
				cancel(err)
			}
		}
	}()
	return ctx, func() { cancel(nil); <-ended }
}

// check compares what is in memory with the bound.
func (o bounds) check(b *bench) error {
	resident, err := b.residents()
	if err != nil {
		return err
	}
	return o.judge(resident)
}

// judge compares what processes have in memory with the bound, and notes the most.
func (o bounds) judge(resident map[string]float64) error {
	sum := 0.0
	for _, bytes := range resident {
		sum += bytes
	}
	if len(o.most.ours) == 0 || sum > o.most.ours[0] {
		o.most.ours, o.most.limit, o.most.note = []float64{sum}, []float64{o.memory}, "then "+describeMemory(resident)
	}
	if sum > o.memory {
		return fmt.Errorf("all processes together have %s in memory, and the bound is %s: %s", asGiB(sum), asGiB(o.memory), describeMemory(resident))
	}
	return nil
}

// describeMemory lists programs and what they have in memory.
func describeMemory(resident map[string]float64) string {
	var list []string
	for _, name := range slices.Sorted(maps.Keys(resident)) {
		list = append(list, name+" "+asBytes(resident[name]))
	}
	return strings.Join(list, ", ")
}

// residents returns what the processes of the run have in memory, in bytes, by the names of their programs: those of the
// cluster, this one, and whatever was started beside the cluster.
func (b *bench) residents() (map[string]float64, error) {
	out := map[string]float64{}
	files, err := filepath.Glob("/proc/[0-9]*/environ")
	for _, file := range files {
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(file))) // the pattern has digits only
		environment, _ := os.ReadFile(file)                       // it may have ended since, or be another user's
		if pid != os.Getpid() && !strings.Contains(string(environment), b.cluster.Dir()) {
			continue
		}
		command, _ := os.ReadFile(filepath.Join(filepath.Dir(file), "cmdline"))
		program, _, _ := strings.Cut(string(command), "\x00")
		if resident, _, err := memoryOf(pid); err == nil { // else it has ended
			out[filepath.Base(program)] += resident
		}
	}
	return out, err
}

// database returns the size of etcd's file, in bytes.
func (b *bench) database() (float64, error) {
	info, err := os.Stat(filepath.Join(b.cluster.Dir(), "etcd", "member", "snap", "db"))
	if err != nil {
		return 0, err
	}
	return float64(info.Size()), nil
}

// sleep returns early, with why, when ctx ends.
func (b *bench) sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
