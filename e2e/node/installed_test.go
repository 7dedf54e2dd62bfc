package node

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mirror-controller/mirror-controller/e2e/manual"
)

// The controller as it is installed, and its Pods.

// oneReplica and twoReplicas are the two installations. A test keeps that of the test before if it needs the same.
const (
	oneReplica  = "install.yaml"
	twoReplicas = "example"
)

// install applies install.yaml as the documentation says, and waits until the controller is ready.
func (w *world) install() {
	w.Helper()
	w.Cleanup(w.cleanUp)
	if w.installed == oneReplica {
		return
	}
	w.remove()
	w.installed = oneReplica
	file, err := filepath.Abs(filepath.Join(repository, "deploy", "install.yaml"))
	if err != nil {
		w.Fatal(err)
	}
	apply := manual.Commands(w, "deploy/docs/install.md", "resources: [install.yaml]", "PREFIX", "team-", "REGISTRY", "localhost", "TAG", "node")
	if _, err := w.try(w.ctx, w.TempDir(), "cp "+file+" .\n"+apply); err != nil {
		w.Fatal(err)
	}
	w.waitRolledOut()
}

// installTwo is install for the example overlay with two replicas.
func (w *world) installTwo() {
	w.Helper()
	w.Cleanup(w.cleanUp)
	if w.installed != twoReplicas {
		w.remove()
		w.applyTwo()
	}
}

// applyTwo applies the example overlay with the component for two replicas to what is there.
func (w *world) applyTwo() {
	w.Helper()
	w.installed = twoReplicas
	w.applyOverlay(`s|^# \(- .*/high-availability\)$|\1|`)
	if n := len(w.pods()); n != 2 {
		w.Fatalf("there are %d Pods", n)
	}
}

// applyOverlay applies the example overlay as the documentation says, with a short grace and these edits by sed.
func (w *world) applyOverlay(edits ...string) {
	w.Helper()
	dir, err := os.MkdirTemp(w.node.dir, "overlay")
	absolute, err2 := filepath.Abs(filepath.Join(repository, "deploy"))
	if err := errors.Join(err, err2); err != nil {
		w.Fatal(err)
	}
	edits = append(edits, "s|--deletion-grace=5m|--deletion-grace=1s|", "s|newName: .*|newName: localhost/mirror-controller|", "s|newTag: .*|newTag: node|")
	apply := manual.Commands(w, "deploy/docs/install.md", "cp -R deploy/example",
		"# Edit the top of kustomization.yaml here.", "sed -i '"+strings.Join(edits, "; ")+"' kustomization.yaml")
	if !strings.Contains(apply, "sed -i") {
		w.Fatalf("the documentation has no place for edits:\n%s", apply)
	}
	if _, err := w.try(w.ctx, dir, "cp -R "+absolute+" deploy\n"+apply); err != nil {
		w.Fatal(err)
	}
	w.waitRolledOut()
}

// remove removes the controller with all copies as the documentation says for install.yaml, if it is there.
func (w *world) remove() {
	w.Helper()
	if _, err := w.admin.CoreV1().Namespaces().Get(w.ctx, system, metav1.GetOptions{}); err == nil {
		w.sh(manual.Commands(w, "deploy/docs/operate.md", "until left="))
		w.sh(manual.Inline(w, "deploy/docs/operate.md", "kubectl delete -f deploy/install.yaml"))
	}
	w.installed = ""
}

// cleanUp removes the sources, and waits until their copies are gone. After a failure it removes the controller too.
func (w *world) cleanUp() {
	if w.Failed() {
		out, _ := w.try(w.ctx, repository, "kubectl -n mirror-system get pods,lease -o wide; kubectl get events -A | tail -40;"+
			"kubectl -n mirror-system logs -l app.kubernetes.io/name=mirror-controller --prefix --tail=40")
		w.Log(out)
		w.remove()
	}
	w.sh("kubectl delete configmap -n platform --field-selector metadata.name!=kube-root-ca.crt")
	w.waitCommand(`test -z "$(kubectl get configmap -A -l mirror=copy -o name)"`)
}

// waitRolledOut waits until the Pods of the Deployment are ready, and those before them are gone.
func (w *world) waitRolledOut() {
	w.Helper()
	w.waitCommand(manual.Commands(w, "deploy/docs/install.md", "rollout status")) // again, if its own timeout is over
	w.until("old Pods gone", func() error {
		deployment, err := w.admin.AppsV1().Deployments(system).Get(w.ctx, "mirror-controller", metav1.GetOptions{})
		if err != nil {
			return err
		}
		if pods := w.pods(); len(pods) != int(*deployment.Spec.Replicas) {
			return fmt.Errorf("there are %d Pods, want %d", len(pods), *deployment.Spec.Replicas)
		}
		return nil
	})
}

// pods are those of the controller, the oldest first.
func (w *world) pods() []corev1.Pod {
	w.Helper()
	list, err := w.admin.CoreV1().Pods(system).List(w.ctx, metav1.ListOptions{LabelSelector: "app.kubernetes.io/name=mirror-controller"})
	if err != nil {
		w.Fatal(err)
	}
	slices.SortFunc(list.Items, func(a, b corev1.Pod) int { return a.CreationTimestamp.Compare(b.CreationTimestamp.Time) })
	return list.Items
}

// leader is the Pod that holds the Lease, and the identity by which it holds it: each start of a process has its own.
func (w *world) leader() (leader corev1.Pod, holder string) {
	w.Helper()
	w.until("a leader", func() error {
		lease, err := w.admin.CoordinationV1().Leases(system).Get(w.ctx, "mirror-controller", metav1.GetOptions{})
		if err != nil {
			return err
		}
		if lease.Spec.HolderIdentity != nil {
			holder = *lease.Spec.HolderIdentity
			for _, leader = range w.pods() {
				if strings.HasPrefix(holder, leader.Name+"_") {
					return nil
				}
			}
		}
		return fmt.Errorf("no Pod holds it: %v", lease.Spec.HolderIdentity)
	})
	return leader, holder
}

// process is the id of the controller in a Pod.
func (w *world) process(pod corev1.Pod) int {
	w.Helper()
	var pids []int
	w.until("the process of "+pod.Name, func() error {
		if pids = w.node.Processes("mirror-controller", string(pod.UID)); len(pids) != 1 {
			return fmt.Errorf("there are %v", pids)
		}
		return nil
	})
	return pids[0]
}

// restarts is how often the container of a Pod was started again.
func restarts(pod corev1.Pod) int32 {
	if len(pod.Status.ContainerStatuses) != 1 {
		return 0
	}
	return pod.Status.ContainerStatuses[0].RestartCount
}
