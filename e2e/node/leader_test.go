package node

import (
	"errors"
	"fmt"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/mirror-controller/mirror-controller/e2e/cluster"
)

// TestLeaderGoes edits a source all the time while the leader stops in each way in which it can, and measures the
// longest time that an edit takes to reach all targets. TestC61Paused of e2e/faults has a leader that goes on after its
// Lease has ended, and others there judge the writes.
func TestLeaderGoes(t *testing.T) {
	graceful := 3
	if *strict {
		graceful = 20
	}
	for _, c := range []struct {
		how      string
		replicas int
		times    int
		limit    time.Duration
		stop     func(w *world, leader corev1.Pod)
	}{
		{"the only replica stands still, and the kubelet restarts it", 1, 1, 60 * time.Second, send(syscall.SIGSTOP)},
		{"the leader's Pod is deleted", 2, graceful, 5 * time.Second, func(w *world, leader corev1.Pod) {
			w.Sh("kubectl -n mirror-system delete pod " + leader.Name)
		}},
		{"the leader is killed", 2, 2, 25 * time.Second, send(syscall.SIGKILL)},
		{"a rollout", 2, 2, 5 * time.Second, func(w *world, _ corev1.Pod) {
			w.Sh("kubectl -n mirror-system rollout restart deployment/mirror-controller")
		}},
	} {
		t.Run(c.how, func(t *testing.T) {
			w := newWorld(t)
			w.install(c.replicas)
			var longest time.Duration
			for range c.times {
				leader, old := w.leader()
				longest = max(longest, w.longestGap(func() {
					c.stop(w, leader)
					w.Until("another leader than "+old, func() error { // of another Pod, or of this one, started again
						if _, holder := w.leader(); holder == old {
							return errors.New("it is still the leader")
						}
						return nil
					})
					w.waitRolledOut()
				}))
			}
			w.measured(fmt.Sprintf("longest gap in mirroring, %d times: %s", c.times, c.how), longest, c.limit)
		})
	}
}

// send returns what sends a signal to the controller in a Pod.
func send(sig syscall.Signal) func(*world, corev1.Pod) {
	return func(w *world, pod corev1.Pod) {
		if err := cluster.Kill(w.process(pod), sig); err != nil {
			w.Fatal(err)
		}
	}
}

// longestGap returns the longest time that an edit takes to reach all targets, from the beginning of f to a moment
// after its end.
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
		w.publish("settings", fmt.Sprint("edit ", n))
		longest = max(longest, time.Since(began))
	}
	w.Logf("a gap of %s", longest.Round(10*time.Millisecond))
	return longest
}
