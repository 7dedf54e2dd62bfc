package plugin

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/mirror-controller/mirror-controller/e2e/manual"
	"github.com/mirror-controller/mirror-controller/e2e/suite"
)

// kubectlMirror runs kubectl mirror as the admin, with the settings of the world's controller.
func kubectlMirror(w *suite.World, args ...string) answer {
	w.Helper()
	return byController(w, w.Cluster.AdminKubeconfig(), args...)
}

// byController runs kubectl mirror as the user of a kubeconfig, with the settings of the world's controller.
func byController(w *suite.World, kubeconfig string, args ...string) answer {
	w.Helper()
	return mirrorAs(w, kubeconfig, append(args, "--controller="+suite.AccountNamespace+"/"+w.Account())...)
}

// byFlags runs it with the same settings as flags.
func byFlags(w *suite.World, kubeconfig string, args ...string) answer {
	w.Helper()
	return mirrorAs(w, kubeconfig, append(args, w.Args()...)...)
}

// expect fails the test if the answer is another one. Lines begin as the first line of want does.
func expect(w *suite.World, got answer, code int, want string) {
	w.Helper()
	want = strings.TrimSpace(want)
	if got.code != code || got.out != want {
		w.Errorf("got exit code %d and\n%s\nwant %d and\n%s\nstderr: %s", got.code, got.out, code, want, got.err)
	}
}

// expectError fails the test if the answer is not an error, of one line that contains text, and nothing on stdout.
func expectError(w *suite.World, got answer, text string) {
	w.Helper()
	var lines []string
	for line := range strings.Lines(got.err) {
		if !strings.HasPrefix(line, "Settings: ") && !strings.HasPrefix(line, "No controller runs: ") {
			lines = append(lines, line)
		}
	}
	if got.code != 2 || got.out != "" || len(lines) != 1 || !strings.HasPrefix(lines[0], "kubectl mirror: ") || !strings.Contains(lines[0], text) {
		w.Errorf("got exit code %d, stdout %q and stderr\n%s\nwant 2, nothing, and a line with %q", got.code, got.out, got.err, text)
	}
}

// shown returns what the manual shows for a command of kubectl mirror, with runs of blanks as the answers have them.
func shown(t *testing.T, command string) string {
	t.Helper()
	_, output, _ := strings.Cut(manual.Find(t, "deploy/docs/kubectl-mirror.md", "$ kubectl mirror "+command+"\n").Text, "\n")
	return runsOfBlanks.ReplaceAllString(output, "  ")
}

// newReader returns the kubeconfig of an account that may list these resources, and do nothing else.
func newReader(w *suite.World, name string, rules ...rbacv1.PolicyRule) string {
	w.Helper()
	return w.NewAccount(name, rules).Kubeconfig
}

func mayList(group string, resources ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{APIGroups: []string{group}, Resources: resources, Verbs: []string{"list"}}
}

const controllerSettings = "Settings: annotations of ClusterRoleBinding mirror-controller (controller mirror-system/mirror-controller)" +
	", without --source-namespace, because its Deployment was not found"

// TestKubectlFindsPlugin has kubectl find the plug-in and its completion by their names.
func TestKubectlFindsPlugin(t *testing.T) {
	t.Parallel()
	w := suite.New(t, "a")
	source := w.CreateSource(w.Home, "settings")
	w.Start()
	w.WaitInSync(source, w.NS("a"))
	path, err := filepath.Abs(plugin())
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for _, name := range []string{"kubectl-mirror", "kubectl_complete-mirror"} {
		if err := os.Symlink(path, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	for _, test := range []struct {
		args []string
		want string
	}{
		{[]string{"mirror", "--version"}, "kubectl-mirror "},
		{[]string{"mirror", "options"}, "All commands have these flags:\n"},
		{[]string{"mirror", "status", "-A", "--controller=" + suite.AccountNamespace + "/" + w.Account()}, "NAMESPACE"},
		{[]string{"__complete", "mirror", "sta"}, "status\t"},
		{[]string{"__complete", "mirror", "status", "--controller=" + suite.AccountNamespace + "/" + w.Account(), w.Home}, w.Home + "/settings\n"},
		{[]string{"__complete", "mirror", "explain", "--namespace", w.Home}, w.Home + "\n"},
		{[]string{"__complete", "mirror", "plan", "--controller", suite.AccountNamespace + "/" + w.Account()}, suite.AccountNamespace + "/" + w.Account() + "\n"},
	} {
		args := test.args
		if args[0] != "__complete" {
			args = append(args, "--kubeconfig="+w.Cluster.AdminKubeconfig())
		}
		cmd := w.Cluster.Command(w.Context(), w.Cluster.Kubectl(), args...)
		cmd.Env = append(cmd.Env, "PATH="+dir, "KUBECONFIG="+w.Cluster.AdminKubeconfig())
		out, err := cmd.Output()
		if err != nil || !strings.HasPrefix(string(out), test.want) {
			t.Errorf("kubectl %q: got %q, %v, want something that begins with %q", args, out, err, test.want)
		}
	}
}
