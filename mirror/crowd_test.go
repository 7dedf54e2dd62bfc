package mirror

// One bad target, or many, never hold up the others: a controller on an API server that hangs at some of them.

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
)

// crowd runs a controller with 32 slots on an API server that has these objects and hangs when hangs says so.
func crowd(t *testing.T, hangs func(call) bool, objects []runtime.Object, f func(*testing.T, scene)) {
	t.Helper()
	alone(t, func() *apiServer {
		s := newAPIServer(objects...)
		s.hangs = hangs
		return s
	}, func(o *Options) { o.ConcurrentWrites = 32 }, f)
}

// inNamespaces returns n namespaces whose names begin with prefix.
func inNamespaces(n int, prefix string) []runtime.Object {
	var out []runtime.Object
	for i := range n {
		out = append(out, namespace(fmt.Sprintf("%s%03d", prefix, i)))
	}
	return out
}

// fills creates a namespace and returns how long it takes until n copies are there.
func fills(t *testing.T, h scene, name string, n int) time.Duration {
	t.Helper()
	if _, err := h.Interface.CoreV1().Namespaces().Create(t.Context(), namespace(name), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	for time.Since(began) < 10*time.Minute {
		synctest.Wait()
		copies, err := h.Interface.CoreV1().ConfigMaps(name).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if len(copies.Items) == n {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	return time.Since(began)
}

// TestC30HangingTargetIsReported: writes there come to no end, but reads do: it is that target.
func TestC30HangingTargetIsReported(t *testing.T) {
	hangs := func(c call) bool { return c.verb == "create" && c.namespace == "team-bad" }
	objects := []runtime.Object{namespace("platform"), namespace("team-bad"), namespace("team-good"), sourceCM("platform", "settings")}
	crowd(t, hangs, objects, func(t *testing.T, h scene) {
		time.Sleep(5 * time.Minute)
		if h.told(ReasonWriteFailed) != 1 {
			t.Errorf("got events %q in five minutes, want one about the target that hangs", h.reasons)
		}
		before := h.hung.Load()
		time.Sleep(time.Hour)
		if tries := h.hung.Load() - before; tries > 60 {
			t.Errorf("got %d tries in an hour, want one a minute at most", tries)
		}
	})
}

// TestWhatIsNotReachedYetIsPending: a fan-out that goes on is no news of copies in line, neither the first nor the next.
func TestWhatIsNotReachedYetIsPending(t *testing.T) {
	const targets = 100 // more than slots
	var slow atomic.Bool
	hangs := func(c call) bool { return slow.Load() && (c.verb == "create" || c.verb == "update") }
	objects := append(inNamespaces(targets, "team-"), namespace("platform"))
	crowd(t, hangs, objects, func(t *testing.T, h scene) {
		expect := func(what string, synced, pending int) {
			t.Helper()
			synctest.Wait()
			l := h.controller.ledger
			if l.copies(outcomeSynced) != synced || l.copies(outcomePending) != pending {
				t.Errorf("%s: %d in line and %d pending, want %d and %d", what, l.copies(outcomeSynced), l.copies(outcomePending), synced, pending)
			}
		}
		sources := h.Interface.CoreV1().ConfigMaps("platform")
		slow.Store(true)
		if _, err := sources.Create(t.Context(), sourceCM("platform", "settings"), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		expect("the first fan-out", 0, targets)
		slow.Store(false)
		time.Sleep(5 * time.Minute)
		expect("it is through", targets, 0)
		slow.Store(true)
		changed := sourceCM("platform", "settings", data("key", "new"))
		changed.ResourceVersion = "2"
		if _, err := sources.Update(t.Context(), changed, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		expect("the next fan-out", 0, targets)
		slow.Store(false)
		time.Sleep(5 * time.Minute)
		expect("it is through, too", targets, 0)
	})
}

// TestC34HangingServerIsNoRefusal: where nothing is answered, no target is to blame.
func TestC34HangingServerIsNoRefusal(t *testing.T) {
	hangs := func(call) bool { return true }
	objects := []runtime.Object{namespace("platform"), namespace("team-a"), sourceCM("platform", "settings")}
	crowd(t, hangs, objects, func(t *testing.T, h scene) {
		time.Sleep(time.Hour)
		if h.hung.Load() < 50 || h.told(ReasonWriteFailed) > 0 {
			t.Errorf("got %d tries and events %q, want it to be tried, and no word of a refusal", h.hung.Load(), h.reasons)
		}
	})
}

func TestC30HangingTargetsHoldUpNobody(t *testing.T) {
	hangs := func(c call) bool { return c.verb == "create" && strings.HasPrefix(c.namespace, "team-bad-") }
	objects := append(inNamespaces(100, "team-bad-"), namespace("platform"), sourceCM("platform", "settings"))
	crowd(t, hangs, objects, func(t *testing.T, h scene) {
		time.Sleep(4*requestTimeout + time.Second) // until each of them was tried once
		for i := range 20 {
			if took := fills(t, h, fmt.Sprintf("team-good-%d", i), 1); took > time.Second {
				t.Errorf("a new namespace waited %v for its copy", took)
			}
			time.Sleep(7 * time.Second)
		}
	})
}

func TestC34HangingNamespaceLookHoldsUpNobody(t *testing.T) {
	const sources = 40 // more than slots
	hangs := func(c call) bool { return c == call{"get", "namespaces", "team-a"} }
	objects := []runtime.Object{namespace("platform")}
	for i := range sources {
		objects = append(objects, sourceCM("platform", fmt.Sprintf("settings-%d", i)))
	}
	crowd(t, hangs, objects, func(t *testing.T, h scene) {
		fills(t, h, "team-a", sources)
		out := namespace("team-a", DefaultLabel, OptOutValue)
		out.ResourceVersion = "2"
		if _, err := h.Interface.CoreV1().Namespaces().Update(t.Context(), out, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if h.hung.Load() != 1 {
			t.Fatalf("got %d looks at the namespace, want one that hangs", h.hung.Load())
		}
		if took := fills(t, h, "team-c", sources); took > time.Second {
			t.Errorf("a new namespace waited %v for its copies, because another cannot be looked at", took)
		}
	})
}

// TestC35StopDuringALook: no write is begun any more if the stop comes while the source is looked for on whose absence
// the write rests.
func TestC35StopDuringALook(t *testing.T) {
	var stop atomic.Pointer[func()]
	hangs := func(c call) bool {
		if f := stop.Load(); f != nil && c == (call{"get", "configmaps", "platform"}) {
			(*f)()
		}
		return false
	}
	objects := []runtime.Object{namespace("platform"), sourceCM("platform", "settings")}
	crowd(t, hangs, objects, func(t *testing.T, h scene) {
		fills(t, h, "team-a", 1)
		looks := 0
		stop.Store(new(func() { // as when Run's context ends
			looks++
			h.controller.active.Store(false)
		}))
		unlabelled := sourceCM("platform", "settings")
		unlabelled.Labels, unlabelled.ResourceVersion = nil, "2"
		if _, err := h.Interface.CoreV1().ConfigMaps("platform").Update(t.Context(), unlabelled, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if looks != 1 {
			t.Errorf("got %d looks at the source, want 1", looks)
		}
		if _, err := h.Interface.CoreV1().ConfigMaps("team-a").Get(t.Context(), "settings", metav1.GetOptions{}); err != nil {
			t.Errorf("the copy was deleted after the stop: %v", err)
		}
	})
}

// TestC35StopWaitsForNoRead: a stop waits for writes. What was asked is not needed any more, and another is to take over.
func TestC35StopWaitsForNoRead(t *testing.T) {
	optOut := namespace("team-a", DefaultLabel, OptOutValue)
	optOut.ResourceVersion = "2"
	unlabelled := configMap("platform", "settings")
	unlabelled.ResourceVersion = "2"
	for name, tc := range map[string]struct {
		namespace string // in which ConfigMaps cannot be read; empty: namespaces cannot
		happen    func(context.Context, kubernetes.Interface) error
	}{
		"a look at a source": {"platform", func(ctx context.Context, client kubernetes.Interface) error {
			_, err := client.CoreV1().ConfigMaps("platform").Update(ctx, unlabelled, metav1.UpdateOptions{})
			return err
		}},
		"a look at a namespace": {"", func(ctx context.Context, client kubernetes.Interface) error {
			_, err := client.CoreV1().Namespaces().Update(ctx, optOut, metav1.UpdateOptions{})
			return err
		}},
		"a look at what is in the way": {"team-b", func(ctx context.Context, client kubernetes.Interface) error {
			_, err := client.CoreV1().Namespaces().Create(ctx, namespace("team-b"), metav1.CreateOptions{})
			return err
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newAPIServer(namespace("platform"), namespace("team-a"), sourceCM("platform", "settings"), configMap("team-b", "settings"))
				h.hangs = func(c call) bool {
					return c == call{"get", "configmaps", tc.namespace} || tc.namespace == "" && c.verb == "get" && c.resource == "namespaces"
				}
				end := runs(t, newTeamController(t, h))
				if err := tc.happen(t.Context(), h.Interface); err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				if n := h.hung.Load(); n != 1 {
					t.Fatalf("%d reads hang, want 1", n)
				}
				stopped := time.Now()
				end()
				if took := time.Since(stopped); took > 0 {
					t.Errorf("the stop took %v", took)
				}
				if n := h.hung.Load(); n != 1 {
					t.Errorf("%d reads were begun, want 1", n)
				}
			})
		})
	}
}

// TestC29FightsEndWithTheirNamespace: who fought in the old one is not in the new one.
func TestC29FightsEndWithTheirNamespace(t *testing.T) {
	at := cache.ObjectName{Namespace: "team-a", Name: "settings"}
	old := namespace("team-a")
	anew := old.DeepCopy()
	anew.UID = "another"
	for what, event := range map[string]func(*Controller){
		"deleted":   func(c *Controller) { c.namespaceGone(old.Name) },
		"recreated": func(c *Controller) { c.namespaceUpdated(old, anew) },
	} {
		c, _ := metered(t)
		for range 2 * freeRepairs {
			c.fights.wrote(at, "content", false)
		}
		if c.fights.hold(at, "content") == 0 {
			t.Fatal("got no fight")
		}
		event(c)
		if hold := c.fights.hold(at, "content"); hold > 0 {
			t.Errorf("%s: got %v to wait in the new namespace, want nothing", what, hold)
		}
	}
}

// TestNothingIsKeptOfWhatIsOver: whatever was remembered of sources, copies and namespaces goes with them, or the
// process grows over the weeks.
func TestNothingIsKeptOfWhatIsOver(t *testing.T) {
	objects := append(inNamespaces(10, "team-"), namespace("platform"), sourceCM("platform", "settings"))
	crowd(t, func(call) bool { return false }, objects, func(t *testing.T, s scene) {
		synctest.Wait()
		spoil(t, s, "team-000", 3, time.Minute)
		fills(t, s, "team-new", 1)
		remove(t, s, "team-new")
		if err := s.CoreV1().ConfigMaps("platform").Delete(t.Context(), "settings", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(calm + time.Minute)
		synctest.Wait() // what is read below is no longer written
		c := s.controller
		for what, kept := range map[string]int{
			"backlog": len(c.backlog.names), "retries": len(c.retries.targets), "fights": len(c.fights.at), "ledger": len(c.ledger.names),
			"looks at sources": len(c.looks.sources), "looks at namespaces": len(c.looks.namespaces), "sources": len(c.parsed),
			"deletions": len(c.writer.deleting), "latencies of sources": len(c.latencies.sources),
			"latencies of namespaces": len(c.latencies.namespaces),
		} {
			if kept > 0 {
				t.Errorf("%s: got %d things kept, want none", what, kept)
			}
		}
	})
}

// spoil edits the copy in a namespace n times, with this time between.
func spoil(t *testing.T, s scene, namespace string, n int, pause time.Duration) {
	t.Helper()
	copies := s.CoreV1().ConfigMaps(namespace)
	for range n {
		cm, err := copies.Get(t.Context(), "settings", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		cm.Data = map[string]string{"key": "spoilt"}
		cm.ResourceVersion += "0" // as an API server would count
		if _, err := copies.Update(t.Context(), cm, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(pause)
	}
}

// remove deletes a namespace and what is in it.
func remove(t *testing.T, s scene, name string) {
	t.Helper()
	if err := s.CoreV1().Namespaces().Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := s.CoreV1().ConfigMaps(name).Delete(t.Context(), "settings", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	synctest.Wait()
}

// TestSweepForgetsWhatWasReadOfSourcesThatAreGone: their payload with it. A write that began before the end of a source
// may read it once more.
func TestSweepForgetsWhatWasReadOfSourcesThatAreGone(t *testing.T) {
	c, _ := metered(t)
	gone, there := sourceCM("platform", "gone"), sourceCM("platform", "there")
	if err := c.configMaps.GetIndexer().Add(there); err != nil {
		t.Fatal(err)
	}
	c.readSource(gone)
	kept := c.readSource(there)
	c.sweepParsed()
	if len(c.parsed) != 1 || c.readSource(there) != kept {
		t.Errorf("got %v, want what was read of the source that is there, and nothing else", c.parsed)
	}
}
