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
	mirrors time.Duration // how long it took from its start until it mirrored
}

// with starts a controller whose targets are the namespaces with the prefix, waits until it mirrors, calls f and stops
// the controller.
func (b *bench) with(prefix string, f func(*controller), args ...string) {
	args = append(args, "--namespace-prefix="+prefix, "--deletion-grace=0s",
		"--profiling") // costs nothing unless somebody asks
	// The chart sets this for the limit of memory that deploy/docs/operate.md advises for so many copies.
	limit := (512 + 4*max(0, *growTo*growthSources-100_000)/1000) * 9 / 10
	o := shipped.RunOptions{Args: args, Env: []string{fmt.Sprintf("GOMEMLIMIT=%dMiB", limit)}}
	started := time.Now()
	c := &controller{Process: get(b.installed.Start(o)), b: b, started: started}
	err := attempt(func() {
		c.waitMirrors()
		f(c)
	})
	check(errors.Join(err, c.Stop(patience)))
}

// waitMirrors waits until the controller mirrors: its caches are full, and it has the Lease. /readyz says less: a
// standby is ready, too.
func (c *controller) waitMirrors() {
	mirrors := func(context.Context) (bool, error) {
		select {
		case <-c.Done():
			return false, fmt.Errorf("it ended with code %d", c.ExitCode())
		default:
			return strings.Contains(c.Log(), `"Mirroring"`), nil
		}
	}
	if err := wait.PollUntilContextTimeout(c.b.ctx, 2*time.Millisecond, patience, true, mirrors); err != nil {
		check(fmt.Errorf("the controller has not begun to mirror: %w:\n%s", err, c.Log()))
	}
	c.mirrors = time.Since(c.started)
}

// quiet waits until the controller does nearly nothing for two seconds: what is left is the Lease.
func (c *controller) quiet() {
	for began := time.Now(); c.shareOfCore(2*time.Second) > 0.02; {
		if time.Since(began) > patience {
			check(fmt.Errorf("the controller was not quiet within %s", patience))
		}
	}
}

// settled leaves the controller alone for a while and returns what it has in memory then.
func (c *controller) settled() float64 {
	c.quiet()
	c.b.sleep(*settleFor)
	return residentOf(c.Pid())
}

// shareOfCore returns how much of a core the controller uses from now on.
func (c *controller) shareOfCore(span time.Duration) float64 {
	return cpuDuring(func() { c.b.sleep(span) }, c.Pid()).Seconds() / span.Seconds()
}

// liveHeap returns the live heap in bytes: what is allocated behind a collection.
func (c *controller) liveHeap() float64 {
	profile := get(c.Get(c.b.ctx, "metrics", "/debug/pprof/heap?gc=1&debug=1"))
	found := regexp.MustCompile(`(?m)^# HeapAlloc = (\d+)$`).FindStringSubmatch(profile)
	if found == nil {
		check(errors.New("the profile has no line HeapAlloc"))
	}
	return get(strconv.ParseFloat(found[1], 64))
}

// cpuDuring returns the CPU time that some processes use together while f runs. It is exact to 10 ms.
func cpuDuring(f func(), pids ...int) time.Duration {
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
