// Package version has the version of the program that runs, for both commands.
package version

import (
	"fmt"
	"runtime"
	"runtime/debug"
)

// Of returns the version that the build stamped into a program. Without a
// stamp, as after go install, it returns the version that the go command
// recorded.
func Of(stamp string) string {
	if stamp != "" {
		return stamp
	}
	info, ok := debug.ReadBuildInfo()
	if ok && info.Main.Version != "" && info.Main.Version != "(devel)" {
		return info.Main.Version
	}
	return "devel"
}

// Line returns what --version prints, such as "mirror-controller v1.2.3
// (go1.27.0, linux/amd64)" and a line break.
func Line(program, stamp string) string {
	return fmt.Sprintf("%s %s (%s, %s/%s)\n",
		program, Of(stamp), runtime.Version(), runtime.GOOS, runtime.GOARCH)
}
