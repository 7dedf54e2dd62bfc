// Command bench measures the controller from outside, against the limit, which is the API server itself: a plain
// program makes the same writes, 32 in parallel over protobuf, on the same API server in the same run.
//
//	time    a watch of its own, with the controller's selector and a connection of its own (watch.go)
//	CPU     utime and stime of the process (process.go)
//	memory  VmRSS and VmHWM (process.go); the controller itself names its live heap, and logs that it mirrors
//
// The plain program is this binary again, as a process of its own (plain.go), with the token of the controller's
// ServiceAccount. Both sides take turns.
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

	"github.com/mirror-controller/mirror-controller/e2e/cluster"
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
	var hanging []benchmark
	if n := *hangTo; n > 0 {
		hanging = []benchmark{besideHanging(n, succeeds, "15s"),
			besideHanging(2*n, refused, "30s"), besideHanging(2*n, succeeds, "45s"),
			besideHanging(5*n, refused, "60s"), besideHanging(5*n, succeeds, "90s")}
	}
	return [][]benchmark{
		{fanOut(*fanOutTo, *rounds, "1.10"), fanOut(*largeTo, *few, "1.12"), othersMetadata(*fanOutTo, *rounds),
			{"NewNamespace", newNamespace}, besideHanging(smallTargets, succeeds, "5s"),
			{"Policies", besidePolicies}},
		hanging,
		{{growthName, growth}},
		{{"WithoutTargets", withoutTargets(home)}, {"WithoutTargets/homes=2", withoutTargets(home, secondHome)},
			{"Namesakes", manyNamesakes}},
	}
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
		servePlain(ctx, os.Args[2])
		return
	}
	flag.Parse()
	if flag.NArg() > 0 {
		check(fmt.Errorf("unexpected argument %q", flag.Arg(0)))
	}
	matching := get(regexp.Compile(*only))
	printMachine(ctx)
	found := false
	for _, stage := range stages() {
		stage = slices.DeleteFunc(stage, func(m benchmark) bool { return !matching.MatchString(m.name) })
		if len(stage) > 0 {
			found = true
			measure(ctx, stage)
		}
	}
	if !found {
		check(fmt.Errorf("-run: no benchmark matches %s", *only))
	}
}

// measure starts a cluster and measures on it.
func measure(ctx context.Context, stage []benchmark) {
	lean := stage[0].name == growthName
	b := &bench{ctx: ctx, lean: lean, cluster: get(cluster.Start(ctx, cluster.Options{Lean: lean, Inlined: true}))}
	err := attempt(func() {
		b.install()
		for _, m := range stage {
			b.name = m.name
			b.progress("measuring")
			m.measure(b)
		}
	})
	if err != nil {
		err = fmt.Errorf("%s: %w", b.name, err)
	}
	check(errors.Join(err, b.cluster.Stop()))
}

// printMachine prints what is measured, and on what.
func printMachine(ctx context.Context) {
	proc := get(procfs.NewDefaultFS())
	processor, load := get(proc.CPUInfo())[0], get(proc.LoadAvg())
	version := get(exec.CommandContext(ctx, *program, "--version").CombinedOutput())
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

// alternately runs the sides of a round in turn, and returns what each measured. In each round another of them is the
// first, because each may leave the API server more or less to do.
func alternately[T any](round int, sides ...func() T) []T {
	measured := make([]T, len(sides))
	for i := range sides {
		side := (round + i) % len(sides)
		measured[side] = sides[side]()
	}
	return measured
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
