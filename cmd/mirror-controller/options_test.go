package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/mirror-controller/mirror-controller/mirror/plan/plantest"
)

// TestRefusedArguments has what is refused before anything is set up, with a line for each error and exit code 2, and
// nothing else.
func TestRefusedArguments(t *testing.T) {
	outsideOfAnyCluster(t)
	if _, err := os.Stat(podNamespaceFile); err == nil {
		t.Skip("this is a pod, and what is said outside of one cannot be seen")
	}
	const noCA = `
current-context: one
contexts: [{name: one, context: {cluster: one}}]
clusters: [{name: one, cluster: {server: "https://one.example", certificate-authority-data: bm90IGEgY2VydGlmaWNhdGU=}}]
`
	kubeconfigs := strings.NewReplacer(
		"=good", "="+writeKubeconfig(t, "one", "https://one.example"),
		"=none", "="+writeKubeconfig(t, "", "https://one.example"),
		"=lost", "="+writeKubeconfig(t, "gone", "https://one.example"),
		"=no-server", "="+writeKubeconfig(t, "one", ""),
		"=no-ca", "="+writeFile(t, "no-ca", noCA),
		"=pod", "="+writeFile(t, "pod", "apiVersion: v1\nkind: Pod\n"),
	)
	varies := regexp.MustCompile(`(?m)` + regexp.QuoteMeta(filepath.Dir(t.TempDir())) + `/\d+/|:\d+"$`)
	golden := plantest.Golden{File: "testdata/refused.txt", Begin: "$ ", Update: *update}
	rows := []string{
		// The other rows have a prefix.
		"--namespace-prefix=", `--namespace-prefix="team-`, "--namespace-prefix=team-,", "--namespace-prefix=-team",
		"--namespace-prefix=" + strings.Repeat("a", 64), "--all-namespaces",
		"--instance= --concurrent-writes=0 --namespace-prefix=Team- --namespace-prefix=team_ --kubeconfig=/no/such/file",

		"--namespace-selector=team=a=b", "--exclude-namespace=*,X,a-", "--source-namespace=platform*,a/b,c.",
		"--source-namespace=", "--source-namespace=platform --source-namespace=",
		"--mirror-label=app.kubernetes.io/managed-by", "--mirror-label=?", "--instance=!",
		"--copy-label=a*b*,=,argocd.argoproj.io/instance,mirror,olm.owner", // C59
		"--copy-annotation=reconcile.fluxcd.io/requestedAt,+,a/b/*,app-",
		"--resync-period=-1s", "--resync-period=99ms --concurrent-sources=0 --concurrent-writes=-3",
		"--exclude-namespace= --copy-label=", // no cluster but that of the home directory, and lists that may be empty
		"--col\nour=red --concurrent-writes=0", "here", "--kube-api-qps=5", "--kube-api-burst=9", "--dry-run",
		"--prune=50%", "--resync-period=soon --concurrent-writes=0", "-v=loud",
		"--deletion-grace=-1s", "--deletion-grace=25h", "--logging-format=yaml", "--health-probe-bind-address=8081",

		"--leader-elect --kubeconfig=/no/such/file", "--leader-elect-lease-duration=15500ms",
		"--leader-elect-renew-deadline=13s", "--leader-elect-lease-duration=10s --leader-elect-retry-period=500ms",
		"--leader-elect-retry-period=0s", "--leader-elect-renew-deadline=0s",
		"--leader-elect-lease-duration=1m --leader-elect-retry-period=8.4s",
		"--leader-elect-resource-name=My_Lease", "--leader-elect-resource-namespace=My_NS",

		"--kubeconfig=pod", "--kubeconfig=good --context=three", "--kubeconfig=none", "--kubeconfig=lost",
		"--kubeconfig=no-server", "--kubeconfig=no-ca", "--context=one", "KUBECONFIG=/no/such/file", "KUBECONFIG=:",
	}
	for _, args := range rows {
		t.Run(args, func(t *testing.T) {
			all := strings.Split(kubeconfigs.Replace(args), " ")
			if variable, ok := strings.CutPrefix(all[0], "KUBECONFIG="); ok {
				t.Setenv("KUBECONFIG", variable)
				all = all[1:]
			}
			if !strings.Contains(args, "--namespace-prefix") {
				all = append(all, "--namespace-prefix=team-")
			}
			code, stdout, stderr := runFor(t, all...)
			title := strings.ReplaceAll(args, "\n", " ")
			golden.Row(t, fmt.Sprintf("$ %s\n%s", title, varies.ReplaceAllString(stderr, "")))
			if code != 2 || stdout != "" {
				t.Errorf("exit code %d and stdout %q, want 2 and nothing", code, stdout)
			}
		})
	}
	golden.End(t, len(rows))
}

// TestFlagsInTheLog: the first line of the log names each flag that is not default.
func TestFlagsInTheLog(t *testing.T) {
	flags := combine(newOptions().bind())
	noError(t, parse(flags, []string{"--namespace-prefix=team-, dev-", "--prune", "-v=2", "--resync-period=10m"}))
	if got, want := strings.Join(notDefault(flags), " "), "--namespace-prefix=team-,dev- --prune=true -v=2"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
