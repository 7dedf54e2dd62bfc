// Command build builds the control plane, or the programs of it that its arguments name, where they are not built yet.
// With -inlined it builds those that measurements take. With -compile it compiles what the packages need that its
// arguments name, of the module in that folder. It prints how far it is: go build and go test say nothing for minutes.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/mirror-controller/mirror-controller/e2e/programs"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	inlined := flag.Bool("inlined", false, "compile for measurements")
	folder := flag.String("compile", "", "compile packages of the module in this folder")
	flag.Parse()
	var err error
	switch {
	case *folder != "":
		err = programs.Compile(ctx, *folder, flag.Args()...)
	case *inlined:
		_, err = programs.BuildInlined(ctx, flag.Args()...)
	default:
		_, err = programs.Build(ctx, flag.Args()...)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
