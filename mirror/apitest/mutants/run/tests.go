package main

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/mirror-controller/mirror-controller/mirror/apitest/mutants"
)

const (
	// firstTests is for how long the first process for a mutant runs tests, about,
	// and growth is how many times as long each further one does.
	firstTests = 2 * time.Second
	growth     = 5
	// A process has this much time of a core, and slowness times what its tests took
	// alone; and waiting times as much by the clock, for one that waits for ever.
	patience = 10 * time.Second
	slowness = 2
	waiting  = 10
	// maxMemory is how many KiB of addresses a process can have: an endless loop
	// may append for ever.
	maxMemory = 8 << 20
)

// tests is the program with the tests of a package.
type tests struct {
	program, dir string
	patience     time.Duration
	all          []*test

	mu    sync.Mutex
	kills map[string]map[*test]int // how many mutants a test noticed, by their place
}

type test struct {
	name    string
	took    time.Duration
	reaches map[int]bool // mutants that make a difference to it
}

// test has the tests of a package look for mutants.
func (c *check) test(p listed, numbers []int) error {
	if len(numbers) == 0 {
		return nil
	}
	t := &tests{dir: p.Dir, patience: c.patience, kills: map[string]map[*test]int{}}
	t.program = filepath.Join(c.out, "program.test")
	if err := os.Remove(t.program); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	overlay := filepath.Join(c.out, "overlay.json")
	args := []string{"test", "-c", "-o", t.program, "-overlay", overlay, p.ImportPath}
	build := exec.CommandContext(context.Background(), "go", args...)
	if output, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("%w\n%s", err, output)
	}
	if _, err := os.Stat(t.program); err != nil {
		return nil // there are no tests
	}
	alone := filepath.Join(c.out, strings.ReplaceAll(p.ImportPath, "/", "_")+".json")
	if err := t.runAloneOnce(alone, c.processes); err != nil {
		return err
	}
	isSingle := len(c.alive) == 1
	var killed int
	c.print("%s has %d tests", p.ImportPath, len(t.all))
	var group errgroup.Group
	group.SetLimit(c.processes)
	for _, number := range numbers {
		group.Go(func() error {
			r := t.find(number, c.mutants[number].place, c.bound)
			t.mu.Lock()
			defer t.mu.Unlock()
			if isSingle {
				fmt.Fprintln(c.stdout, r.output)
			}
			c.record(p, number, r)
			if r.isReached {
				c.reached[number] = true
			}
			if r.isUnasked {
				c.unasked[number] = true
			}
			if r.isKilled {
				delete(c.alive, number)
				killed++
			}
			if r.isLate {
				c.late++
			}
			return nil
		})
	}
	err := group.Wait()
	c.print("%s killed %d mutants of %d", p.ImportPath, killed, len(numbers))
	return err
}

// record appends a result to a file: a run may take an hour.
func (c *check) record(p listed, number int, r result) {
	becomes := "survives"
	switch {
	case r.isKilled:
		becomes = "killed"
	case r.isUnasked:
		becomes = "undecided"
	}
	fmt.Fprintf(c.results, "%s\t%s\t%s\n", p.ImportPath, becomes, c.mutants[number])
}

// alone is what the tests of a program have shown when each ran alone.
type alone struct {
	Program string // its hash
	Tests   []testAlone
}

type testAlone struct {
	Name    string
	Took    time.Duration
	Reaches []int
}

// runAloneOnce is runAlone, unless the file holds the results of this very
// program: those of package mirror take minutes.
func (t *tests) runAloneOnce(file string, processes int) error {
	program, err := os.ReadFile(t.program)
	if err != nil {
		return err
	}
	now := alone{Program: fmt.Sprintf("%x", sha256.Sum256(program))}
	var before alone
	if kept, err := os.ReadFile(file); err == nil && json.Unmarshal(kept, &before) == nil &&
		before.Program == now.Program {
		for _, b := range before.Tests {
			one := &test{name: b.Name, took: b.Took, reaches: map[int]bool{}}
			for _, number := range b.Reaches {
				one.reaches[number] = true
			}
			t.all = append(t.all, one)
		}
		return nil
	}
	if err := t.runAlone(filepath.Dir(file), processes); err != nil {
		return err
	}
	for _, one := range t.all {
		reaches := slices.Sorted(maps.Keys(one.reaches))
		now.Tests = append(now.Tests, testAlone{one.name, one.took, reaches})
	}
	kept, err := json.Marshal(now)
	if err != nil {
		return err
	}
	return os.WriteFile(file, kept, 0o644)
}

