// Command run runs go test for those folders of a module that have a test which
// an argument -run chooses, or for all of them without such an argument:
//
//	run [-any] [-n] MODULE FOLDER... -- ARGUMENTS OF GO TEST
//
// go test itself links the tests of all folders, and ends well if none runs. This
// command fails then, and names the folders of the module that have the test. The
// folder ./... stands for all. What the tests need is compiled first, and how far
// that is is printed.
package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/mirror-controller/mirror-controller/e2e/programs"
	"github.com/mirror-controller/mirror-controller/e2e/testnames"
)

var (
	orNone = flag.Bool("any", false, "do nothing if only other folders of the module have the test")
	dryRun = flag.Bool("n", false, "only look whether there is such a test")
)

func main() {
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	args := flag.Args()
	end := slices.Index(args, "--")
	if end < 2 {
		flag.Usage()
		os.Exit(2)
	}
	if err := run(ctx, args[0], args[1:end], args[end+1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// run runs the tests of folders of a module.
func run(ctx context.Context, module string, folders, args []string) error {
	pattern := patternOf(args)
	folders, err := matching(module, pattern, folders)
	if err != nil || len(folders) == 0 || *dryRun {
		return err
	}
	fmt.Fprintln(os.Stderr, "Looking for what the tests have to compile")
	needed := append([]string{"-test"}, folders...)
	if err := programs.Compile(ctx, module, needed...); err != nil {
		return err
	}
	ran, err := goTest(ctx, module, slices.Concat(folders, args))
	if err == nil && !ran && pattern != "" {
		return errors.New("no test has run: no row of a table has the name " + pattern)
	}
	return err
}

// matching returns those of the folders that have a test which the pattern
// chooses.
func matching(module, pattern string, folders []string) ([]string, error) {
	if pattern == "" {
		return folders, nil
	}
	all, err := testnames.Folders(module)
	if err != nil {
		return nil, err
	}
	having, err := testnames.Matching(module, pattern, all)
	if err != nil {
		return nil, err
	}
	chosen := slices.DeleteFunc(slices.Clone(having), func(folder string) bool {
		return !slices.Contains(folders, folder) && !slices.Contains(folders, "./...")
	})
	switch {
	case len(having) == 0:
		return nil, errors.New("no test has the name " + pattern)
	case len(chosen) == 0 && !*orNone:
		places := strings.Join(having, ", ")
		return nil, fmt.Errorf("no test here has the name %s: it is in %s", pattern, places)
	}
	return chosen, nil
}

// patternOf returns the value of the last -run; empty: there is none.
func patternOf(args []string) (pattern string) {
	for i, arg := range args {
		name, value, found := strings.Cut(strings.TrimLeft(arg, "-"), "=")
		if !strings.HasPrefix(arg, "-") || name != "run" && name != "test.run" {
			continue
		}
		if !found && i+1 < len(args) {
			value = args[i+1]
		}
		pattern = value
	}
	return pattern
}

// goTest runs go test in a module, and reports whether it has run a test. It
// comes to a package without the test if -skip leaves the test out, or if the
// pattern names a row that no table has.
func goTest(ctx context.Context, module string, args []string) (ran bool, err error) {
	fmt.Fprintln(os.Stderr, "go test", strings.Join(args, " "))
	cmd := exec.CommandContext(ctx, "go", append([]string{"test"}, args...)...)
	cmd.Dir, cmd.Stderr = module, os.Stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) } // it cleans up
	out, err := cmd.StdoutPipe()
	if err != nil {
		return false, err
	}
	if err := cmd.Start(); err != nil {
		return false, err
	}
	lines := bufio.NewReader(out)
	for {
		line, err := lines.ReadString('\n')
		fmt.Print(line)
		ran = ran || strings.HasPrefix(line, "ok") && !strings.HasSuffix(line, "[no tests to run]\n")
		if err != nil {
			return ran, cmd.Wait()
		}
	}
}
