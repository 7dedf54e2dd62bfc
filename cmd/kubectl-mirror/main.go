// Command kubectl-mirror is the plug-in `kubectl mirror`: it shows what the
// controller has done and what it would do, and why.
//
//	status   shows what the controller has reported about sources
//	wait     waits until it reports that they are in sync
//	explain  explains why a ConfigMap is, or is not, a copy
//	plan     shows what a controller, maybe with other flags, would change
//	purge    deletes copies; no other command writes anything
//	check    checks the installation
//
// Each command goes the same way. [cli.command] parses the arguments.
// [session.begin] finds the flags of the controller. Then status and wait go by
// the events of the controller: [snapshot.Reader.Sources]. The other commands
// read the cluster, and decide about each target as the controller does:
// [snapshot.Reader.Read]. At the end [session.print] prints the answer, and the
// command returns an [exitCode].
//
// A user who may see a single namespace is served, too: there are events in it,
// and explain goes by the ConfigMap alone.
package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	utilnet "k8s.io/apimachinery/pkg/util/net"
)

// exitCode is the error of a command that has printed its whole answer. The
// process ends with this code, and prints nothing more.
type exitCode int

const (
	exitYes     exitCode = iota // all in sync, nothing to do
	exitNo                      // out of sync, something to do
	exitUnknown                 // wrong usage, or the cluster could not be asked
)

func (c exitCode) Error() string { return fmt.Sprintf("exit code %d", int(c)) }

// verdict ends a command that answers yes or no.
func verdict(yes bool) exitCode {
	if yes {
		return exitYes
	}
	return exitNo
}

// main leaves signals to Go: Ctrl-C, or a closed pipe, ends the process at
// once. A purge may have deleted some of the copies then, and goes on where it
// is run again.
func main() {
	os.Exit(run(context.Background(), os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// run is the whole program. It returns its exit code.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	// The writer keeps its first error until it is flushed, so that printing
	// need not look for errors.
	out := bufio.NewWriter(stdout)
	root := newRoot() //nolint:contextcheck // commands get it from cobra
	root.SetArgs(args)
	root.SetIn(stdin)
	root.SetOut(out)
	root.SetErr(stderr)
	err := root.ExecuteContext(ctx)
	code := exitYes
	if errors.As(err, &code) {
		err = nil
	}
	err = cmp.Or(err, out.Flush())
	if err == nil {
		return int(code)
	}
	printError(stderr, err)
	return int(exitUnknown)
}

// printError prints an error, one line for each that is joined in it, without
// empty lines. Where client-go names no remedy, it adds one.
func printError(stderr io.Writer, err error) {
	switch {
	case apierrors.IsUnauthorized(err):
		err = fmt.Errorf("the API server refuses the credentials: "+
			"log in again, or choose another kubeconfig: %w", err)
	case utilnet.IsConnectionRefused(err):
		err = fmt.Errorf("no API server answers: "+
			"start it, or choose another kubeconfig, host or port: %w", err)
	}
	for line := range strings.FieldsFuncSeq(err.Error(), func(r rune) bool { return r == '\n' }) {
		fmt.Fprintf(stderr, "%s: %s\n", displayName, escape(line))
	}
}
