package mirror

// Short random histories in virtual time, on an API server that refuses what a real one refuses: after each, all copies
// are what they should be, and two quiet hours are quiet. The storm under e2e does the same with real parts and more of
// everything; this does thousands while it does one.

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/mirror-controller/mirror-controller/mirror/plan"
	"github.com/mirror-controller/mirror-controller/mirror/plan/plantest"
)

// strict has the server count resourceVersions and UIDs, and check both as a real one does.
func (s *apiServer) strict() {
	client := s.Interface.(*fake.Clientset)
	versions := 1000
	there := func(a clienttesting.Action, name string) metav1.Object {
		object, err := client.Tracker().Get(a.GetResource(), a.GetNamespace(), name)
		if err != nil {
			return nil
		}
		return object.(metav1.Object)
	}
	client.PrependReactor("*", "*", func(a clienttesting.Action) (refuses bool, _ runtime.Object, err error) {
		resource := corev1.Resource(a.GetResource().Resource)
		versions++
		switch a := a.(type) {
		case clienttesting.CreateActionImpl:
			object := a.GetObject().(metav1.Object)
			object.SetResourceVersion(strconv.Itoa(versions))
			object.SetUID(types.UID("uid-" + strconv.Itoa(versions)))
			object.SetCreationTimestamp(metav1.Now())
		case clienttesting.UpdateActionImpl:
			object := a.GetObject().(metav1.Object)
			before := there(a, object.GetName())
			if before == nil {
				return false, nil, nil
			}
			if rv := object.GetResourceVersion(); rv != "" && rv != before.GetResourceVersion() {
				return true, nil, apierrors.NewConflict(resource, object.GetName(), nil)
			}
			object.SetResourceVersion(strconv.Itoa(versions))
			object.SetUID(before.GetUID())
			object.SetCreationTimestamp(before.GetCreationTimestamp())
		case clienttesting.DeleteActionImpl:
			before, p := there(a, a.GetName()), a.DeleteOptions.Preconditions
			if before != nil && p != nil && (*p.UID != before.GetUID() || *p.ResourceVersion != before.GetResourceVersion()) {
				return true, nil, apierrors.NewConflict(resource, a.GetName(), nil)
			}
		}
		return false, nil, nil
	})
}

// history is what happens to one source and its copies in two namespaces.
type history struct {
	t *testing.T
	scene
	*rand.Rand
	failing atomic.Pointer[error] // of what the controller creates
	stall   bool
	log     []string
}

// act does one random thing.
func (h *history) act() {
	ctx, at := h.t.Context(), []string{"team-a", "team-b"}[h.IntN(2)]
	acts := []struct {
		name string
		do   func()
	}{
		{"write the source", func() { h.write("platform", plantest.Source("platform", "settings", h.content())) }},
		{"write the source", func() { h.write("platform", plantest.Source("platform", "settings", h.content())) }},
		{"unlabel the source", func() { h.write("platform", plantest.ConfigMap("platform", "settings", h.content())) }},
		{"delete the source", func() { h.remove("platform") }},
		{"edit in " + at, func() { h.edit(at, func(cm *corev1.ConfigMap) { cm.Data = map[string]string{"key": "spoilt"} }) }},
		{"strip in " + at, func() { h.edit(at, func(cm *corev1.ConfigMap) { delete(cm.Labels, plan.DefaultLabel) }) }},
		{"strip in " + at, func() { h.edit(at, func(cm *corev1.ConfigMap) { delete(cm.Labels, plan.DefaultLabel) }) }},
		{"delete in " + at, func() { h.remove(at) }},
		{"recreate " + at, func() {
			h.remove(at)
			_ = h.Interface.CoreV1().Namespaces().Delete(ctx, at, metav1.DeleteOptions{})
			time.Sleep(h.pause(4))
			h.remove(at) // what was made there meanwhile
			_, _ = h.Interface.CoreV1().Namespaces().Create(ctx, plantest.Namespace(at), metav1.CreateOptions{})
		}},
		{"fail or not", func() {
			err := []error{nil, apierrors.NewInternalError(errors.New("etcd")), apierrors.NewForbidden(corev1.Resource("configmaps"), "settings", errors.New("quota"))}[h.IntN(3)]
			h.failing.Store(&err)
		}},
		{"stall " + at + ", or relist", func() {
			if h.stall = !h.stall; h.stall {
				h.stalled.Store(&at)
			} else {
				h.relist()
			}
		}},
	}
	act := acts[h.IntN(len(acts))]
	act.do()
	pause := h.pause(8)
	h.log = append(h.log, fmt.Sprintf("%s +%v", act.name, pause))
	time.Sleep(pause)
}

func (h *history) content() plantest.Option { return plantest.Data("key", strconv.Itoa(h.IntN(3))) }

