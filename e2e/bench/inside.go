package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// heapLine is the line of a heap profile that says how much is allocated; behind a collection that is the live heap.
var heapLine = regexp.MustCompile(`(?m)^# HeapAlloc = (\d+)$`)

// liveHeap returns the live heap behind a collection, in bytes.
func (c *controller) liveHeap(ctx context.Context) (float64, error) {
	profile, err := c.Ask(ctx, "/debug/pprof/heap?gc=1&debug=1")
	if err != nil {
		return 0, err
	}
	found := heapLine.FindStringSubmatch(profile)
	if found == nil {
		return 0, errors.New("the heap profile does not say how much is allocated")
	}
	return strconv.ParseFloat(found[1], 64)
}

// metrics returns the metrics of the controller, by name with labels.
func (c *controller) metrics(ctx context.Context) (map[string]float64, error) {
	text, err := c.Ask(ctx, "/metrics")
	if err != nil {
		return nil, err
	}
	out := map[string]float64{}
	for line := range strings.Lines(text) {
		name, value, found := cutLast(strings.TrimSpace(line), " ")
		if !found || strings.HasPrefix(line, "#") {
			continue
		}
		if out[name], err = strconv.ParseFloat(value, 64); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func cutLast(s, separator string) (before, after string, found bool) {
	i := strings.LastIndex(s, separator)
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+len(separator):], true
}

// connections returns how many sockets a process has: those to the API server, and those on which it listens.
func connections(pid int) (n int, err error) {
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	for _, file := range files {
		if to, err := os.Readlink(file); err == nil && strings.HasPrefix(to, "socket:") { // else it is closed by now
			n++
		}
	}
	if err == nil && n == 0 {
		err = fmt.Errorf("process %d has no socket", pid)
	}
	return n, err
}

const (
	// quietPeriod is how long a process has to do nearly nothing to count as quiet.
	quietPeriod = 2 * time.Second
	// quietShare is what it may do meanwhile: the lease, of a core.
	quietShare = 0.02
)

// quiet waits until the controller has nothing to do any more, by its CPU time.
func (c *controller) quiet(ctx context.Context) error {
	for began := time.Now(); time.Since(began) < patience; {
		used, err := cpuDuring([]int{c.Pid()}, func() error {
			select {
			case <-time.After(quietPeriod):
				return nil
			case <-c.Done():
				return fmt.Errorf("the controller ended with code %d:\n%s", c.ExitCode(), c.Log())
			case <-ctx.Done():
				return ctx.Err()
			}
		})
		if err != nil || used.Seconds() <= quietShare*quietPeriod.Seconds() {
			return err
		}
	}
	return fmt.Errorf("the controller was not quiet within %s", patience)
}
