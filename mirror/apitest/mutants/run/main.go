// Command run breaks packages in thousands of small ways, and prints the ways that
// no test notices and that a list of survivors does not have:
//
//	run [flags] PACKAGE...
//	run -names
//
// It compiles the tests of each package once, with each mutation behind a number.
// First it runs each test alone, which shows the mutations that make a difference
// to that test. Then it runs those tests for each mutation, until one fails.
//
// With -names it runs no test. It prints which mutants of the list there are no
// more, since somebody has edited their code.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
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
	flag.DurationVar(&c.bound, "bound", 0, "how long those tests of a package may take alone that look for one mutant; "+
		"0: as long as it takes. Without it, one that survives costs minutes in mirror.")
	namesAlone := flag.Bool("names", false, "compare the list with the code, and run no test")
	flag.Parse()
	run := func() error { return c.run(flag.Args()) }
	if *namesAlone {
		run = c.compareNames
	} else if flag.NArg() == 0 {
		flag.Usage()
		os.Exit(2)
	}
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		if errors.Is(err, errSurvivors) || errors.Is(err, errUnknown) {
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
	bound                     time.Duration // of the tests of a package for one mutant; 0: none
	started                   time.Time
	stdout, results           io.Writer

	mutants []mutant     // by number
	alive   map[int]bool // by number: no test has noticed them
	reached map[int]bool // by number: they made a difference to a test
	unasked map[int]bool // by number: the bound left tests out that might notice them
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
	c.alive, c.reached, c.unasked = map[int]bool{}, map[int]bool{}, map[int]bool{}
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
	var listed, unlisted, undecided int
	numbers := c.numbers()
	for number, m := range c.mutants[1:] {
		number++
		switch {
		case !c.alive[number]:
		case slices.Contains(survivors, m.String()):
			listed++
		case c.unasked[number]:
			undecided++
			fmt.Fprintln(c.stdout, "UNDECIDED", m)
		case c.reached[number]:
			unlisted++
			fmt.Fprintln(c.stdout, "SURVIVES", m)
		default:
			unlisted++
			fmt.Fprintln(c.stdout, "SURVIVES, and makes no difference to any test:", m)
		}
	}
	for _, name := range survivors {
		if number := numbers[name]; c.chosen == "" && number > 0 && !c.alive[number] {
			fmt.Fprintln(c.stdout, "NOTICED, though the list of survivors has it:", name)
		}
	}
	if c.chosen == "" {
		unlisted += c.printUnknown(survivors)
	}
	c.print("%d killed, %d of them as a test did not end; %d survive that are listed, %d not",
		made-len(c.alive), c.late, listed, unlisted)
	if undecided > 0 {
		c.print("%d undecided: without a bound, further tests might notice them", undecided)
	}
	if unlisted > 0 {
		return errSurvivors
	}
	return nil
}

// numbers returns the numbers of the mutants by their names.
func (c *check) numbers() map[string]int {
	numbers := map[string]int{}
	for number, m := range c.mutants {
		numbers[m.String()] = number
	}
	return numbers
}

// printUnknown prints those names for which there is no mutant, in the files that
// were mutated, and returns how many there are.
func (c *check) printUnknown(names []string) (unknown int) {
	numbers := c.numbers()
	isMutated := map[string]bool{}
	for _, m := range c.mutants {
		isMutated[m.file()] = true
	}
	for _, name := range names {
		if numbers[name] == 0 && isMutated[fileOf(name)] {
			unknown++
			fmt.Fprintln(c.stdout, "NO SUCH MUTANT as the list of survivors has:", name)
		}
	}
	return unknown
}

// fileOf returns the file that the name of a mutant begins with.
func fileOf(name string) string {
	file, _, _ := strings.Cut(name, " ")
	return strings.TrimSuffix(file, ":")
}

// errUnknown is the error of a list with mutants that there are no more.
var errUnknown = errors.New("the list has mutants whose code was edited")

// compareNames returns errUnknown if there is no mutant for a name in the list.
func (c *check) compareNames() error {
	survivors, err := readSurvivors(c.list)
	if err != nil {
		return err
	}
	packages := map[string]bool{}
	for _, name := range survivors {
		packages["./"+path.Dir(fileOf(name))] = true
	}
	own, err := list(slices.Sorted(maps.Keys(packages)))
	if err != nil {
		return err
	}
	if c.out, err = os.MkdirTemp("", "mutants"); err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(c.out) }() // a folder for temporary files
	if c.mutants, err = instrument(own, c.out); err != nil {
		return err
	}
	unknown := c.printUnknown(survivors)
	c.print("%d of %d names have no mutant", unknown, len(survivors))
	if unknown > 0 {
		return errUnknown
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
