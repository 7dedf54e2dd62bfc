// Command mirror-controller keeps copies of the ConfigMaps that are labelled mirror=true in all namespaces whose name
// begins with a given prefix. Package mirror does the work. This package has the concerns of the process: flags, the
// connection to the API server, the lease, probes, logging, events and signals.
package main

import (
	"context"
	"os"

	stamped "github.com/mirror-controller/mirror-controller/cmd/internal/version"
)

// stamp is the version that the Makefile and the Dockerfile set (-ldflags "-X main.stamp=v1.2.3").
var stamp string

func version() string { return stamped.Of(stamp) }

func main() {
	os.Exit(run(context.Background(), os.Args[1:], os.Stdout, os.Stderr))
}
