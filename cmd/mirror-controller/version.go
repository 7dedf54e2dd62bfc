package main

import (
	"fmt"
	"io"
	"runtime"
	"runtime/debug"
)

// stamp is the version that the Makefile and the Dockerfile set (-ldflags "-X main.stamp=v1.2.3").
var stamp string

// version returns the stamped version or else the one that the go command recorded.
func version() string {
	if stamp != "" {
		return stamp
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" && info.Main.Version != "(devel)" {
		return info.Main.Version
	}
	return "devel"
}

func printVersion(w io.Writer) {
	fmt.Fprintf(w, "%s %s (%s, %s/%s)\n", name, version(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
}
