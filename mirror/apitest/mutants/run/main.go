// Command run breaks packages in thousands of small ways, and prints the ways that
// no test notices and that a list of survivors does not have:
//
//	run [flags] PACKAGE...
//
// It compiles the tests of each package once, with each mutation behind a number.
// First it runs each test alone, which shows the mutations that make a difference
// to that test. Then it runs those tests for each mutation, until one fails.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"
)

// errSurvivors is the error of a check that found what the list does not have.
var errSurvivors = errors.New("the tests do not notice these mutants")

func main() {
	c := &check{stdout: os.Stdout, started: time.Now(), patience: patience}
	flag.StringVar(&c.out, "out", "bin/mutants", "folder for what is compiled")
	flag.StringVar(&c.list, "survivors", "mirror/testdata/survivors.txt",
		"file with mutants that may survive, and why")
	flag.StringVar(&c.others, "tests", "",
		"packages, separated by spaces, whose tests look for what is left if they use what is mutated")
	flag.IntVar(&c.processes, "processes", runtime.NumCPU(), "how many tests run at a time")
	flag.StringVar(&c.chosen, "only", "",
		"what the names of mutants contain, or one name; of one alone the output of tests is shown")
	flag.Parse()
	if flag.NArg() == 0 {
		flag.Usage()
		os.Exit(2)
	}
	if err := c.run(flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		if errors.Is(err, errSurvivors) {
			os.Exit(1)
		}
		os.Exit(2)
	}
}

// check is one run of the program.
type check struct {
	out, list, others, chosen string
	processes                 int
	patience                  time.Duration // see the constant
	started                   time.Time
	stdout, results           io.Writer

	mutants []mutant     // by number
	alive   map[int]bool // by number: no test has noticed them
	reached map[int]bool // by number: they made a difference to a test
	late    int          // how many were noticed as a test did not end
}

// run returns errSurvivors if the list lacks a mutant that survives.
func (c *check) run(packages []string) (err error) {
	survivors, err := readSurvivors(c.list)
	if err != nil {
		return err
	}
	if c.out, err = filepath.Abs(c.out); err != nil {
		return err
	}
	if err := os.MkdirAll(c.out, 0o755); err != nil {
		return err
	}
	results, err := os.Create(filepath.Join(c.out, "results.txt"))
	if err != nil {
		return err
	}
	defer results.Close()
	c.results = results
	own, err := list(packages)
	if err != nil {
		return err
	}
	tested, err := listTests(slices.Concat(packages, strings.Fields(c.others)), own)
	if err != nil {
		return err
	}
	if c.mutants, err = instrument(own, c.out); err != nil {
		return err
	}
	c.alive, c.reached = map[int]bool{}, map[int]bool{}
	for number, m := range c.mutants {
		if number > 0 && strings.Contains(m.String(), c.chosen) {
			c.alive[number] = true
		}
	}
	isChosen := func(m mutant) bool { return m.String() == c.chosen }
	if number := slices.IndexFunc(c.mutants, isChosen); number > 0 {
		c.alive = map[int]bool{number: true}
	}
	made := len(c.alive)
	if made == 0 {
		return fmt.Errorf("no mutant has a name with %q", c.chosen)
	}
	c.print("%d mutants", made)
	for _, p := range tested {
		isOwn := slices.ContainsFunc(own, func(o listed) bool {
			return !o.DepOnly && o.ImportPath == p.ImportPath
		})
		look := maps.Clone(c.alive)
		if !isOwn && c.chosen == "" {
			// What others notice of listed ones is not worth the time.
			maps.DeleteFunc(look, func(number int, _ bool) bool {
				return slices.Contains(survivors, c.mutants[number].String())
			})
		}
		if err := c.test(p, slices.Sorted(maps.Keys(look))); err != nil {
			return fmt.Errorf("%s: %w", p.ImportPath, err)
		}
	}
	return c.judge(made, survivors)
}

// judge prints what is left.
func (c *check) judge(made int, survivors []string) error {
	var listed, unlisted int
	numbers := map[string]int{}
	files := map[string]bool{}
	for number, m := range c.mutants[1:] {
		number++
		numbers[m.String()] = number
		files[m.file()] = true
		switch {
		case !c.alive[number]:
		case slices.Contains(survivors, m.String()):
			listed++
		case c.reached[number]:
			unlisted++
			fmt.Fprintln(c.stdout, "SURVIVES", m)
		default:
			unlisted++
			fmt.Fprintln(c.stdout, "SURVIVES, and makes no difference to any test:", m)
		}
	}
	for _, name := range survivors {
		file, _, _ := strings.Cut(name, " ")
		file = strings.TrimSuffix(file, ":")
		number, isThere := numbers[name]
		switch {
		case c.chosen != "", !files[file], c.alive[number]:
		case isThere:
			fmt.Fprintln(c.stdout, "NOTICED, though the list of survivors has it:", name)
		default:
			unlisted++
			fmt.Fprintln(c.stdout, "NO SUCH MUTANT as the list of survivors has:", name)
		}
	}
	c.print("%d killed, %d of them as a test did not end; %d survive that are listed, %d not",
		made-len(c.alive), c.late, listed, unlisted)
	if unlisted > 0 {
		return errSurvivors
	}
	return nil
}

// print prints a line with the time since the start.
func (c *check) print(format string, args ...any) {
	took := time.Since(c.started)
	fmt.Fprintf(c.stdout, "%5.0f s  %s\n", took.Seconds(), fmt.Sprintf(format, args...))
}

// readSurvivors reads the names of mutants from a file. A line that begins with
// '#' is the reason why those below it survive; it goes up to an empty line.
func readSurvivors(name string) ([]string, error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	var survivors []string
	hasReason := false
	for n, line := range strings.Split(string(text), "\n") {
		line = strings.TrimSpace(line)
		switch {
		case line == "":
			hasReason = false
		case strings.HasPrefix(line, "#"):
			hasReason = true
		case !hasReason:
			const problem = "a survivor needs a reason above it, in a line that begins with '#'"
			return nil, fmt.Errorf("%s:%d: %s", name, n+1, problem)
		default:
			survivors = append(survivors, line)
		}
	}
	return survivors, nil
}
