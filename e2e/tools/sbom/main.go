// Command sbom writes a software bill of materials for Go programs, as SPDX 2.3 in JSON, to stdout:
//
//	sbom -version v1.2.3 -created 1700000000 dist/mirror-controller-linux-amd64 dist/mirror-controller-linux-arm64
//
// It asks the programs themselves, as `go version -m` does, so it lists the modules that are linked and no others, and
// of the standard library the version. Equal programs give equal bytes. Licenses are not looked into.
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spdx/tools-golang/json"
)

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "sbom:", err)
		os.Exit(1)
	}
}

// run writes to out the bill of materials of the programs that are named in args.
func run(args []string, out io.Writer) error {
	flags := flag.NewFlagSet("sbom", flag.ContinueOnError)
	version := flags.String("version", "devel", "version of the programs")
	created := flags.Int64("created", 0, "time of the document, in seconds since 1970")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() == 0 {
		return fmt.Errorf("no program is given")
	}
	var programs []program
	for _, path := range flags.Args() {
		p, err := readProgram(path)
		if err != nil {
			return err
		}
		programs = append(programs, p)
	}
	return json.Write(document(programs, *version, time.Unix(*created, 0)), out, json.Indent("  "))
}
