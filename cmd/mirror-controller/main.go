// Command mirror-controller keeps copies of the ConfigMaps that are labelled mirror=true in all namespaces whose
// name begins with a given prefix. What it does is package mirror's; here are the concerns of the process: flags,
// the way to the API server, the lease, probes, logging, events, signals.
package main

import (
	"context"
	"os"
)

func main() {
	os.Exit(run(context.Background(), os.Args[1:], os.Stdout, os.Stderr))
}