// runAlone runs each test alone, without a mutation, to see which ones would make
// a difference to it.
func (t *tests) runAlone(out string, processes int) error {
	output, err := t.process(context.Background(), 0, "", "-test.list", "^(Test|Example|Fuzz)")
	if err != nil {
		return fmt.Errorf("%w\n%s", err, output)
	}
	var group errgroup.Group
	group.SetLimit(processes)
	for name := range strings.FieldsSeq(output) {
		one := &test{name: name, reaches: map[int]bool{}}
		t.all = append(t.all, one)
		group.Go(func() error {
			reached := filepath.Join(out, name+".reached")
			if err := os.WriteFile(reached, nil, 0o644); err != nil {
				return err
			}
			began := time.Now()
			setting := mutants.ReachedVariable + "=" + reached
			output, err := t.process(context.Background(), 0, setting, "-test.run", "^"+name+"$")
			if err != nil {
				return fmt.Errorf("%s without a mutation: %w\n%s", name, err, output)
			}
			one.took = time.Since(began)
			numbers, err := os.ReadFile(reached)
			for number := range strings.FieldsSeq(string(numbers)) {
				n, _ := strconv.Atoi(number)
				one.reaches[n] = true
			}
			return err
		})
	}
	return group.Wait()
}

// result is what the tests show about a mutant.
type result struct {
	isReached, isKilled, isLate bool
	isUnasked                   bool // the bound has left tests out
	output                      string
}

// find runs the tests to which a mutant makes a difference, until one fails. Those
// come first that noticed its neighbors, and those that are quick.
func (t *tests) find(number int, place string, bound time.Duration) (r result) {
	var left []*test
	for _, one := range t.all {
		if one.reaches[number] {
			left = append(left, one)
		}
	}
	r.isReached = len(left) > 0
	t.mu.Lock()
	kills := maps.Clone(t.kills[place])
	t.mu.Unlock()
	slices.SortStableFunc(left, func(a, b *test) int {
		return cmp.Or(kills[b]-kills[a], cmp.Compare(a.took, b.took))
	})
	var all time.Duration
	for atATime := time.Duration(firstTests); len(left) > 0 && !r.isKilled; atATime *= growth {
		if bound > 0 {
			atATime = min(atATime, bound-all)
		}
		if all > 0 && all+left[0].took > bound && bound > 0 {
			r.isUnasked = true
			return r
		}
		var took time.Duration
		var names []string
		n := 0
		for n == 0 || n < len(left) && took+left[n].took < atATime {
			took += left[n].took
			names = append(names, left[n].name)
			n++
		}
		output, isLate, err := t.processWithin(t.patience+slowness*took, mutants.ActiveVariable+"="+strconv.Itoa(number),
			"-test.failfast", "-test.run", "^("+strings.Join(names, "|")+")$")
		r.isLate = isLate
		r.output += output
		r.isKilled = err != nil
		t.count(place, left[:n], output)
		left = left[n:]
		all += took
	}
	return r
}

// count counts the test that failed.
func (t *tests) count(place string, ran []*test, output string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, one := range ran {
		if strings.Contains(output, "--- FAIL: "+one.name+" ") {
			if t.kills[place] == nil {
				t.kills[place] = map[*test]int{}
			}
			t.kills[place][one]++
		}
	}
}

// processWithin is process with a limit, and reports whether that ended the
// process. It limits the time of the core, which is the same on a busy machine.
func (t *tests) processWithin(limit time.Duration, setting string, args ...string) (
	output string, isLate bool, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), waiting*limit)
	defer cancel()
	output, err = t.process(ctx, max(1, int(limit.Seconds())), setting, args...)
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		status, ok := exit.Sys().(syscall.WaitStatus)
		isLate = ok && status.Signaled() && status.Signal() == syscall.SIGKILL
	}
	return output, isLate, err
}

// process runs the program on one core: so does each other one. It is killed after
// so many seconds of that; 0: it has no limit.
func (t *tests) process(ctx context.Context, seconds int, setting string, args ...string) (
	string, error) {
	script := fmt.Sprintf(`ulimit -v %d 2>/dev/null; `, maxMemory)
	if seconds > 0 {
		script += fmt.Sprintf(`ulimit -t %d; `, seconds)
	}
	command := []string{"-c", script + `exec "$@"`, "sh", t.program, "-test.cpu", "1"}
	cmd := exec.CommandContext(ctx, "sh", append(command, args...)...)
	cmd.Dir = t.dir
	cmd.Env = append(os.Environ(), setting)
	cmd.WaitDelay = time.Second // what a test has started may hold the output open
	var buffer bytes.Buffer
	cmd.Stdout = &buffer
	cmd.Stderr = &buffer
	err := cmd.Run()
	return buffer.String(), err
}
