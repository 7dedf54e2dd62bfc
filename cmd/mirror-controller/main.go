// Command mirror-controller keeps a copy of every ConfigMap that is labelled
// mirror=true in each namespace whose name begins with a given prefix.
//
// Package mirror does the work. This package has the concerns of the process:
// [run] parses the flags, sets up logging and catches signals. Then [control]
// connects to the API server, serves probes and metrics, and hands the
// controller to [election.run], which lets it write while it holds the Lease.
// The controller sends its events through an [eventSender].
package main

import (
	"context"
	"os"

	stamped "github.com/mirror-controller/mirror-controller/cmd/internal/version"
)

// stamp is the version that the Makefile and the Dockerfile set with -ldflags
// "-X main.stamp=v1.2.3". It is empty in a program that go run built.
var stamp string

func version() string { return stamped.Of(stamp) }

func main() {
	os.Exit(run(context.Background(), os.Args[1:], os.Stdout, os.Stderr))
}
