// Command bench measures the controller from outside, against the limit, which is the API server itself: a plain
// program makes the same writes, 32 in parallel over protobuf, on the same API server in the same run.
//
//	time    a watch of its own, with the controller's selector and a connection of its own (watch.go)
//	CPU     utime and stime of the process (process.go)
//	memory  VmRSS and VmHWM; the live heap behind a collection (process.go)
//
// It takes the controller's own word for two things only: a line of the log that says that it mirrors, and what it
// says of its heap.
//
// The plain program is this binary again, as a process of its own (plain.go), with the token of the controller's
// ServiceAccount: its requests are authenticated, authorized, queued and audited as the controller's are. Both
// sides take turns.
//
// Each round prints a line in the format of Go's benchmarks. benchstat makes medians and intervals of them.
// BENCHMARKS.md says what each benchmark means.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/procfs"
)

// The defaults make a run of some ten minutes on two idle cores.
var (
	program       = flag.String("controller", "bin/mirror-controller", "the controller's binary")
	manifests     = flag.String("deploy", "deploy/base", "the kustomization that installs the controller")
	kubectlMirror = flag.String("plugin", "bin/kubectl-mirror", "the binary of kubectl-mirror")
	only          = flag.String("run", "", "run only benchmarks whose name matches this regular `expression`")

	rounds   = flag.Int("rounds", 7, "`rounds` of a comparison")
	few      = flag.Int("few", 3, "`rounds` of the comparisons that move the most objects")
	fanOutTo = flag.Int("fan-out", 1000, "target `namespaces` of a fan-out")
	largeTo  = flag.Int("large", 2000, "target `namespaces` of a large fan-out")
	hangTo   = flag.Int("hanging", 0, "`namespaces` that hang beside healthy ones; then twice and five times as many")
	growTo   = flag.Int("grow-to", 100, "target `namespaces` of 100 sources at the end of Growth")

	settleFor = flag.Duration("settle", 5*time.Second, "how `long` a process is left alone before its memory is read")
	idleFor   = flag.Duration("idle", 20*time.Second, "how `long` an idle controller is watched")
)

// benchmark measures something. It fails if something does not happen, not if it takes long.
type benchmark struct {
	name    string
	measure func(*bench)
}

// stages are all benchmarks. Each stage has a cluster of its own: thousands of namespaces, which nobody waits to see
// deleted, would count in every start and in all memory.
func stages() [][]benchmark {
	hanging := []benchmark{
		besideHanging(*hangTo, succeeds, "15s"),
		besideHanging(2**hangTo, refused, "30s"), besideHanging(2**hangTo, succeeds, "45s"),
		besideHanging(5**hangTo, refused, "60s"), besideHanging(5**hangTo, succeeds, "90s"),
	}
	if *hangTo == 0 {
		hanging = nil
	}
	return [][]benchmark{{
		fanOut(*fanOutTo, *rounds, "1.10"), fanOut(*largeTo, *few, "1.12"),
		{"NewNamespace", newNamespace},
		besideHanging(smallTargets, succeeds, "5s"),
	}, hanging, {
		{growthName, growth},
	}, {
		{"WithoutTargets", withoutTargets}, {"Namesakes", manyNamesakes},
	}}
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := attempt(func() { run(ctx) }); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// run is the benchmark, or the plain program that it compares the controller with.
func run(ctx context.Context) {
	if len(os.Args) == 3 && os.Args[1] == plainRole {
		servePlain(ctx, os.Args[2], os.Stdin, os.Stdout)
		return
	}
	flag.Parse()
	if flag.NArg() > 0 {
		check(fmt.Errorf("unexpected argument %q", flag.Arg(0)))
	}
	matching := get(regexp.Compile(*only))
	b := &bench{ctx: ctx, began: time.Now()}
	b.printMachine()
	for _, stage := range stages() {
		stage = slices.DeleteFunc(stage, func(m benchmark) bool { return !matching.MatchString(m.name) })
		if len(stage) > 0 {
			b.measure(stage)
		}
	}
	if b.cluster == nil {
		check(fmt.Errorf("-run: no benchmark matches %s", *only))
	}
}

// measure starts a cluster and measures on it.
func (b *bench) measure(stage []benchmark) {
	err := attempt(func() {
		b.start(stage[0].name == growthName)
		for _, m := range stage {
			b.name = m.name
			b.progress("measuring %s", m.name)
			m.measure(b)
		}
	})
	if err != nil {
		err = fmt.Errorf("%s: %w", b.name, err)
	}
	if b.cluster != nil {
		err = errors.Join(err, b.cluster.Stop())
	}
	check(err)
}

// printMachine prints what is measured, and on what.
func (b *bench) printMachine() {
	proc := get(procfs.NewDefaultFS())
	processor, load := get(proc.CPUInfo())[0], get(proc.LoadAvg())
	version := get(exec.CommandContext(b.ctx, *program, "--version").CombinedOutput())
	fmt.Printf("date: %s\ncontroller: %s\ncpu: %s\nload: %.2f before the run\n",
		time.Now().Format(time.DateOnly), strings.TrimSpace(string(version)), processor.ModelName, load.Load1)
}

// metrics are values of a line, by units as benchstat reads them.
type metrics map[string]float64

// print prints a line: what was measured in a round. The configuration is that of benchstat, such as n=1000/bar=1.10.
// A bar is the most that the median may be.
func (b *bench) print(configuration string, m metrics) {
	fmt.Printf("Benchmark%s/%s\t%s\n", b.name, configuration, testing.BenchmarkResult{N: 1, Extra: m})
}

// compare prints our time of a round, the limit's, and how many times the limit ours is.
func (b *bench) compare(configuration string, ours, limit time.Duration) {
	b.print(configuration, metrics{
		"sec/op": ours.Seconds(), "limit-sec/op": limit.Seconds(), "x-limit": ours.Seconds() / limit.Seconds(),
	})
}

// failure is an error on its way up to attempt. Where something cannot be measured, nothing is left to do on the way
// but to stop what runs, and deferred functions do that.
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
