package e2e

import (
	"flag"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes"

	"github.com/mirror-controller/mirror-controller/e2e/cluster"
	"github.com/mirror-controller/mirror-controller/e2e/shipped"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// The chart on a real API server. Package packaging compares its manifests with the kustomizations.

var helmProgram = flag.String("helm", "../bin/helm", "the program helm")

// newHelm returns a helm that talks to the shared cluster.
func newHelm(t *testing.T) shipped.Helm {
	t.Helper()
	program, err := filepath.Abs(*helmProgram)
	if err != nil {
		t.Fatal(err)
	}
	return shipped.Helm{Program: program, Home: t.TempDir(), Kubeconfig: shared.cluster.AdminKubeconfig()}
}

// TestChartIsAccepted hands what the chart renders to the API server: the least that is set, and everything.
func TestChartIsAccepted(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		args      []string
		operators int
	}{
		"default":    {[]string{"--set=namespacePrefixes={team-}"}, 0},
		"everything": {[]string{"--values=packaging/testdata/everything.yaml"}, 3},
	} {
		t.Run(name, func(t *testing.T) {
			m, err := newHelm(t).Template(t.Context(), "accepted", deployed("chart"), shared.installed.Namespace, c.args...)
			if err != nil {
				t.Fatal(err)
			}
			// The account of the Pod would have to be there: TestChartSelfTest makes both.
			m = slices.DeleteFunc(m, func(o *unstructured.Unstructured) bool { return o.GetKind() == "Pod" })
			expectAccepted(t, m, c.operators)
		})
	}
}

// installed is a world with an installation of its own.
type installed struct {
	*policed
	namespace string
	// name is that of all that is installed, account the user as which the controller runs.
	name, account string
}

// newInstalled names an installation, which the caller makes.
func newInstalled(t *testing.T, kind string, targets ...string) *installed {
	t.Helper()
	w := &installed{policed: &policed{newWorld(t, targets...), map[string]kubernetes.Interface{}}}
	w.namespace = kind + "-" + w.instance
	w.name = w.namespace + "-mirror-controller"
	w.account = cluster.ServiceAccountUser(w.namespace, w.name)
	return w
}

// charted is a world in which the chart is installed.
type charted struct {
	*installed
	helm    shipped.Helm
	release string
}

// installChart installs the chart with values, and with the label and the instance of a world of its own.
func installChart(t *testing.T, values []string, targets ...string) *charted {
	t.Helper()
	w := &charted{installed: newInstalled(t, "chart", targets...), helm: newHelm(t)}
	w.release = w.namespace
	w.run(append([]string{"install", w.release, deployed("chart"), "--create-namespace",
		"--set=mirrorLabel=" + w.label, "--set=instance=" + w.instance}, values...)...)
	return w
}

// run runs helm in the namespace of the release, and returns what it prints.
func (w *charted) run(args ...string) string {
	w.Helper()
	out, err := w.helm.Run(w.background(), append(args, "--namespace="+w.namespace)...)
	if err != nil {
		w.Fatal(err)
	}
	return string(out)
}

// start runs the controller as the Deployment does.
func (w *installed) start() *shipped.Process {
	w.Helper()
	as, err := shipped.Deployed(w.ctx, w.cluster, w.namespace, w.name, *binary)
	if err != nil {
		w.Fatal(err)
	}
	p, err := as.Start(shipped.RunOptions{})
	if err != nil {
		w.Fatal(err)
	}
	w.stopAtEnd(p)
	return p
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
		if out, err := w.cluster.KubectlCommand(w.ctx, args...).CombinedOutput(); err != nil {
			w.Fatalf("kubectl %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
}

// waitConfined waits until the self-test in the notes is refused as they say.
func (w *charted) waitConfined() {
	w.Helper()
	test := w.advice("See that the controller is confined")
	w.until("the self-test is refused", func() error {
		out, err := w.cluster.KubectlCommand(w.ctx, test[0]...).CombinedOutput()
		if err != nil && strings.Contains(string(out), "may only write") && strings.Contains(string(out), refusal+w.name+"-confined'") {
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
	w.run("upgrade", w.release, deployed("chart"), "--reuse-values", "--set=namespacePrefixes={none-,"+w.prefix+"},replicaCount=2",
		"--set=sourceNamespaces={"+w.home+"}", "--set=admissionPolicy.protectCopies=true,networkPolicy.enabled=true,dashboard.enabled=true")
	w.waitConfined()
	p := w.start()
	w.follow(w.advice("Publish a first source"))
	w.waitInSync(w.live(w.home, "hello"), w.ns("a"), w.ns("b"))
	w.until("the copies are protected", func() error {
		return inForce(w.name+"-protected-copies", w.admin.CoreV1().ConfigMaps(w.ns("a")).Delete(w.ctx, "hello", dryDelete))
	})
	w.follow(w.advice("To delete the copies too"))
	w.waitGone("hello", w.ns("a"), w.ns("b"))
	w.policed.stop(p)

	w.run("uninstall", w.release)
	kinds := "deployments,serviceaccounts,roles,rolebindings,clusterroles,clusterrolebindings,networkpolicies,poddisruptionbudgets," +
		"validatingadmissionpolicies,validatingadmissionpolicybindings"
	left, err := w.cluster.KubectlCommand(w.ctx, "get", kinds, "--namespace="+w.namespace, "--output=name",
		"--selector=app.kubernetes.io/instance="+w.release).CombinedOutput()
	if err != nil || len(left) > 0 {
		w.Errorf("left behind: %s (%v)", left, err)
	}
}

// TestChartAllNamespaces shows that without prefixes the controller is still held to its own copies, and out of the
// excluded namespaces.
func TestChartAllNamespaces(t *testing.T) {
	t.Parallel()
	w := installChart(t, []string{"--set=allNamespaces=true,admissionPolicy.publishers=false"}, "a")
	w.waitConfined()
	copied, source := shape(w.copied), with(withLabel(w.label, plan.SourceValue))
	w.check(t, w.name+"-confined", []row{
		{"copy created", w.account, w.ns("a"), nil, create(copied), ""},
		{"copy created anywhere", w.account, w.home, nil, create(copied), ""},
		{"copy changed", w.account, w.home, copied, changeBy(other), ""},
		{"copy created in an excluded namespace of all", w.account, excluded, nil, create(copied), notThere},
		{"plain object created", w.account, w.home, nil, create(plain), "would not be a copy of instance"},
		{"source created", w.account, w.home, nil, create(source), "would not be a copy of instance"},
		{"foreign object changed", w.account, w.home, plain, changeBy(other), "is not a copy of instance"},
		{"foreign object deleted", w.account, w.home, plain, remove, "is not a copy of instance"},
		{"source changed", w.account, w.home, source, changeBy(other), "is not a copy of instance"},
	})
}
