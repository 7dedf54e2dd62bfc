// Package version says which version of a program runs.
package version

import (
	"fmt"
	"runtime"
	"runtime/debug"
)

// Of returns the version that was stamped into a program, or else the one that the go command recorded.
func Of(stamp string) string {
	if stamp != "" {
		return stamp
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" && info.Main.Version != "(devel)" {
		return info.Main.Version
	}
	return "devel"
}

// Line returns what --version prints.
func Line(program, stamp string) string {
	return fmt.Sprintf("%s %s (%s, %s/%s)\n", program, Of(stamp), runtime.Version(), runtime.GOOS, runtime.GOARCH)
}
