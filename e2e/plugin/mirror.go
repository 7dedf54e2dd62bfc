package plugin

import (
	"bytes"
	"errors"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/mirror-controller/mirror-controller/e2e/suite"
)

// plugin is the program kubectl-mirror, which is built beside the controller.
func plugin() string { return filepath.Join(filepath.Dir(*suite.Binary), "kubectl-mirror") }

// answer is what a run of kubectl mirror came to. The names of the world are those of newWorld's documentation: team-
// for the prefix, platform for the home.
type answer struct {
	code     int
	out, err string
}

// Code returns the exit code.
func (a answer) Code() int { return a.code }

// mirrorAs runs kubectl mirror as the user of a kubeconfig.
func mirrorAs(w *suite.World, kubeconfig string, args ...string) answer {
	w.Helper()
	var out, problems bytes.Buffer
	cmd := w.Cluster.Command(w.Context(), plugin(), append(args, "--kubeconfig="+kubeconfig)...)
	cmd.Stdout, cmd.Stderr = &out, &problems
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		w.Fatalf("kubectl mirror (make build builds it): %v", err)
	}
	return answer{cmd.ProcessState.ExitCode(), anonymous(w, out.String()), anonymous(w, problems.String())}
}

// user runs kubectl mirror as one person.
type user struct {
	w          *suite.World
	kubeconfig string
	flags      []string // of each command
	names      []string // further names to replace, in pairs
}

// ask runs a command that has the names of an answer.
func (u *user) ask(command string) answer {
	u.w.Helper()
	command = strings.NewReplacer("platform", u.w.Home, "team-", u.w.Prefix).Replace(command)
	got := mirrorAs(u.w, u.kubeconfig, append(strings.Fields(command), u.flags...)...)
	names := strings.NewReplacer(u.names...)
	return answer{got.code, names.Replace(got.out), names.Replace(got.err)}
}

// says fails the test if the answer to a command has another exit code, or lacks one of the texts on stdout or stderr.
func (u *user) says(code int, command string, texts ...string) answer {
	u.w.Helper()
	got := u.ask(command)
	expectIn(u.w, got, code, texts...)
	return got
}

// prints fails the test if a command prints something else.
func (u *user) prints(code int, command, want string) answer {
	u.w.Helper()
	got := u.ask(command)
	expect(u.w, got, code, want)
	return got
}

func expect(w *suite.World, got answer, code int, want string) {
	w.Helper()
	if want = strings.TrimSpace(want); got.code != code || got.out != want {
		w.Errorf("got exit code %d and\n%s\nwant %d and\n%s\nstderr: %s", got.code, got.out, code, want, got.err)
	}
}

func expectIn(w *suite.World, got answer, code int, texts ...string) {
	w.Helper()
	for _, text := range texts {
		if got.code != code || !strings.Contains(got.out+"\n"+got.err, text) {
			w.Errorf("got exit code %d and\n%s\nstderr: %s\nwant %d and %q", got.code, got.out, got.err, code, text)
		}
	}
}

var runsOfBlanks = regexp.MustCompile(` {2,}`)

// anonymous replaces the names of the world by those that a reader expects, and runs of blanks by two: how wide a
// column is depends on the names.
func anonymous(w *suite.World, text string) string {
	text = strings.NewReplacer(
		suite.AccountNamespace+"/"+w.Account(), "mirror-system/mirror-controller", w.Account(), "mirror-controller",
		w.Home, "platform", w.Prefix, "team-", w.Label, "mirror",
	).Replace(text)
	var lines []string
	for line := range strings.Lines(text) {
		lines = append(lines, strings.TrimRight(runsOfBlanks.ReplaceAllString(strings.TrimRight(line, "\n"), "  "), " "))
	}
	return strings.Join(lines, "\n")
}
