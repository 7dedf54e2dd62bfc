package main

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// runFor runs the program with these arguments, and with no cluster to talk to.
func runFor(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	t.Setenv("KUBECONFIG", t.TempDir()+"/none")
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	var out, problems bytes.Buffer
	code = run(t.Context(), args, strings.NewReader(""), &out, &problems)
	return code, out.String(), problems.String()
}

// TestErrorsAreOneLine has what can be wrong with arguments, and no API server. Exit code 2 is for what is not known.
func TestErrorsAreOneLine(t *testing.T) {
	const nobody = " --server=http://127.0.0.1:1"
	var out golden
	for _, args := range []string{
		"adopt", "plan -n team-a", "status --colour", "status a b", "wait", "status -o xml",
		"status --namespace-prefix=Team-", "status --namespace-prefix=team- --source-namespace=",
		"check --namespace-prefix=team-" + nobody, "plan --controller=one", "status --context=nope", "explain namespace/",
		"status --namespace-prefix=team- a/b/c" + nobody, "status --namespace-prefix=team-" + nobody, "status" + nobody,
	} {
		code, stdout, stderr := runFor(t, strings.Fields(args)...)
		fmt.Fprintf(&out, "$ kubectl mirror %s\n%s", args, stderr)
		if exitCode(code) != exitUnknown || stdout != "" || strings.Count(stderr, "\n") != 1 {
			t.Errorf("%s: got exit code %d, stdout %q and stderr %q, want 2, nothing, and one line", args, code, stdout, stderr)
		}
	}
	out.compare(t, "errors")
}

// TestUnauthorizedIsExplained: the API server answers 401 with one word.
func TestUnauthorizedIsExplained(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusUnauthorized)
	}))
	defer server.Close()
	code, _, stderr := runFor(t, "status", "--server="+server.URL)
	if exitCode(code) != exitUnknown || !strings.Contains(stderr, "refuses the credentials: log in again") {
		t.Errorf("got exit code %d and %q, want 2 and what to do", code, stderr)
	}
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
