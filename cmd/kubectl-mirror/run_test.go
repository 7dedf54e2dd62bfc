package main

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/mirror-controller/mirror-controller/mirror/plan/plantest"
)

// runFor runs the program with these arguments, and with no cluster to talk to.
func runFor(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	t.Setenv("KUBECONFIG", t.TempDir()+"/none")
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	t.Setenv("KUBECACHEDIR", "/cache")
	var out, problems bytes.Buffer
	code = run(t.Context(), args, strings.NewReader(""), &out, &problems)
	return code, out.String(), problems.String()
}

// TestErrorsAreOneLine has what can be wrong with arguments, no API server, and one that answers 401 with one word.
// Exit code 2 is for what is not known.
func TestErrorsAreOneLine(t *testing.T) {
	const nobody = " --server=http://127.0.0.1:1"
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusUnauthorized)
	}))
	defer server.Close()
	var out golden
	for _, args := range []string{
		"adopt", "plan -n team-a", "purge -n team-a", "status --colour", "explain a b", "wait", "status -o xml",
		"check -o name" + nobody, "explain a -o name" + nobody, "wait a --namespace-prefix=team- --timeout=0s",
		"status --namespace-prefix=Team-", "status --namespace-prefix=team- --source-namespace=",
		"check --namespace-prefix=team-" + nobody, "plan --controller=one", "status --context=nope", "plan --prune a",
		"status --namespace-prefix=team- a/b/c" + nobody, "status --namespace-prefix=team-" + nobody, "status" + nobody,
		"status --server=" + server.URL,
	} {
		code, stdout, stderr := runFor(t, strings.Fields(args)...)
		fmt.Fprintf(&out, "$ kubectl mirror %s\n%s", strings.ReplaceAll(args, server.URL, "http://refuses"), stderr)
		if exitCode(code) != exitUnknown || stdout != "" || strings.Count(stderr, "\n") != 1 {
			t.Errorf("%s: got exit code %d, stdout %q and stderr %q, want 2, nothing, and one line", args, code, stdout, stderr)
		}
	}
	out.compare(t, "errors")
}

// TestHelp: the commands come first, the flags of kubectl have a group of their own, and those of the controller are
// shown by plan and purge.
func TestHelp(t *testing.T) {
	var out golden
	for _, args := range []string{"--help", "status --help", "plan --help"} {
		_, stdout, _ := runFor(t, strings.Fields(args)...)
		fmt.Fprintf(&out, "$ kubectl mirror %s\n%s", args, stdout)
	}
	out.compare(t, "help")
}

type fullDisk struct{}

func (fullDisk) Write([]byte) (int, error) { return 0, errors.New("no space left on device") }

func TestOutputThatCannotBeWritten(t *testing.T) {
	var problems bytes.Buffer
	code := run(t.Context(), []string{"--help"}, nil, fullDisk{}, &problems)
	if want := "kubectl mirror: no space left on device\n"; exitCode(code) != exitUnknown || problems.String() != want {
		t.Errorf("got exit code %d and %q, want 2 and %q", code, problems.String(), want)
	}
}

// TestReferenceTable compares the table of commands in the docs with the commands; -update writes it.
func TestReferenceTable(t *testing.T) {
	var b strings.Builder
	b.WriteString("| command | what it does |\n|---|---|\n")
	for _, cmd := range newRoot().Commands() {
		if cmd.IsAvailableCommand() {
			fmt.Fprintf(&b, "| `kubectl mirror %s` | %s |\n", strings.ReplaceAll(cmd.Use, "|", "or"), cmd.Short)
		}
	}
	plantest.Section(t, "../../deploy/docs/kubectl-mirror.md", "commands", b.String(), *update)
}
