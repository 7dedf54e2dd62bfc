// Command kubectl-mirror is the plug-in `kubectl mirror`: it shows what the controller has done and what it would do, and
// why. It reads the cluster and decides with package plan, as the controller does.
//
//	installation/  an installed controller: its settings, its Lease, and all that check asks
//	snapshot/      the sources and copies of a cluster, and the decision about each target
//	command.go     the root command and what all commands share
//	status.go, explain.go, plan.go, wait.go, check.go, purge.go: the commands
//	seen.go        status and explain for users who see one namespace only
//	rules.go       each rule of the contract, in words
//	diff.go        the content that a change replaces
//	deletions.go   the deletions of a purge
//	output.go      tables, JSON, YAML, names
//	complete.go    completion, as kubectl asks for it
//	confirm.go     asking the user
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

// These end a command that has said all there is to say: with exitNo, or with exitError.
var (
	errNo      = errors.New("no")
	errUnknown = errors.New("unknown")
)

// exitWith returns the error that ends a command with an exit code.
func exitWith(code int) error {
	return map[int]error{exitNo: errNo, exitError: errUnknown}[code]
}

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
	isSaid := errors.Is(err, errNo) || errors.Is(err, errUnknown)
	if ctx.Err() != nil && err != nil && !isSaid {
		err = errors.New("interrupted")
	}
	if flushErr := out.Flush(); flushErr != nil && (err == nil || isSaid) {
		err = flushErr
	}
	switch {
	case err == nil:
		return exitYes
	case errors.Is(err, errNo):
		return exitNo
	case errors.Is(err, errUnknown):
		return exitError
	}
	for line := range strings.Lines(err.Error()) {
		if line = strings.TrimSpace(line); line != "" {
			fmt.Fprintf(stderr, "%s: %s\n", displayName, line)
		}
	}
	return exitError
}