// pause returns one of the first of some times between two acts.
func (h *history) pause(of int) time.Duration {
	return []time.Duration{time.Millisecond, 20 * time.Millisecond, 25 * time.Millisecond, 300 * time.Millisecond,
		1500 * time.Millisecond, 8 * time.Second, 31 * time.Second, 70 * time.Second}[h.IntN(of)]
}

func (h *history) write(at string, cm *corev1.ConfigMap) {
	cm.ResourceVersion, cm.UID = "", ""
	if _, err := h.configMaps(at).Update(h.t.Context(), cm, metav1.UpdateOptions{}); err != nil {
		noted[*corev1.ConfigMap](h.t)(h.configMaps(at).Create(h.t.Context(), cm, metav1.CreateOptions{}))
	}
}

func (h *history) edit(at string, edit func(*corev1.ConfigMap)) {
	if cm, err := h.configMaps(at).Get(h.t.Context(), "settings", metav1.GetOptions{}); err == nil {
		cm = cm.DeepCopy()
		edit(cm)
		noted[*corev1.ConfigMap](h.t)(h.configMaps(at).Update(h.t.Context(), cm, metav1.UpdateOptions{}))
	}
}

func (h *history) remove(at string) {
	_ = h.configMaps(at).Delete(h.t.Context(), "settings", metav1.DeleteOptions{}) // if it is there
}

// end ends all faults, and compares what is there two hours later.
func (h *history) end() {
	h.failing.Store(new(error(nil)))
	for range 2 { // of what happens between a list and its watch the fake clientset's watch shows nothing
		h.relist()
		time.Sleep(time.Hour)
	}
	asked := func() map[call]int {
		h.apiServer.mu.Lock()
		defer h.apiServer.mu.Unlock()
		return maps.Clone(h.calls)
	}
	before := asked()
	time.Sleep(2 * time.Hour)
	if after := asked(); !maps.Equal(before, after) {
		h.t.Errorf("got requests in two quiet hours: %v, then %v", before, after)
	}
	src, err := h.configMaps("platform").Get(h.t.Context(), "settings", metav1.GetOptions{})
	wanted := err == nil && src.Labels[plan.DefaultLabel] == plan.SourceValue
	for _, at := range []string{"team-a", "team-b"} {
		cm, err := h.configMaps(at).Get(h.t.Context(), "settings", metav1.GetOptions{})
		switch {
		case !wanted && err == nil && cm.Labels[plan.DefaultLabel] != "": // without the label it counts as released
			h.t.Errorf("%s: got %v, want nothing there", at, cm)
		case wanted && (err != nil || cm.Data["key"] != src.Data["key"] || cm.Labels[plan.DefaultLabel] != plan.CopyValue):
			h.t.Errorf("%s: got %v, %v, want a copy with %v", at, cm, err, src.Data)
		}
	}
	synctest.Wait() // what is read below is no longer written
	c := h.controller
	for _, n := range c.status.names {
		for at, r := range n.targets {
			if !r.notBefore.IsZero() || r.waits {
				h.t.Errorf("got the record %+v left at %s", *r, at)
			}
		}
	}
	if len(c.reconciler.confirmer.subjects)+c.copies.Len()+c.sources.Len() > 0 {
		h.t.Errorf("got left over: %d live reads, %d keys, %d names", len(c.reconciler.confirmer.subjects), c.copies.Len(), c.sources.Len())
	}
}

// histories is how many histories a test plays: $HISTORIES, or 100.
func histories() int {
	if n, err := strconv.Atoi(os.Getenv("HISTORIES")); err == nil {
		return n
	}
	return 100
}

// TestRandomHistories plays many. The seed of one that fails is in its name.
func TestRandomHistories(t *testing.T) {
	for seed := range uint64(histories()) {
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			h := &history{Rand: rand.New(rand.NewPCG(seed, 1))}
			h.failing.Store(new(error(nil)))
			alone(t, h.server, func(*Options) {}, func(t *testing.T, s scene) {
				h.t, h.scene = t, s
				for range 14 {
					h.act()
				}
				if h.end(); t.Failed() {
					t.Logf("what happened: %q", h.log)
				}
			})
		})
	}
}

// server returns one whose creates of copies fail when the history says so.
func (h *history) server() *apiServer {
	s := newAPIServer(plantest.Namespace("platform"), plantest.Namespace("team-a"), plantest.Namespace("team-b"))
	s.strict()
	s.refuse(func(c call) error {
		if c.verb != "create" {
			return nil
		}
		return *h.failing.Load()
	})
	return s
}

// noted returns a function that fails the test if a call failed.
func noted[T any](t *testing.T) func(T, error) {
	return func(_ T, err error) {
		t.Helper()
		if err != nil {
			t.Error(err)
		}
	}
}
