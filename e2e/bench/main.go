// Command bench measures the controller from outside against the limit, which is the API server itself: a plain
// program that makes the same writes, 32 in parallel over protobuf, on the same API server in the same run. It
// prints one table and writes it as Markdown and as a plot. README.md says what each row means.
//
// # How it measures
//
//	time      a watch of its own, with the controller's selector and a connection of its own (watch.go)
//	requests  the API server's audit log (requests.go)
//	CPU       utime and stime in /proc/PID/stat of the controller (process.go)
//	memory    VmRSS and VmHWM in /proc/PID/status; the live heap by the trace of Go's collector (rows_memory.go)
//
// Never by the controller's own word, but for /readyz, and a line of its log that says when it begins to mirror.
//
// The plain program is this binary again, as a process of its own (plain.go), with the token of the controller's
// ServiceAccount: its requests are authenticated, authorized, queued and audited as the controller's are. Ours
// and the limit's take turns, and each row is a number of rounds. Each round has a ratio of its own, and the row is
// judged by them (row.go).
//
// # Where to find what
//
//	sizes.go     flags, and the two sets of sizes
//	scene.go     the cluster, target namespaces, sources, copies
//	process.go   the controller as a process
//	row.go       a row of the table and its verdict
//	output.go    the table as text and as Markdown; svg.go the plot
//	webhook.go   a webhook that hangs
//	rows_*.go    the rows, one file for each group
//
// Two more programs use the same parts, with flags and a table of their own:
//
//	million*.go  bench million: a million copies, and what there is with fewer of them
//	soak*.go     bench soak: half an hour of changes, and whether anything grows
//	inside.go    what the controller says of itself there: live heap, goroutines, queues
//	bounds.go    their bounds of time and memory; svg_lines.go their curves
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// run is the benchmark, or one of the programs that it compares the controller with.
func run(ctx context.Context, args []string) error {
	role, rest := "", args
	if len(args) > 0 && !strings.HasPrefix(args[0], "-") {
		role, rest = args[0], args[1:]
	}
	switch {
	case role == plainRole && len(rest) == 1:
		return servePlain(ctx, rest[0], os.Stdin, os.Stdout)
	case role == informerRole && len(rest) == 1:
		return syncInformer(ctx, rest[0], os.Stdout)
	case role == millionRole:
		return runMillion(ctx, rest)
	case role == soakRole:
		return runSoak(ctx, rest)
	}
	o, err := parse(args)
	if err != nil {
		return err
	}
	b := newBench(o)
	return b.run(ctx, stages(o.sizes), nil)
}

// stages are all rows, in the order of the table. Each stage has a cluster of its own: thousands of namespaces, which
// nobody waits to see deleted, would count in every start and in all memory. Groups that rest on the same copies follow
// each other.
func stages(s sizes) [][]group {
	return [][]group{{
		newFanOut(s), newLarge(s), newVanished(s),
		newNewNamespace(s), newManySources(s), newDuring(s),
		newRepair(s), newCPURepair(s), newCPUNamespace(s),
		newContention(s), newEditing(s), newFirstContact(s, fewHanging, 3*time.Second), newFirstContact(s, s.hanging, 10*time.Second),
	}, {
		newColdStart(s), newRestart(s), newIdle(s), newMemory(s), newGrowth(s),
	}, {
		newPlugin(s),
	}}
}

// group is a number of rows that are measured together.
type group interface {
	rows() []*row
	// measure fills the rows. It fails if something does not happen, not if it takes long.
	measure(context.Context, *bench) error
}

// run measures the groups that have a row that is asked for, and reports what was measured, also if a group failed; with
// the sections, which may be nil.
func (b *bench) run(ctx context.Context, stages [][]group, sections func() []section) error {
	ctx, cancel := b.bounds.deadline(ctx)
	defer cancel()
	var rows []*row
	var failed error
	for _, groups := range stages {
		var asked []group
		for _, g := range groups {
			if r := b.asked(g.rows()); len(r) > 0 {
				asked, rows = append(asked, g), append(rows, r...)
			}
		}
		if failed == nil && len(asked) > 0 {
			failed = b.measureAll(ctx, asked)
		}
	}
	switch {
	case len(rows) == 0:
		return fmt.Errorf("-run: no row matches %s", b.only)
	case b.cluster == nil:
		return failed
	case sections == nil:
		return errors.Join(failed, b.report(rows))
	}
	return errors.Join(failed, b.report(rows, sections()...))
}

// measureAll starts a cluster and measures the groups on it.
func (b *bench) measureAll(ctx context.Context, groups []group) (err error) {
	if err := b.start(ctx); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.cluster.Stop()) }()
	ctx, stop := b.bounds.guard(ctx, b)
	defer stop()
	for _, g := range groups {
		figure := b.asked(g.rows())[0].figure
		b.progress("measuring %s", figure)
		if err := g.measure(ctx, b); err != nil {
			if ctx.Err() != nil { // what failed then was ended
				err = context.Cause(ctx)
			}
			return fmt.Errorf("%s: %w", figure, err)
		}
	}
	return nil
}
