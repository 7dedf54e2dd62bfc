package install

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mirror-controller/mirror-controller/e2e/plugin"
	"github.com/mirror-controller/mirror-controller/e2e/policies"
	"github.com/mirror-controller/mirror-controller/e2e/shipped"
	"github.com/mirror-controller/mirror-controller/e2e/suite"
)

// TestChartIsAccepted hands what the chart renders to the API server: the least that is set, and everything.
func TestChartIsAccepted(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		args      []string
		operators int
	}{
		"default":    {[]string{"--set=namespacePrefixes={team-}"}, 0},
		"everything": {[]string{"--values=../packaging/testdata/everything.yaml"}, 4},
	} {
		t.Run(name, func(t *testing.T) {
			namespace := suite.Shared(t).Installed.Namespace
			m, err := policies.NewHelm(t).Template(t.Context(), "accepted", suite.Deployed("chart"), namespace, c.args...)
			if err != nil {
				t.Fatal(err)
			}
			// The account of the Pod would have to be there: TestChartSelfTest makes both.
			m = slices.DeleteFunc(m, func(o *unstructured.Unstructured) bool { return o.GetKind() == "Pod" })
			policies.ExpectAccepted(t, m, c.operators)
		})
	}
}

// charted is a world in which the chart is installed.
type charted struct {
	*plugin.Installed
	helm    shipped.Helm
	release string
}

// installChart installs the chart with values, and with the label and the instance of a world of its own.
func installChart(t *testing.T, values []string, targets ...string) *charted {
	t.Helper()
	w := &charted{Installed: plugin.NewInstalled(t, "chart", targets...), helm: policies.NewHelm(t)}
	w.release = w.Namespace
	w.run(append([]string{"install", w.release, suite.Deployed("chart"), "--create-namespace",
		"--set=mirrorLabel=" + w.Label, "--set=instance=" + w.Instance}, values...)...)
	return w
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
func (w *charted) advice(line string) [][]string {
	w.Helper()
	notes := w.run("get", "notes", w.release)
	_, below, found := strings.Cut(notes, "\n"+line)
	_, below, _ = strings.Cut(below, "\n\n")
	below, _, _ = strings.Cut(strings.ReplaceAll(below, "\\\n", ""), "\n\n")
	var commands [][]string
	for command := range strings.Lines(below) {
		if words := strings.Fields(command); len(words) > 1 && words[0] == "kubectl" {
			commands = append(commands, words[1:])
		}
	}
	if !found || len(commands) == 0 {
		w.Fatalf("the notes have no commands below %q:\n%s", line, notes)
	}
	return commands
}

// follow runs the commands.
func (w *charted) follow(commands [][]string) {
	w.Helper()
	for _, args := range commands {
		if out, err := w.Cluster.KubectlCommand(w.Context(), args...).CombinedOutput(); err != nil {
			w.Fatalf("kubectl %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
}

// waitConfined waits until the self-test in the notes is refused as they say.
func (w *charted) waitConfined() {
	w.Helper()
	test := w.advice("See that the controller is confined")
	w.Until("the self-test is refused", func() error {
		out, err := w.Cluster.KubectlCommand(w.Context(), test[0]...).CombinedOutput()
		says := func(text string) bool { return strings.Contains(string(out), text) }
		if err != nil && says("may only write") && says(suite.Refusal+w.FullName+"-confined'") {
			return nil
		}
		return fmt.Errorf("the answer is %s (%v)", out, err)
	})
}

// TestChartInstalls installs the chart with all policies, runs the controller as its Deployment does, follows the notes,
// and takes all out again.
func TestChartInstalls(t *testing.T) {
	t.Parallel()
	w := installChart(t, []string{"--set=namespacePrefixes={none-}"}, "a", "b")
	w.run("upgrade", w.release, suite.Deployed("chart"), "--reuse-values", "--set=namespacePrefixes={none-,"+w.Prefix+"},replicaCount=2",
		"--set=sourceNamespaces={"+w.Home+"}", "--set=admissionPolicy.protectCopies=true,networkPolicy.enabled=true,dashboard.enabled=true")
	w.waitConfined()
	p := w.Start()
	w.follow(w.advice("Publish a first source"))
	w.WaitInSync(w.Live(w.Home, "hello"), w.NS("a"), w.NS("b"))
	w.Until("the copies are protected", func() error {
		err := w.Admin.CoreV1().ConfigMaps(w.NS("a")).Delete(w.Context(), "hello", policies.DryDelete)
		return policies.InForce(w.FullName+"-protected-copies", err)
	})
	w.follow(w.advice("To delete the copies too"))
	w.WaitGone("hello", w.NS("a"), w.NS("b"))
	w.Policed.Stop(p)

	w.run("uninstall", w.release)
	kinds := "deployments,serviceaccounts,roles,rolebindings,clusterroles,clusterrolebindings,networkpolicies,poddisruptionbudgets," +
		"validatingadmissionpolicies,validatingadmissionpolicybindings"
	left, err := w.Cluster.KubectlCommand(w.Context(), "get", kinds, "--namespace="+w.Namespace, "--output=name",
		"--selector=app.kubernetes.io/instance="+w.release).CombinedOutput()
	if err != nil || len(left) > 0 {
		w.Errorf("left behind: %s (%v)", left, err)
	}
}
