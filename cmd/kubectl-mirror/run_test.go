package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/mirror-controller/mirror-controller/mirror/plan/plantest"
)

// TestRun has the help: the commands come first, and the flags of kubectl have a group of their own. Then it has what
// can be wrong with arguments, no API server, and one that answers 401 with one word. An error is one line, and exit
// code 2 is for what is not known.
func TestRun(t *testing.T) {
	t.Setenv("KUBECONFIG", t.TempDir()+"/none")
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	t.Setenv("KUBECACHEDIR", "/cache")
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusUnauthorized)
	}))
	defer server.Close()
	untrusted := httptest.NewUnstartedServer(nil)
	untrusted.Config.ErrorLog = log.New(io.Discard, "", 0)
	untrusted.StartTLS()
	defer untrusted.Close()
	addresses := strings.NewReplacer("http://refuses", server.URL, "https://untrusted", untrusted.URL)
	const nobody = " --server=http://127.0.0.1:1"
	const patient = "wait a --namespace-prefix=team- --timeout=1m --server="
	for name, commands := range map[string][]string{"help": {"--help", "status --help", "plan --help"}, "errors": {
		"adopt", "plan -n team-a", "purge -n team-a", "status --colour", "explain a b", "wait", "status -o xml",
		"check -o name" + nobody, "explain a -o name" + nobody, "wait a --namespace-prefix=team- --timeout=0s",
		"status --namespace-prefix=Team-", "status --namespace-prefix=team- --source-namespace=",
		"check --namespace-prefix=team-" + nobody, "status --context=nope", "plan --prune a b",
		"status --namespace-prefix=team- a/b/c" + nobody, "status --namespace-prefix=team-" + nobody, "status" + nobody,
		"status --server=http://refuses",
		// wait goes on after an error that a restart explains: these are none.
		patient + "https://untrusted", patient + "ftp://any", patient + "https://not..known",
	}} {
		const prompt = "$ kubectl mirror "
		file := goldenRows(name, prompt)
		for _, args := range commands {
			t.Run(args, func(t *testing.T) {
				var stdout, stderr bytes.Buffer
				code := run(t.Context(), strings.Fields(addresses.Replace(args)), nil, &stdout, &stderr)
				problems := strings.ReplaceAll(stderr.String(), untrusted.URL, "https://untrusted")
				file.Row(t, fmt.Sprintf("%s%s\n%s%s", prompt, args, &stdout, problems))
				isError := exitCode(code) == exitUnknown && strings.Count(stderr.String(), "\n") == 1
				if isError != (name == "errors") {
					t.Errorf("got exit code %d and stderr %q", code, &stderr)
				}
			})
		}
		file.End(t, len(commands))
	}
}

func TestOutputThatCannotBeWritten(t *testing.T) {
	var problems bytes.Buffer
	disk, full := io.Pipe()
	_ = disk.CloseWithError(errors.New("no space left on device")) // it returns nil
	code := run(t.Context(), []string{"--help"}, nil, full, &problems)
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
