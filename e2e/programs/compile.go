package programs

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"
)

// lacking has go list name each package that is not in the cache. Commands, and packages of one test, are compiled with
// those that link them.
const lacking = `{{if and .Stale (not .ForTest) (ne .Name "main")}}{{.ImportPath}}{{end}}`

// Compile compiles into the cache of the go command what packages of the module in a folder need, and prints to
// standard error how far it is. Before the packages may come flags of go build, and -test for what their tests need.
func Compile(ctx context.Context, folder string, packages ...string) error {
	listed, err := goCommand(ctx, folder, append([]string{"list", "-deps", "-f", lacking}, packages...)...).Output()
	missing := strings.Fields(string(listed))
	if err != nil || len(missing) == 0 {
		return err
	}
	fmt.Fprintf(os.Stderr, "Compiling %d packages\n", len(missing))
	build := []string{"build", "-v"} // which names each package
	for _, flag := range packages {
		if strings.HasPrefix(flag, "-") && flag != "-test" {
			build = append(build, flag)
		}
	}
	cmd := goCommand(ctx, folder, append(build, missing...)...)
	cmd.Stderr = nil
	said, err := cmd.StderrPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	done, percent := 0, 0
	for lines := bufio.NewScanner(said); lines.Scan(); {
		if bytes.ContainsRune(lines.Bytes(), ' ') {
			fmt.Fprintln(os.Stderr, lines.Text()) // what is wrong with a package
			continue
		}
		done++
		if now := min(100, 100*done/len(missing)); now >= percent+5 {
			percent = now
			fmt.Fprintf(os.Stderr, "  %3d%%: %d of %d packages\n", percent, done, len(missing))
		}
	}
	return cmd.Wait()
}

// goCommand returns a go command in a folder, whose errors and news go to standard error.
func goCommand(ctx context.Context, folder string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir, cmd.Stderr = folder, os.Stderr
	cmd.Env = append(os.Environ(), "GOGC=200", // the compilers take a twelfth less CPU time, and more memory
		"CGO_ENABLED=0", "GOWORK=off", "GOOS="+runtime.GOOS, "GOARCH="+runtime.GOARCH)
	if slices.Contains(args, "-race") {
		cmd.Env = append(cmd.Env, "CGO_ENABLED=1")
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	// The compilers are the go command's children: end them with it.
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
	return cmd
}
