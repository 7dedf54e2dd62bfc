package main

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

var update = flag.Bool("update", false, "write the golden files anew")

// runFor runs the program with arguments by which it ends at once. With others it would set up the logging, which is
// one for the process and for good: see start in process_test.go.
func runFor(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs strings.Builder
	code = run(t.Context(), args, &out, &errs)
	return code, out.String(), errs.String()
}

// outsideOfAnyCluster hides the cluster in which the test may run, and the kubeconfig of who runs it.
func outsideOfAnyCluster(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	t.Setenv(clientcmd.RecommendedConfigPathEnvVar, "")
}

// writeFile returns the path of a file with that content.
func writeFile(t *testing.T, name, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// writeKubeconfig returns the path of a kubeconfig with that current context, and one context for each server, named
// by the server's key.
func writeKubeconfig(t *testing.T, current string, servers map[string]string) string {
	t.Helper()
	config := clientcmdapi.NewConfig()
	config.CurrentContext = current
	for name, server := range servers {
		config.Clusters[name] = &clientcmdapi.Cluster{Server: server}
		config.Contexts[name] = &clientcmdapi.Context{Cluster: name}
	}
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestHelp(t *testing.T) {
	outsideOfAnyCluster(t)
	const golden = "testdata/help.txt"
	// Help comes also beside wrong values.
	for _, args := range [][]string{{"--help"}, {"-h"}, {"--resync-period=soon", "--help", "--namespace-prefix=UPPER"}} {
		code, stdout, stderr := runFor(t, args...)
		if *update {
			if err := os.WriteFile(golden, []byte(stdout), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(golden)
		if err != nil {
			t.Fatal(err)
		}
		if code != 0 || stderr != "" {
			t.Errorf("%q: exit code %d, stderr %q, want 0 and nothing", args, code, stderr)
		}
		if stdout != string(want) {
			t.Errorf("%q: the help text is not that of %s (go test -update writes it):\n%s", args, golden, stdout)
		}
	}
}

func TestVersion(t *testing.T) {
	outsideOfAnyCluster(t)
	defer func(before string) { stamp = before }(stamp)
	stamp = "v1.2.3"
	code, stdout, stderr := runFor(t, "--version")
	if code != 0 || stderr != "" {
		t.Errorf("exit code %d, stderr %q, want 0 and nothing", code, stderr)
	}
	if !strings.HasPrefix(stdout, "mirror-controller v1.2.3 (go") || strings.Count(stdout, "\n") != 1 {
		t.Errorf("stdout %q, want one line with the stamped version", stdout)
	}
	stamp = ""
	if version() == "" {
		t.Error("there is no version without a stamp")
	}
}
