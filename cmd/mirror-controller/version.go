package main

import (
	"fmt"
	"io"

	stamped "github.com/mirror-controller/mirror-controller/cmd/internal/version"
)

// stamp is the version that the Makefile and the Dockerfile set (-ldflags "-X main.stamp=v1.2.3").
var stamp string

func version() string { return stamped.Of(stamp) }

func printVersion(w io.Writer) { fmt.Fprint(w, stamped.Line(name, stamp)) }
