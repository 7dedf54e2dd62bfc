package node

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mirror-controller/mirror-controller/e2e/cluster"
	"github.com/mirror-controller/mirror-controller/e2e/manual"
)

// TestTakeOver adds the component for two replicas to install.yaml. The new leader compares everything, and writes nothing.
func TestTakeOver(t *testing.T) {
	w := newWorld(t)
	w.install()
	one, two := map[string]string{"key": "one"}, map[string]string{"key": "two"}
	w.source("settings", one)
	w.waitInSync("settings", one, targets()...)
	_, before := w.leader()
	audit := cluster.OpenAuditLog(w.node.file("audit.log"))
	mark, err := audit.Mark()
	if err != nil {
		t.Fatal(err)
	}
	w.applyTwo()
	if _, after := w.leader(); after == before {
		t.Fatal("the leader is still the old one")
	}
	w.source("settings", two)
	w.waitInSync("settings", two, targets()...)
	requests, _, err := audit.Since(mark)
	if err != nil {
		t.Fatal(err)
	}
	written := map[string]int{}
	for _, e := range requests {
		ours := e.User.Username == cluster.ServiceAccountUser(system, "mirror-controller") && e.Object.Resource == "configmaps"
		if ours && e.Verb != "get" && e.Verb != "list" && e.Verb != "watch" && e.Response.Code < 300 &&
			!strings.Contains(e.RequestURI, "dryRun=All") { // the self-check changes nothing
			written[e.Verb+" "+e.Object.Namespace+"/"+e.Object.Name]++
		}
	}
	for what, n := range written {
		if n > 1 || !strings.HasPrefix(what, "update ") {
			t.Errorf("%d times %s, for one edit", n, what)
		}
	}
}

// TestLeaderGoes deletes the leader's Pod, kills it and rolls it out while a source is edited all the time: another goes on.
func TestLeaderGoes(t *testing.T) {
	w := newWorld(t)
	w.installTwo()
	var deleted, killed, rolledOut time.Duration
	for range 3 {
		old, holder := w.leader()
		deleted = max(deleted, w.longestGap(func() {
			w.sh("kubectl -n mirror-system delete pod " + old.Name)
			w.waitOther(holder)
		}))
		w.waitRolledOut()
	}
	for range 2 {
		old, holder := w.leader()
		killed = max(killed, w.longestGap(func() {
			w.signal(old, syscall.SIGKILL)
			w.waitOther(holder)
		}))
		w.waitRolledOut()
	}
	for range 2 {
		rolledOut = max(rolledOut, w.longestGap(func() {
			w.sh("kubectl -n mirror-system rollout restart deployment/mirror-controller")
			w.waitRolledOut()
		}))
	}
	w.figure("longest gap in mirroring, leader's Pod deleted", deleted, 5*time.Second)
	w.figure("longest gap in mirroring, leader killed", killed, 25*time.Second)
	w.figure("longest gap in mirroring, rollout", rolledOut, 5*time.Second)
}

// longestGap returns the longest time that an edit took to reach all targets, from the beginning of f to a moment after its end.
func (w *world) longestGap(f func()) (longest time.Duration) {
	w.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	for n, running := 0, true; running; n++ {
		select {
		case <-done:
			running = false // once more
		default:
		}
		began := time.Now()
		w.expectMirrors(fmt.Sprint("edit ", n))
		longest = max(longest, time.Since(began))
	}
	return longest
}

// waitOther waits until another process leads: that of another Pod, or of the same Pod when it has started again.
func (w *world) waitOther(old string) {
	w.Helper()
	w.until("another leader than "+old, func() error {
		if _, holder := w.leader(); holder == old {
			return fmt.Errorf("it is still %s", holder)
		}
		return nil
	})
}

// signal sends a signal to the controller in a Pod.
func (w *world) signal(pod corev1.Pod, sig syscall.Signal) {
	w.Helper()
	if err := cluster.Kill(w.process(pod), sig); err != nil {
		w.Fatal(err)
	}
}

// TestUnknownFlag rolls out a flag that the controller does not know: the old replicas stay at work, until the rollout is
// undone.
func TestUnknownFlag(t *testing.T) {
	w := newWorld(t)
	w.installTwo()
	old := map[string]bool{}
	for _, pod := range w.pods() {
		old[pod.Name] = true
	}
	w.sh(`kubectl -n mirror-system patch deployment mirror-controller --type=json ` +
		`-p '[{"op":"add","path":"/spec/template/spec/containers/0/args/-","value":"--no-such-flag"}]'`)
	w.until("the new Pod fails", func() error {
		for _, pod := range w.pods() {
			for _, c := range pod.Status.ContainerStatuses {
				if ended := c.LastTerminationState.Terminated; !old[pod.Name] && ended != nil && ended.ExitCode == 2 {
					return nil
				}
			}
		}
		return fmt.Errorf("none has ended with exit code 2")
	})
	for _, pod := range w.pods() {
		if delete(old, pod.Name); pod.DeletionTimestamp != nil {
			t.Errorf("%s is being deleted", pod.Name)
		}
	}
	if len(old) > 0 {
		t.Errorf("gone: %v", old)
	}
	data := map[string]string{"key": "one"}
	w.source("settings", data)
	w.waitInSync("settings", data, targets()...)
	w.sh(manual.Commands(w, "deploy/docs/operate.md", "rollout undo"))
	w.waitRolledOut()
	if args := strings.Join(w.pods()[0].Spec.Containers[0].Args, " "); strings.Contains(args, "no-such") {
		t.Errorf("the flag is still there: %s", args)
	}
}

// waitRestarted waits until the kubelet has started the container of a Pod again since then.
func (w *world) waitRestarted(old corev1.Pod) {
	w.Helper()
	w.until("a restart of "+old.Name, func() error {
		pod, err := w.admin.CoreV1().Pods(system).Get(w.ctx, old.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if restarts(*pod) <= restarts(old) || !pod.Status.ContainerStatuses[0].Ready {
			return fmt.Errorf("not yet")
		}
		return nil
	})
}

// TestAloneAndStuck stops the process of the one shipped replica: the kubelet restarts it, and it mirrors again.
func TestAloneAndStuck(t *testing.T) {
	w := newWorld(t)
	w.install()
	pod, _ := w.leader()
	gap := w.longestGap(func() {
		w.signal(pod, syscall.SIGSTOP)
		w.waitRestarted(pod)
	})
	w.figure("longest gap in mirroring, the only replica stuck", gap, 60*time.Second)
}
