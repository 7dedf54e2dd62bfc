package e2e

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/mirror-controller/mirror-controller/e2e/manual"
)

// plugin is the program kubectl-mirror, which is built beside the controller.
func plugin() string { return filepath.Join(filepath.Dir(*binary), "kubectl-mirror") }

// answer is what a run of kubectl mirror came to. The names of the world are those of newWorld's documentation: team- for the
// prefix, platform for the home.
type answer struct {
	code     int
	out, err string
}

// mirror runs kubectl mirror as the admin, with the settings of the world's controller.
func (w *world) mirror(args ...string) answer {
	w.Helper()
	return w.byController(w.cluster.AdminKubeconfig(), args...)
}

// byController runs kubectl mirror as the user of a kubeconfig, with the settings of the world's controller.
func (w *world) byController(kubeconfig string, args ...string) answer {
	w.Helper()
	return w.mirrorAs(kubeconfig, append(args, "--controller="+accountNamespace+"/"+w.account())...)
}

// byFlags runs it with the same settings as flags.
func (w *world) byFlags(kubeconfig string, args ...string) answer {
	w.Helper()
	return w.mirrorAs(kubeconfig, append(args, w.args()...)...)
}

// mirrorAs runs kubectl mirror as the user of a kubeconfig.
func (w *world) mirrorAs(kubeconfig string, args ...string) answer {
	w.Helper()
	var out, problems bytes.Buffer
	cmd := w.cluster.Command(w.ctx, plugin(), append(args, "--kubeconfig="+kubeconfig)...)
	cmd.Stdout, cmd.Stderr = &out, &problems
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		w.Fatalf("kubectl mirror (make build builds it): %v", err)
	}
	return answer{cmd.ProcessState.ExitCode(), w.anonymous(out.String()), w.anonymous(problems.String())}
}

var runsOfBlanks = regexp.MustCompile(` {2,}`)

// anonymous replaces the names of the world by those that a reader expects, and runs of blanks by two: how wide a column is
// depends on the names.
func (w *world) anonymous(text string) string {
	text = strings.NewReplacer(
		accountNamespace+"/"+w.account(), "mirror-system/mirror-controller", w.account(), "mirror-controller",
		w.home, "platform", w.prefix, "team-", w.label, "mirror",
	).Replace(text)
	var lines []string
	for line := range strings.Lines(text) {
		lines = append(lines, strings.TrimRight(runsOfBlanks.ReplaceAllString(strings.TrimRight(line, "\n"), "  "), " "))
	}
	return strings.Join(lines, "\n")
}

// expect fails the test if the answer is another one. Lines begin as the first line of want does.
func (w *world) expect(got answer, code int, want string) {
	w.Helper()
	want = strings.TrimSpace(want)
	if got.code != code || got.out != want {
		w.Errorf("got exit code %d and\n%s\nwant %d and\n%s\nstderr: %s", got.code, got.out, code, want, got.err)
	}
}

// expectError fails the test if the answer is not an error, of one line that contains text, and nothing on stdout.
func (w *world) expectError(got answer, text string) {
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

// reader returns the kubeconfig of an account that may list these resources, and do nothing else.
func (w *world) reader(name string, rules ...rbacv1.PolicyRule) string {
	w.Helper()
	return w.newAccount(name, rules).kubeconfig
}

func mayList(group string, resources ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{APIGroups: []string{group}, Resources: resources, Verbs: []string{"list"}}
}

const controllerSettings = "Settings: annotations of ClusterRoleBinding mirror-controller (controller mirror-system/mirror-controller)" +
	", without --source-namespace, because its Deployment was not found"

// TestKubectlFindsPlugin has kubectl find the plug-in and its completion by their names.
func TestKubectlFindsPlugin(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "a")
	source := w.createSource(w.home, "settings")
	w.start()
	w.waitInSync(source, w.ns("a"))
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
		{[]string{"mirror", "status", "-A", "--controller=" + accountNamespace + "/" + w.account()}, "NAMESPACE"},
		{[]string{"__complete", "mirror", "sta"}, "status\t"},
		{[]string{"__complete", "mirror", "status", "--controller=" + accountNamespace + "/" + w.account(), w.home}, w.home + "/settings\n"},
		{[]string{"__complete", "mirror", "explain", "--namespace", w.home}, w.home + "\n"},
	} {
		args := test.args
		if args[0] != "__complete" {
			args = append(args, "--kubeconfig="+w.cluster.AdminKubeconfig())
		}
		cmd := w.cluster.Command(w.ctx, w.cluster.Kubectl(), args...)
		cmd.Env = append(cmd.Env, "PATH="+dir, "KUBECONFIG="+w.cluster.AdminKubeconfig())
		out, err := cmd.Output()
		if err != nil || !strings.HasPrefix(string(out), test.want) {
			t.Errorf("kubectl %q: got %q, %v, want something that begins with %q", args, out, err, test.want)
		}
	}
}
