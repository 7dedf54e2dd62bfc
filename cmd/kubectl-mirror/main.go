// Command kubectl-mirror is the plug-in `kubectl mirror`: it shows what the controller has done and what it would do,
// and why. It reads the cluster and decides with package plan, as the controller does.
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

// exitCode ends a command that has said all there is to say.
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

// main leaves signals to Go: Ctrl-C, or a closed pipe, ends the process at once. A purge may have deleted some of the
// copies then, and goes on where it is run again.
func main() {
	os.Exit(run(context.Background(), os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// run is the whole program. It returns its exit code.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	out, root := bufio.NewWriter(stdout), newRoot() //nolint:contextcheck // commands get it from cobra
	root.SetArgs(args)
	root.SetIn(stdin)
	root.SetOut(out)
	root.SetErr(stderr)
	err, code := root.ExecuteContext(ctx), exitYes
	if errors.As(err, &code) {
		err = nil
	}
	if err = cmp.Or(err, out.Flush()); err == nil {
		return int(code)
	}
	switch {
	case apierrors.IsUnauthorized(err):
		err = fmt.Errorf("the API server refuses the credentials: log in again, or choose another kubeconfig: %w", err)
	case utilnet.IsConnectionRefused(err):
		err = fmt.Errorf("no API server answers: start it, or choose another kubeconfig, host or port: %w", err)
	}
	for line := range strings.FieldsFuncSeq(err.Error(), func(r rune) bool { return r == '\n' }) {
		fmt.Fprintf(stderr, "%s: %s\n", displayName, printable(line))
	}
	return int(exitUnknown)
}
