// Command bench measures the controller from outside, against the limit, which is the API server itself: a plain
// program makes the same writes, 32 in parallel over protobuf, on the same API server in the same run.
//
//	time      a watch of its own, with the controller's selector and a connection of its own (watch.go)
//	requests  the API server's audit log (requests.go)
//	CPU       utime and stime of the process (process.go)
//	memory    VmRSS and VmHWM; the live heap behind a collection (process.go)
//
// It takes the controller's own word for two things only: a line of the log that says that it mirrors, and the heap
// profile.
//
// The plain program is this binary again, as a process of its own (plain.go), with the token of the controller's
// ServiceAccount: its requests are authenticated, authorized, queued and audited as the controller's are. Both
// sides take turns. Each round has a ratio of its own, and the row is judged by these ratios (row.go).
//
// rows_*.go have the rows, one file for each group, million*.go those about a million copies, with the picture of
// growth.go. BENCHMARKS.md says what each row means.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := attempt(func() { run(ctx, os.Args[1:]) })
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// run is the benchmark, or the plain program that it compares the controller with.
func run(ctx context.Context, args []string) {
	if len(args) == 2 && args[0] == plainRole {
		servePlain(ctx, args[1], os.Stdin, os.Stdout)
		return
	}
	o := get(parse(args))
	b := &bench{options: o, ctx: ctx, machine: machine(), began: time.Now()}
	check(b.run(stages(o.sizes)))
}

// stages are all rows, in the order of the table. Each stage has a cluster of its own: thousands of namespaces, which
// nobody waits to see deleted, would count in every start and in all memory.
func stages(s sizes) [][]group {
	if s.million > 0 {
		return [][]group{(&million{sizes: s}).groups()}
	}
	return [][]group{{
		newFanOut(s), newLarge(s), newNewNamespace(), newRepair(),
		newHanging(s, fewHanging, admissionregistrationv1.Ignore, 3*time.Second), newSlowReads(s),
	}, {
		newHanging(s, s.hanging, admissionregistrationv1.Ignore, 10*time.Second),
		newHanging(s, 2*s.hanging, admissionregistrationv1.Fail, 30*time.Second),
		newHanging(s, 2*s.hanging, admissionregistrationv1.Ignore, 45*time.Second),
		newHanging(s, 5*s.hanging, admissionregistrationv1.Fail, time.Minute),
		newHanging(s, 5*s.hanging, admissionregistrationv1.Ignore, 90*time.Second),
	}, {
		newRestart(s), newIdle(s), newMemory(s), newChurn(s), newGrowth(),
	}, {
		newPlugin(s),
	}}
}

// group is a number of rows that are measured together. measure fails if something does not happen, not if it takes long.
type group struct {
	rows    []*row
	measure func(*bench)
}

// run measures the groups that have a row that is asked for, and reports what was measured, also if a group failed.
func (b *bench) run(stages [][]group) (failed error) {
	var rows []*row
	for _, groups := range stages {
		var asked []group
		for _, g := range groups {
			if r := b.asked(g.rows); len(r) > 0 {
				asked, rows = append(asked, group{r, g.measure}), append(rows, r...)
			}
		}
		if failed == nil && len(asked) > 0 {
			failed = b.measure(asked)
		}
	}
	switch {
	case len(rows) == 0:
		return fmt.Errorf("-run: no row matches %s", b.only)
	case b.cluster == nil:
		return failed
	}
	return errors.Join(failed, attempt(func() { b.report(rows) }))
}

// measure starts a cluster and measures the groups on it.
func (b *bench) measure(groups []group) error {
	figure := "start"
	err := attempt(func() {
		b.start()
		for _, g := range groups {
			figure = g.rows[0].figure
			b.progress("measuring %s", figure)
			g.measure(b)
		}
	})
	if err != nil {
		err = fmt.Errorf("%s: %w", figure, err)
	}
	if b.cluster != nil {
		err = errors.Join(err, b.cluster.Stop())
	}
	return err
}

// failure is an error on its way up to attempt. Where something cannot be measured, nothing is left to do on the way but to
// stop what runs, and deferred functions do that.
type failure struct{ error }

// check fails with the error, if there is one.
func check(err error) {
	if err != nil {
		panic(failure{err})
	}
}

// get is check, and returns the value.
func get[T any](value T, err error) T {
	check(err)
	return value
}

// attempt returns the error with which f fails.
func attempt(f func()) (err error) {
	defer func() {
		switch r := recover().(type) {
		case nil:
		case failure:
			err = r.error
		default:
			panic(r)
		}
	}()
	f()
	return nil
}
