package programs

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
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

// Compile compiles into the cache of the go command what packages of the module in a folder need, and prints to out how
// far it is. Before the packages may come flags of go build, and -test for what their tests need.
func Compile(ctx context.Context, out io.Writer, folder string, packages ...string) error {
	list := append([]string{"list", "-deps", "-f", lacking}, packages...)
	listed, err := goCommand(ctx, folder, func(line string) { fmt.Fprintln(out, line) }, list...)
	if err != nil || listed == "" {
		return err
	}
	missing, done := strings.Fields(listed), 0
	fmt.Fprintf(out, "Compiling %d packages\n", len(missing))
	build := []string{"build", "-v"}
	for _, flag := range packages {
		if strings.HasPrefix(flag, "-") && flag != "-test" {
			build = append(build, flag)
		}
	}
	// With -v it names each package, and some lines are about something else.
	_, err = goCommand(ctx, folder, func(string) {
		done++
		if share := 100 * done / len(missing); share/5 > 100*(done-1)/len(missing)/5 {
			fmt.Fprintf(out, "  %3d%%: %d of %d packages\n", min(share, 100), min(done, len(missing)), len(missing))
		}
	}, append(build, missing...)...)
	return err
}

// goCommand runs the go command in a folder and returns what it prints. It calls said with each line to standard error;
// an error has the last of these.
func goCommand(ctx context.Context, folder string, said func(line string), args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = folder
	cmd.Env = append(os.Environ(), "GOGC=200", // the compilers take a twelfth less CPU time, and more memory
		"CGO_ENABLED=0", "GOWORK=off", "GOOS="+runtime.GOOS, "GOARCH="+runtime.GOARCH)
	if slices.Contains(args, "-race") {
		cmd.Env = append(cmd.Env, "CGO_ENABLED=1")
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	// The compilers are the go command's children: end them with it.
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
	var out bytes.Buffer
	cmd.Stdout = &out
	problems, err := cmd.StderrPipe()
	if err != nil {
		return "", err
	}
	if err := cmd.Start(); err != nil {
		return "", err
	}
	var last []string
	for lines := bufio.NewScanner(problems); lines.Scan(); {
		said(lines.Text())
		last = append(last, lines.Text())
	}
	if err := cmd.Wait(); err != nil {
		problems := strings.Join(last[max(0, len(last)-20):], "\n")
		return "", errors.Join(ctx.Err(), fmt.Errorf("go %s: %w\n%s", args[0], err, problems))
	}
	return out.String(), nil
}
