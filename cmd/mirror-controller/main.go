// Command mirror-controller keeps copies of the ConfigMaps that are labelled mirror=true in all namespaces whose
// name begins with a given prefix. Package mirror does the work. This package has the concerns of the process: flags, the
// connection to the API server, the lease, probes, logging, events and signals.
package main

import (
	"context"
	"os"
)

func main() {
	os.Exit(run(context.Background(), os.Args[1:], os.Stdout, os.Stderr))
}
