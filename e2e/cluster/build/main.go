// Command build builds the control plane, or the programs of it that its arguments name, where they are not
// built yet, and says what it does meanwhile: go test keeps what is written until a test has ended, and this
// takes minutes. With -inlined it builds those that measurements take.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/mirror-controller/mirror-controller/e2e/cluster"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	inlined := flag.Bool("inlined", false, "compile for measurements")
	flag.Parse()
	build := cluster.Build
	if *inlined {
		build = cluster.BuildInlined
	}
	if _, err := build(ctx, flag.Args()...); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
