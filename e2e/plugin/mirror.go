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
