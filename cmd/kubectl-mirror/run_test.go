package main

import (
	"bytes"
	"errors"
	"runtime"
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

func TestErrorsAreOneLine(t *testing.T) {
	for name, test := range map[string]struct {
		args []string
		want string
	}{
		"unknown command": {[]string{"adopt"}, `unknown command "adopt" for "kubectl mirror"`},
		"plan -n":         {[]string{"plan", "-n", "team-a"}, `--namespace="team-a": the command is about the whole cluster: leave it out`},
		"unknown flag":    {[]string{"status", "--colour"}, "unknown flag: --colour: --help lists the flags"},
		"too many":        {[]string{"status", "a", "b"}, "2 arguments, must be: kubectl mirror status [SOURCE]"},
		"no source":       {[]string{"wait"}, "0 arguments, must be: kubectl mirror wait SOURCE"},
		"wrong format":    {[]string{"status", "-o", "xml"}, `invalid argument "xml" for "-o, --output" flag: must be one of: table, wide, json, name: --help lists the flags`},
		"wrong value":     {[]string{"status", "--namespace-prefix=Team-"}, `--namespace-prefix="Team-": must be the beginning of a namespace name: lower-case letters, digits and '-', with a letter or digit first`},
		"empty list":      {[]string{"status", "--namespace-prefix=team-", "--source-namespace="}, `--source-namespace="": must not be empty`},
		"check settings":  {[]string{"check", "--instance=two"}, "--instance: check takes no settings but --controller"},
		"no controller":   {[]string{"plan", "--controller=one"}, `--controller="one": must be NAMESPACE/NAME of a Deployment: give its flags, at least --namespace-prefix`},
		"wrong context":   {[]string{"status", "--context=nope"}, "context was not found for specified context: nope"},
		"wrong source":    {[]string{"status", "--server=http://127.0.0.1:1", "--namespace-prefix=team-", "a/b/c"}, `"a/b/c": must be NAMESPACE/NAME or a name`},
		"no namespace":    {[]string{"explain", "namespace/"}, `"namespace/": must be namespace/NAME`},
		"no API server":   {[]string{"status", "--server=http://127.0.0.1:1", "--namespace-prefix=team-"}, "connection refused"},
		"no settings":     {[]string{"status", "--server=http://127.0.0.1:1"}, "connection refused"},
	} {
		t.Run(name, func(t *testing.T) {
			code, stdout, stderr := runFor(t, test.args...)
			stderr = strings.TrimPrefix(stderr, "Settings: flags\n")
			if code != exitError || stdout != "" || !strings.HasPrefix(stderr, "kubectl mirror: ") ||
				!strings.HasSuffix(stderr, test.want+"\n") || strings.Count(stderr, "\n") != 1 {
				t.Errorf("got exit code %d, stdout %q, stderr\n%swant 2, nothing, and one line with\n%s", code, stdout, stderr, test.want)
			}
		})
	}
}

func TestVersion(t *testing.T) {
	defer func(before string) { stamp = before }(stamp)
	stamp = "v1.2.3"
	code, stdout, stderr := runFor(t, "--version")
	if want := "kubectl-mirror v1.2.3 (" + runtime.Version() + ", " + runtime.GOOS + "/" + runtime.GOARCH + ")\n"; code != 0 || stdout != want || stderr != "" {
		t.Errorf("got exit code %d, %q and %q, want 0 and %q", code, stdout, stderr, want)
	}
}

type fullDisk struct{}

func (fullDisk) Write([]byte) (int, error) { return 0, errors.New("no space left on device") }

func TestOutputThatCannotBeWritten(t *testing.T) {
	var problems bytes.Buffer
	code := run(t.Context(), []string{"--help"}, nil, fullDisk{}, &problems)
	if want := "kubectl mirror: no space left on device\n"; code != exitError || problems.String() != want {
		t.Errorf("got exit code %d and %q, want 2 and %q", code, problems.String(), want)
	}
}
