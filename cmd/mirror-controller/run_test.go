package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/tools/clientcmd"
)

var update = flag.Bool("update", false, "write the golden files anew")

// runFor runs the program with arguments by which it ends at once. With others it would set up the logging, which is
// one for the process and for good: package e2e/contract runs a process.
func runFor(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs strings.Builder
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // one that goes on ends, too
	code = run(ctx, args, &out, &errs)
	return code, out.String(), errs.String()
}

// outsideOfAnyCluster hides the cluster in which the test may run, and the kubeconfig of its user. There is one in the
// home directory, which names the cluster that was used last, and not one to write to.
func outsideOfAnyCluster(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	t.Setenv(clientcmd.RecommendedConfigPathEnvVar, "")
	before := clientcmd.RecommendedHomeFile
	clientcmd.RecommendedHomeFile = writeKubeconfig(t, "one", "https://one.example")
	t.Cleanup(func() { clientcmd.RecommendedHomeFile = before })
}

// writeFile returns the path of a file with that content.
func writeFile(t *testing.T, name, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	noError(t, os.WriteFile(path, []byte(content), 0o600))
	return path
}

// writeKubeconfig returns the path of a kubeconfig with that current context, and the contexts one, for the server, and
// two.
func writeKubeconfig(t *testing.T, current, server string) string {
	t.Helper()
	return writeFile(t, "kubeconfig", fmt.Sprintf(`
current-context: %q
contexts: [{name: one, context: {cluster: one}}, {name: two, context: {cluster: two}}]
clusters: [{name: one, cluster: {server: %q}}, {name: two, cluster: {server: "https://two.example"}}]
`, current, server))
}

// TestHelp: help comes also beside values that are invalid. TestReferenceTables holds the texts of all flags.
func TestHelp(t *testing.T) {
	for _, args := range [][]string{{"--help"}, {"--resync-period=1ns", "-h", "--namespace-prefix=UPPER"}} {
		t.Run(strings.Join(args, " "), func(t *testing.T) {
			code, stdout, stderr := runFor(t, args...)
			if code != 0 || stderr != "" {
				t.Errorf("exit code %d, stderr %q, want 0 and nothing", code, stderr)
			}
			parts := []string{"mirror-controller copies every", "\nMirroring flags:\n", "--deletion-grace duration"}
			for _, part := range parts {
				if !strings.Contains(stdout, part) {
					t.Errorf("there is no %q in\n%s", part, stdout)
				}
			}
		})
	}
}

func noError(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
