package main

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/procfs"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/mirror-controller/mirror-controller/e2e/shipped"
)

// controller is a running controller.
type controller struct {
	*shipped.Process
	b       *bench
	started time.Time
}

// launch starts a controller whose targets are the namespaces with the prefixes.
func (b *bench) launch(prefixes []string, o shipped.RunOptions) *controller {
	for _, p := range prefixes {
		o.Args = append(o.Args, "--namespace-prefix="+p)
	}
	o.Args = append(o.Args, "--deletion-grace=0s", "--profiling") // profiling costs nothing unless somebody asks
	o.Env = append(o.Env, fmt.Sprintf("GOMEMLIMIT=%dMiB", goMemoryLimit(*growTo*growthSources)))
	started := time.Now()
	return &controller{Process: get(b.installed.Start(o)), b: b, started: started}
}

// goMemoryLimit is the GOMEMLIMIT that the chart sets for the limit of memory that deploy/docs/operate.md advises for
// so many copies, in MiB.
func goMemoryLimit(copies int) int { return (512 + 4*max(0, copies-100_000)/1000) * 9 / 10 }

// during calls f, and stops the controller then.
func (c *controller) during(f func()) {
	err := attempt(f)
	check(errors.Join(err, c.Stop(patience)))
}

// with starts a controller, waits until it mirrors, calls f and stops it.
func (b *bench) with(prefixes []string, f func(*controller)) {
	c := b.launch(prefixes, shipped.RunOptions{})
	c.during(func() {
		c.waitMirrors()
		f(c)
	})
}

// mirrorsLine is in the line that the controller logs when its caches are full, it has the lease, and it begins to
// mirror. /readyz says less: a standby is ready, too.
const mirrorsLine = `"Mirroring"`

// waitMirrors waits until the controller mirrors, and returns how long that took from its start.
func (c *controller) waitMirrors() time.Duration {
	mirrors := func(context.Context) (bool, error) {
		select {
		case <-c.Done():
			return false, fmt.Errorf("it ended with code %d", c.ExitCode())
		default:
			return strings.Contains(c.Log(), mirrorsLine), nil
		}
	}
	if err := wait.PollUntilContextTimeout(c.b.ctx, 2*time.Millisecond, patience, true, mirrors); err != nil {
		check(fmt.Errorf("the controller has not begun to mirror: %w:\n%s", err, c.Log()))
	}
	return time.Since(c.started)
}

// quiet waits until the controller does nearly nothing for two seconds: what is left is the lease.
func (c *controller) quiet() {
	for began := time.Now(); time.Since(began) < patience; {
		if c.shareOfCore(2*time.Second) <= 0.02 {
			return
		}
	}
	check(fmt.Errorf("the controller was not quiet within %s", patience))
}

// shareOfCore returns how much of a core the controller uses from now on.
func (c *controller) shareOfCore(span time.Duration) float64 {
	return cpuDuring([]int{c.Pid()}, func() { c.b.sleep(span) }).Seconds() / span.Seconds()
}

// heapLine is the line of a heap profile that says how much is allocated; behind a collection that is the live heap.
var heapLine = regexp.MustCompile(`(?m)^# HeapAlloc = (\d+)$`)

// liveHeap returns the live heap behind a collection, in bytes.
func (c *controller) liveHeap() float64 { return c.ask("/debug/pprof/heap?gc=1&debug=1", heapLine) }

// ask returns the number that the controller gives at a path.
func (c *controller) ask(path string, line *regexp.Regexp) float64 {
	found := line.FindStringSubmatch(get(c.Get(c.b.ctx, "metrics", path)))
	if found == nil {
		check(fmt.Errorf("%s has no line %s", path, line))
	}
	return get(strconv.ParseFloat(found[1], 64))
}

// cpuDuring returns the CPU time that some processes use together while f runs. It is exact to 10 ms.
func cpuDuring(pids []int, f func()) time.Duration {
	used := func() (sum float64) {
		for _, pid := range pids {
			sum += get(get(procfs.NewProc(pid)).Stat()).CPUTime()
		}
		return sum
	}
	before := used()
	f()
	return time.Duration((used() - before) * float64(time.Second))
}

// residentOf returns what a process has in memory, in bytes.
func residentOf(pid int) float64 { return float64(get(get(procfs.NewProc(pid)).NewStatus()).VmRSS) }
