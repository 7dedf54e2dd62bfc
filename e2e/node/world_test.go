package node

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mirror-controller/mirror-controller/e2e/manual"
	"github.com/mirror-controller/mirror-controller/e2e/outside"
	"github.com/mirror-controller/mirror-controller/e2e/suite"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// repository is the folder of the Makefile.
var repository, _ = filepath.Abs("../..") // fails where there is no working directory

const (
	// image is the name under which the node has the image of the controller.
	image = "localhost/mirror-controller:node"
	// system is the namespace of the controller.
	system = "mirror-system"
)

// strict is set in `make bench BENCH=node`, which takes a machine that does nothing else.
var strict = flag.Bool("strict", false, "fail above the limit of a time, and repeat a graceful stop 20 times")

// shared is the node of all tests. They run one after the other, and each leaves it as it was.
var shared machine

// machine is a cluster of one node, and a watch on it from outside.
type machine struct {
	node     *Node
	site     suite.Site
	targets  []string // a hundred, for all tests: to delete them would take longer than all that is tested
	replicas int      // how the controller is installed; 0 if it is not
}

func TestMain(m *testing.M) {
	if err := Enter(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	flag.Parse()
	code, err := 1, shared.start()
	if err == nil {
		code = m.Run()
	}
	if err := errors.Join(err, shared.node.Stop()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// start starts the node.
func (m *machine) start() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
	defer cancel()
	var err error
	if m.node, err = Start(ctx, repository, image); err != nil {
		return err
	}
	m.site = suite.Site{Admin: m.node.client, Shell: m.node.Shell}
	m.site.Seen, err = outside.Observe(context.Background(), m.site.Admin)
	return err
}

// measured logs a time, which -strict has fail the test above the limit.
func (w *world) measured(what string, took, limit time.Duration) {
	w.Helper()
	w.Logf("%s: %s, limit %s", what, took.Round(10*time.Millisecond), limit)
	if *strict && took > limit {
		w.Error("above the limit")
	}
}

// world is the cluster as a world in which the controller is installed, in Pods.
type world struct {
	*suite.World
	*machine
}

// newWorld returns the cluster without sources and copies, as the test leaves it again.
func newWorld(t *testing.T) *world {
	w := &world{suite.InstalledAt(t, &shared.site), &shared}
	w.Patience = patience
	if w.targets == nil {
		w.targets = w.CreateMany(100)
	}
	t.Cleanup(w.cleanUp)
	return w
}

// untilSucceeds waits until a command of the shell does.
func (w *world) untilSucceeds(command string) {
	w.Helper()
	w.Until(command, func() error {
		out, err := w.Shell(w.Background(), command).CombinedOutput()
		if err != nil {
			err = fmt.Errorf("%w\n%s", err, out)
		}
		return err
	})
}

// publish creates a source in the home namespace, or changes its data, and waits until all targets have it. The removal
// of a controller leaves the source without its label.
func (w *world) publish(name, value string) {
	w.Helper()
	if w.Live(w.Home, name) == nil {
		w.Create(w.Home, name)
	}
	source := w.Edit(w.Home, name, suite.WithLabel(w.Label, plan.SourceValue), suite.WithKey("key", value))
	w.WaitInSync(source, w.targets...)
}

// install removes what another test has installed, if it needs something else, and applies for one replica install.yaml
// as the documentation says, for two the example overlay.
func (w *world) install(replicas int) {
	w.Helper()
	if w.replicas == replicas {
		return
	}
	w.remove()
	if w.replicas = replicas; replicas == 2 {
		w.applyOverlay(twoReplicas)
		return
	}
	apply := manual.Commands(w, "deploy/docs/install.md", "resources: [install.yaml]",
		"PREFIX", "team-", "REGISTRY", "localhost", "TAG", "node")
	shorter := "sed '" + shortGrace + "' " + repository + "/deploy/install.yaml >install.yaml\n"
	w.Sh("cd " + w.TempDir() + "\n" + shorter + apply)
	w.waitRolledOut()
}

// shortGrace is the edit for tests that wait for deletions.
const shortGrace = "s|--deletion-grace=5m|--deletion-grace=1s|"

// twoReplicas is the edit of the example overlay for two replicas.
const twoReplicas = `s|^# \(- .*/high-availability\)$|\1|`

// applyOverlay applies the example overlay as the documentation says, with a short grace and these edits by sed.
func (w *world) applyOverlay(edits ...string) {
	w.Helper()
	edits = append(edits, shortGrace,
		"s|newName: .*|newName: localhost/mirror-controller|", "s|newTag: .*|newTag: node|")
	const place = "# Edit the top of kustomization.yaml here."
	apply := manual.Commands(w, "deploy/docs/install.md", "cp -R deploy/example",
		place, "sed -i '"+strings.Join(edits, "; ")+"' kustomization.yaml")
	if !strings.Contains(apply, "sed -i") {
		w.Fatalf("the documentation has no line %q:\n%s", place, apply)
	}
	w.Sh("cd " + w.TempDir() + "\ncp -R " + repository + "/deploy .\n" + apply)
	w.waitRolledOut()
}

// remove removes the controller with all copies as the documentation says for install.yaml, if it is there.
func (w *world) remove() {
	w.Helper()
	if w.replicas > 0 {
		w.replicas = 0
		w.Sh(manual.Commands(w, "deploy/docs/operate.md", "until left="))
		w.Sh(manual.Inline(w, "deploy/docs/operate.md", "kubectl delete -f deploy/install.yaml"))
	}
}

// cleanUp removes the sources, and waits until their copies are gone. After a failure it removes the controller and the
// copies, which the controller may not do any more.
func (w *world) cleanUp() {
	if w.Failed() {
		const show = "kubectl -n mirror-system get pods,lease -o wide; kubectl get events -A | tail -40;" +
			"kubectl -n mirror-system logs -l app.kubernetes.io/name=mirror-controller --prefix --tail=40"
		out, _ := w.Shell(w.Background(), show).CombinedOutput()
		w.Log(string(out))
		w.Sh("kubectl delete -f deploy/install.yaml --ignore-not-found; kubectl delete configmap -A -l mirror=copy")
		w.replicas = 0
	}
	w.Sh("kubectl delete configmap -n platform --field-selector metadata.name!=kube-root-ca.crt")
	w.untilSucceeds(`test -z "$(kubectl get configmap -A -l mirror=copy -o name)"`)
}

// waitRolledOut waits until the Pods of the Deployment are ready, and those before them are gone.
func (w *world) waitRolledOut() {
	w.Helper()
	w.untilSucceeds(manual.Commands(w, "deploy/docs/install.md", "rollout status")) // again, if its own timeout is over
	w.Until("old Pods gone", func() error {
		deployment, err := w.Admin.AppsV1().Deployments(system).Get(w.Background(), "mirror-controller", metav1.GetOptions{})
		if err != nil {
			return err
		}
		if pods := w.pods(); len(pods) != int(*deployment.Spec.Replicas) {
			return fmt.Errorf("there are %d Pods, want %d", len(pods), *deployment.Spec.Replicas)
		}
		return nil
	})
}

// pods are those of the controller.
func (w *world) pods() []corev1.Pod {
	w.Helper()
	list, err := w.Admin.CoreV1().Pods(system).List(w.Background(),
		metav1.ListOptions{LabelSelector: "app.kubernetes.io/name=mirror-controller"})
	if err != nil {
		w.Fatal(err)
	}
	return list.Items
}

// leader is the Pod that holds the Lease, and the identity by which it holds it: each start of a process has its own.
func (w *world) leader() (leader corev1.Pod, holder string) {
	w.Helper()
	w.Until("a leader", func() error {
		lease, err := w.Admin.CoordinationV1().Leases(system).Get(w.Background(), "mirror-controller", metav1.GetOptions{})
		if err != nil || lease.Spec.HolderIdentity == nil {
			return errors.Join(err, errors.New("nobody holds the Lease"))
		}
		holder = *lease.Spec.HolderIdentity
		pods := w.pods()
		i := slices.IndexFunc(pods, func(p corev1.Pod) bool { return strings.HasPrefix(holder, p.Name+"_") })
		if i < 0 {
			return fmt.Errorf("no Pod holds the Lease, but %q", holder)
		}
		leader = pods[i]
		return nil
	})
	return leader, holder
}

// process is the id of the controller in a Pod. The name of its cgroup has the UID of the Pod.
func (w *world) process(pod corev1.Pod) (pid int) {
	w.Helper()
	w.Until("the process of "+pod.Name, func() error {
		folders, _ := filepath.Glob("/proc/[0-9]*")
		for _, folder := range folders {
			groups, _ := os.ReadFile(filepath.Join(folder, "cgroup"))
			program, _ := os.Readlink(filepath.Join(folder, "exe"))
			if strings.Contains(string(groups), string(pod.UID)) && filepath.Base(program) == "mirror-controller" {
				_, err := fmt.Sscanf(folder, "/proc/%d", &pid)
				return err
			}
		}
		return errors.New("there is none")
	})
	return pid
}
