package install

import (
	"bytes"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mirror-controller/mirror-controller/e2e/cluster"
	"github.com/mirror-controller/mirror-controller/e2e/manual"
	"github.com/mirror-controller/mirror-controller/e2e/plugin"
	"github.com/mirror-controller/mirror-controller/e2e/policies"
	"github.com/mirror-controller/mirror-controller/e2e/shipped"
	"github.com/mirror-controller/mirror-controller/e2e/suite"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// newHelm returns a helm that talks to the shared cluster.
func newHelm(t *testing.T) shipped.Helm {
	t.Helper()
	return shipped.Helm{Home: t.TempDir(), Kubeconfig: suite.Shared(t).Cluster.AdminKubeconfig()}
}

// TestChartIsAccepted hands all that the chart can have to the API server, which validates it strictly and keeps
// nothing.
func TestChartIsAccepted(t *testing.T) {
	t.Parallel()
	m, err := newHelm(t).Template(t.Context(), "accepted", suite.Deployed("chart"), suite.Shared(t).Installed.Namespace,
		"--values=../packaging/testdata/everything.yaml")
	if err != nil {
		t.Fatal(err)
	}
	m = slices.DeleteFunc(m, func(o *unstructured.Unstructured) bool {
		// The account of the Pod would have to be there. Package packaging knows the kinds of the Prometheus operator.
		return o.GetKind() == "Pod" || strings.HasPrefix(o.GetAPIVersion(), "monitoring.coreos.com/")
	})
	kubectlWith(t, m, "kubectl apply --dry-run=server --validate=strict --filename=-")
}

// kubectlWith runs a command of kubectl that reads the objects.
func kubectlWith(t *testing.T, m shipped.Manifests, command string) {
	t.Helper()
	var all bytes.Buffer
	for _, o := range m {
		if err := json.NewEncoder(&all).Encode(o.Object); err != nil {
			t.Fatal(err)
		}
	}
	kubectl := suite.Shared(t).Cluster.Shell(t.Context(), command)
	kubectl.Stdin = &all
	if out, err := kubectl.CombinedOutput(); err != nil {
		t.Errorf("%s: %v:\n%s", command, err, out)
	}
}

// charted is a world in which the chart is installed, as a release with the name of its namespace.
type charted struct {
	*suite.Installation
	helm shipped.Helm
}

// run runs helm in the namespace of the release, and returns what it prints.
func (w *charted) run(args ...string) string {
	w.Helper()
	out, err := w.helm.Run(w.Background(), append(args, "--namespace="+w.Namespace)...)
	if err != nil {
		w.Fatal(err)
	}
	return string(out)
}

// advice returns the commands in the notes that stand below a line that begins so.
func (w *charted) advice(line string) string {
	w.Helper()
	notes := w.run("get", "notes", w.Namespace)
	_, below, found := strings.Cut(notes, "\n"+line)
	_, below, _ = strings.Cut(below, "\n\n")
	if commands, _, _ := strings.Cut(below, "\n\n"); found {
		return commands
	}
	w.Fatalf("the notes have no commands below %q:\n%s", line, notes)
	return ""
}

// TestChartInstalls installs the chart, changes its values, runs the controller as its Deployment does and the test as
// its Pod does, follows the notes, and takes all out again. Case C48.
func TestChartInstalls(t *testing.T) {
	t.Parallel()
	w := &charted{suite.NewInstallation(t, "chart", "a", "b"), newHelm(t)}
	w.run("install", w.Namespace, suite.Deployed("chart"), "--create-namespace", "--set=mirrorLabel="+w.Label,
		"--set=instance="+w.Instance, "--set=namespacePrefixes={none-}")
	w.run("upgrade", w.Namespace, suite.Deployed("chart"), "--reuse-values",
		"--set=namespacePrefixes={"+w.Prefix+",none-}", "--set=sourceNamespaces={"+w.Home+"},serviceAccount.name=theirs",
		"--set=deletionGrace=1s")
	p := w.Start()
	w.testAsTheChart()
	w.Sh(w.advice("Publish a first source"))
	w.WaitInSync(w.Live(w.Home, "hello"), w.NS("a"), w.NS("b"))
	w.Sh(w.advice("Other installations that mirror these"))
	w.WaitGone("hello", w.NS("a"), w.NS("b"))

	source := w.Edit(w.Home, "hello", suite.WithLabel(w.Label, plan.SourceValue))
	w.WaitInSync(source, w.NS("a"), w.NS("b"))
	w.Stop(p)
	purge := w.advice("Beside other installations")
	w.run("uninstall", w.Namespace)
	w.Sh(purging(purge))
	w.WaitGone("hello", w.NS("a"), w.NS("b"))
}

// purging returns commands among which the plug-in, which is not on the path, deletes copies and does not ask.
func purging(commands string) string {
	return withPlugin(strings.ReplaceAll(commands, "kubectl mirror purge", "kubectl mirror purge --yes"))
}

// withPlugin returns commands that find the plug-in, which is not on the path.
func withPlugin(commands string) string {
	return strings.ReplaceAll(commands, "kubectl mirror ", suite.Plugin()+" ")
}

// TestDocsRemoveOneOfSeveral removes, by the commands of the manual, one of two installations that mirror one source.
// Its copy, which was protected, is deleted, and the other's is not touched. Case C89.
func TestDocsRemoveOneOfSeveral(t *testing.T) {
	t.Parallel()
	w := &charted{suite.NewInstallation(t, "blue", "green", "blue"), newHelm(t)}
	w.World.Start("--exclude-namespace=" + w.NS("blue"))
	w.run("install", w.Namespace, suite.Deployed("chart"), "--create-namespace", "--set=mirrorLabel="+w.Label,
		"--set=instance=blue", "--set=namespacePrefixes={"+w.NS("blue")+"}", "--set=admissionPolicy.protectCopies=true")
	blue := w.Start()
	w.WaitInSync(w.CreateSource(w.Home, "settings"), w.NS("green"))
	w.Await("the installation to be removed has its copy", func() bool {
		return len(w.Having([]string{w.NS("blue")}, "settings")) == 1
	})
	others := w.Copies("settings", w.NS("green"))
	w.Stop(blue)
	w.run("uninstall", w.Namespace)
	purge := purging(manual.Commands(t, "deploy/docs/operate.md", "purge --instance=blue",
		"blue-\n", w.NS("blue")+" --mirror-label="+w.Label))
	w.Until("its policy does not protect its copy any more", func() error {
		return w.Cluster.Shell(w.Context(), purge).Run()
	})
	w.WaitGone("settings", w.NS("blue"))
	w.Settle(w.NS("green"))
	w.Untouched(others...)
}

// testAsTheChart runs what `helm test` would run, as the account that it would make: all is checked, no permission is
// missing, and none is idle.
func (w *charted) testAsTheChart() {
	w.Helper()
	hooks, err := shipped.Parse(strings.NewReader(w.run("get", "hooks", w.Namespace)))
	if err != nil {
		w.Fatal(err)
	}
	hooks = slices.DeleteFunc(hooks, func(o *unstructured.Unstructured) bool {
		return o.GetAnnotations()["helm.sh/hook"] != "test"
	})
	kubectlWith(w.T, hooks, "kubectl create --validate=strict --filename=-")
	pods, err1 := shipped.OfKind[corev1.Pod](hooks, "Pod")
	roles, err2 := hooks.Roles()
	if err := errors.Join(err1, err2); err != nil || len(pods) != 1 {
		w.Fatalf("%d Pods: %v", len(pods), err)
	}
	want := "  helm test " + w.Namespace + " --namespace " + w.Namespace
	if got := w.advice("Check the installation"); got != want {
		w.Errorf("the notes have %q, want %q", got, want)
	}
	pod := pods[0].Spec
	mark := w.AuditMark()
	plugin.ExpectPodChecks(w.Installation, pod)
	all, _, err := w.Cluster.Audit().Since(mark)
	if err != nil {
		w.Fatal(err)
	}
	all = slices.DeleteFunc(all, func(e cluster.Event) bool {
		return e.User.Username != cluster.ServiceAccountUser(w.Namespace, pod.ServiceAccountName)
	})
	for _, e := range all {
		if e.As.Username == "" && e.Response.Code >= 400 { // what the controller is refused is what check asks for
			w.Errorf("refused: %v", e)
		}
	}
	var rules []rbacv1.PolicyRule
	for _, role := range roles {
		rules = append(rules, role.Rules...)
	}
	policies.ExpectUsed(w.T, rules, all)
	kubectlWith(w.T, hooks, "kubectl delete --filename=-") // as Helm does
}
