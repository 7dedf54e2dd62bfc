package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/mirror-controller/mirror-controller/e2e/cluster"
	"github.com/mirror-controller/mirror-controller/e2e/shipped"
)

// readyLine is in the line that the controller logs when its caches are full, it has the lease, and it begins to mirror.
// /readyz says less: a standby is ready, too.
const readyLine = "Mirroring"

// healthLine is the line that says where the controller serves /readyz.
var healthLine = regexp.MustCompile(`"Serving health" address="([^"]+)"`)

// controller is a running controller.
type controller struct {
	*shipped.Process
	started time.Time
	ready   *lineSeen
}

// launch starts a controller whose targets are the namespaces with the prefixes. Options of its environment come as
// NAME=value.
func (b *bench) launch(prefixes []string, env ...string) (*controller, error) {
	return b.launchArgs(prefixFlags(prefixes), env...)
}

// prefixFlags are the flags for targets with the prefixes.
func prefixFlags(prefixes []string) []string {
	var flags []string
	for _, p := range prefixes {
		flags = append(flags, "--namespace-prefix="+p)
	}
	return flags
}

// launchArgs is launch with any arguments besides those that are shipped.
func (b *bench) launchArgs(args []string, env ...string) (*controller, error) {
	ready := &lineSeen{line: readyLine, seen: make(chan struct{})}
	started := time.Now()
	p, err := b.installed.Start(shipped.RunOptions{Args: append(append(args, "--deletion-grace=0s"), b.args...), Env: slices.Concat(b.env, env), Log: ready})
	return &controller{Process: p, started: started, ready: ready}, err
}

// launchReady is launch, and waits until the controller mirrors.
func (b *bench) launchReady(ctx context.Context, prefixes []string, env ...string) (*controller, error) {
	c, err := b.launch(prefixes, env...)
	if err != nil {
		return nil, err
	}
	if _, err := c.waitReady(ctx); err != nil {
		return nil, c.stopAfter(ctx, err)
	}
	return c, nil
}

// with starts a controller, waits until it mirrors, calls f and stops it.
func (b *bench) with(ctx context.Context, prefixes []string, f func(*controller) error, env ...string) error {
	c, err := b.launchReady(ctx, prefixes, env...)
	if err != nil {
		return err
	}
	return c.stopAfter(ctx, f(c))
}

// waitReady returns how long it took from the start of the process until it mirrored.
func (c *controller) waitReady(ctx context.Context) (time.Duration, error) {
	select {
	case <-c.ready.seen:
		return c.ready.at.Sub(c.started), nil
	case <-c.Done():
		return 0, fmt.Errorf("the controller ended with code %d:\n%s", c.ExitCode(), c.Log())
	case <-time.After(patience):
		return 0, fmt.Errorf("the controller has not begun to mirror after %s:\n%s", patience, c.Log())
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

// readyPoll is how often /readyz is asked while a start is timed.
const readyPoll = 10 * time.Millisecond

// waitReadyz returns how long it took from the start of the process until /readyz said yes.
func (c *controller) waitReadyz(ctx context.Context) (time.Duration, error) {
	err := wait.PollUntilContextTimeout(ctx, readyPoll, patience, true, func(ctx context.Context) (bool, error) {
		select {
		case <-c.Done():
			return false, fmt.Errorf("the controller ended with code %d:\n%s", c.ExitCode(), c.Log())
		default:
		}
		address := healthLine.FindStringSubmatch(c.Log())
		if address == nil {
			return false, nil
		}
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address[1]+"/readyz", nil)
		if err != nil {
			return false, err
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return false, err
		}
		return resp.StatusCode == http.StatusOK, resp.Body.Close()
	})
	ready := time.Since(c.started)
	if err != nil {
		err = fmt.Errorf("the controller was not ready after %s: %w\n%s", ready, err, c.Log())
	}
	return ready, err
}

// stop ends the controller also if ctx has ended.
func (c *controller) stop(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()
	return c.Stop(ctx)
}

// stopAfter is stop after something that may have failed.
func (c *controller) stopAfter(ctx context.Context, err error) error {
	return errors.Join(err, c.stop(ctx))
}

// lineSeen is a writer that waits for a line.
type lineSeen struct {
	line string
	mu   sync.Mutex
	text []byte
	at   time.Time
	seen chan struct{} // closed when it was
}

func (l *lineSeen) Write(p []byte) (int, error) {
	now := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.at.IsZero() {
		if l.text = append(l.text, p...); bytes.Contains(l.text, []byte(l.line)) {
			l.at, l.text = now, nil
			close(l.seen)
		}
	}
	return len(p), nil
}

// tick is the unit of times in /proc/PID/stat. It is the same on all platforms that Go runs on.
const tick = 10 * time.Millisecond

// cpuOf returns the CPU time that a process has used, in user mode and in the kernel. It is exact to a tick.
func cpuOf(pid int) (time.Duration, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	// The name, in brackets, may contain anything. utime and stime are the 12th and 13th field behind it.
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	if len(fields) < 13 {
		return 0, fmt.Errorf("/proc/%d/stat: %q", pid, stat)
	}
	var sum time.Duration
	for _, field := range fields[11:13] {
		ticks, err := strconv.Atoi(field)
		if err != nil {
			return 0, fmt.Errorf("/proc/%d/stat: %w", pid, err)
		}
		sum += time.Duration(ticks) * tick
	}
	return sum, nil
}

// cpuDuring returns the CPU time that some processes use together while f runs.
func cpuDuring(pids []int, f func() error) (time.Duration, error) {
	var used time.Duration
	for _, pid := range pids {
		before, err := cpuOf(pid)
		if err != nil {
			return 0, err
		}
		used -= before
	}
	if err := f(); err != nil {
		return 0, err
	}
	for _, pid := range pids {
		after, err := cpuOf(pid)
		if err != nil {
			return 0, err
		}
		used += after
	}
	return used, nil
}

// serverPids returns the processes of the cluster's API server and etcd.
func (b *bench) serverPids() ([]int, error) {
	var pids []int
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, file := range files {
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(file))) // the pattern has digits only
		command, _ := os.ReadFile(file)                           // it may have ended since
		program, _, _ := strings.Cut(string(command), "\x00")
		environment, _ := os.ReadFile(filepath.Join(filepath.Dir(file), "environ"))
		if (program == b.cluster.Bin(cluster.APIServer) || program == b.cluster.Bin(cluster.Etcd)) && strings.Contains(string(environment), b.cluster.Dir()) {
			pids = append(pids, pid)
		}
	}
	if err == nil && len(pids) != 2 {
		err = fmt.Errorf("%d processes are the API server or etcd, want 2", len(pids))
	}
	return pids, err
}

// memoryOf returns what a process has in memory, and the most that it ever had there, in bytes.
func memoryOf(pid int) (resident, peak float64, err error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, 0, err
	}
	kilobytes := func(name string, into *float64) {
		_, value, _ := strings.Cut(string(status), "\n"+name+":")
		_, scanErr := fmt.Sscanf(value, "%f kB", into)
		*into *= 1024
		err = errors.Join(err, scanErr)
	}
	kilobytes("VmRSS", &resident)
	kilobytes("VmHWM", &peak)
	return resident, peak, err
}
