// Command kubectl-mirror is the plug-in `kubectl mirror`: it shows what the controller has done and what it would do, and
// why. It reads the cluster and decides with package plan, as the controller does.
//
//	main.go      the program: signals, exit codes, errors
//	command.go   the root command and what all commands share
//	complete.go  completion, as kubectl asks for it
//	settings.go  the settings of an installed controller, from its objects
//	discover.go  finding them in the cluster
//	snapshot.go  what the cluster holds, and the decision about each target
//	reason.go    a decision in words
//	failures.go  what events tell of copies that the API server rejects
//	report.go    the state of sources, counted
//	output.go    tables, JSON, YAML, names
//	rules.go     each rule of the contract, in words
//	status.go    kubectl mirror status
//	explain.go   kubectl mirror explain
//	plan.go      kubectl mirror plan
//	diff.go      what a change does to the content
//	wait.go      kubectl mirror wait
//	follow.go    reading the cluster again and again
//	confirm.go   asking the user
//	arity.go     what a command says if it has too few or too many arguments
//	adopt.go     kubectl mirror adopt
//	adoption.go  what may be adopted, and what that replaces
//	purge.go     kubectl mirror purge
//	purgeable.go the copies that there are to purge
//	restorers.go what keeps copies from being purged
//	deletions.go deleting them
//	check.go     kubectl mirror check; check_*.go: its facts, read from the cluster, and what each of them tells
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
)

// Exit codes.
const (
	exitYes   = 0 // all in sync, nothing to do
	exitNo    = 1 // out of sync, something to do
	exitError = 2 // unknown: wrong usage, or the cluster could not be asked
)

// errNo ends a command with exitNo: it has said all there is to say.
var errNo = errors.New("no")

func main() {
	args := os.Args[1:]
	if isCompleter(filepath.Base(os.Args[0])) {
		args = append([]string{"__complete"}, args...)
	}
	// A closed pipe ends the process, as it ends other programs: Go leaves that to the signal.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // the second signal ends the process at once
	code := run(ctx, args, os.Stdin, os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// run is the whole program. It returns its exit code.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	out := bufio.NewWriter(stdout)
	root := newRoot()
	root.SetArgs(args)
	root.SetIn(stdin)
	root.SetOut(out)
	root.SetErr(stderr)
	err := root.ExecuteContext(ctx)
	if ctx.Err() != nil && err != nil && !errors.Is(err, errNo) {
		err = errors.New("interrupted")
	}
	if flushErr := out.Flush(); flushErr != nil && (err == nil || errors.Is(err, errNo)) {
		err = flushErr
	}
	switch {
	case err == nil:
		return exitYes
	case errors.Is(err, errNo):
		return exitNo
	}
	for line := range strings.Lines(err.Error()) {
		if line = strings.TrimSpace(line); line != "" {
			fmt.Fprintf(stderr, "%s: %s\n", displayName, line)
		}
	}
	return exitError
}
