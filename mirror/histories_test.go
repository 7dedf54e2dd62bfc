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

	"github.com/mirror-controller/mirror-controller/mirror/plan"
	"github.com/mirror-controller/mirror-controller/mirror/plan/plantest"
)

// history is what happens to one source and its copies in two namespaces.
type history struct {
	scene
	*rand.Rand
	failing atomic.Pointer[error] // of what the controller creates
	stall   bool
	log     []string
}

// act does one random thing.
func (h *history) act() {
	at := []string{"team-a", "team-b"}[h.IntN(2)]
	acts := []struct {
		name string
		do   func()
	}{
		{"write the source", func() { h.write(source(h.content())) }},
		{"write the source", func() { h.write(source(h.content())) }},
		{"unlabel the source", func() { h.write(plantest.ConfigMap("platform", "settings", h.content())) }},
		{"delete the source", func() { h.remove("platform") }},
		{"edit in " + at, func() { h.edit(at, plantest.Data("key", "spoilt")) }},
		{"strip in " + at, func() { h.edit(at, plantest.Without(plan.DefaultLabel)) }},
		{"strip in " + at, func() { h.edit(at, plantest.Without(plan.DefaultLabel)) }},
		{"delete in " + at, func() { h.remove(at) }},
		{"recreate " + at, func() {
			h.removeNamespace(at)
			time.Sleep(h.pause(4))
			h.addNamespace(at)
		}},
		{"fail or not", func() {
			err := []error{nil, apierrors.NewInternalError(errors.New("etcd")), apierrors.NewForbidden(corev1.Resource("configmaps"), "settings", errors.New("quota"))}[h.IntN(3)]
			h.failing.Store(&err)
		}},
		{"slow or not", h.slow},
		{"slow or not", h.slow},
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

// slow sets how long each answer and each watch takes, from now on.
func (h *history) slow() {
	lags := map[string]time.Duration{"requests": h.lag(), "answers": h.lag(), "configmaps": h.lag(), "namespaces": h.lag()}
	h.delay(func(c call) time.Duration { return lags["requests"] })
	h.afterCall(func(c call) { time.Sleep(lags["answers"]) })
	h.hook(func(o *hooks) { o.lags = func(resource string) time.Duration { return lags[resource] } })
}

// lag returns one of some times by which something is late.
func (h *history) lag() time.Duration {
	return []time.Duration{0, 0, 2 * time.Millisecond, 30 * time.Millisecond, 400 * time.Millisecond, 2 * time.Second}[h.IntN(6)]
}

func (h *history) content() plantest.Option { return plantest.Data("key", strconv.Itoa(h.IntN(3))) }

// pause returns one of the first of some times between two acts.
func (h *history) pause(of int) time.Duration {
	return []time.Duration{time.Millisecond, 20 * time.Millisecond, 25 * time.Millisecond, 300 * time.Millisecond,
		1500 * time.Millisecond, 8 * time.Second, 31 * time.Second, 70 * time.Second}[h.IntN(of)]
}

// end ends all faults, and compares what is there two hours later.
func (h *history) end() {
	h.failing.Store(new(error(nil)))
	h.relist()
	time.Sleep(time.Hour)
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

// leave deletes everything. A process that remembered what is gone would grow over the weeks.
func (h *history) leave() {
	h.remove("platform")
	for _, at := range []string{"team-a", "team-b"} {
		h.removeNamespace(at)
	}
	time.Sleep(time.Hour)
	synctest.Wait()
	c := h.controller
	for what, kept := range map[string]int{
		"status": len(c.status.names), "live reads": len(c.reconciler.confirmer.subjects), "sources": len(c.caches.views),
		"slow namespaces": len(c.reconciler.lanes.slowed), "keys in work": len(c.copies.order.open), "events": len(c.copies.order.named),
	} {
		if kept > 0 {
			h.t.Errorf("%s: got %d things kept, want none", what, kept)
		}
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
				h.scene = s
				h.slow()
				for range 14 {
					h.act()
				}
				h.end()
				if h.leave(); t.Failed() {
					t.Logf("what happened: %q", h.log)
				}
			})
		})
	}
}

// server returns one whose creates of copies fail when the history says so.
func (h *history) server() *apiServer {
	s := newAPIServer(plantest.Namespace("platform"), plantest.Namespace("team-a"), plantest.Namespace("team-b"))
	s.hook(func(o *hooks) {
		o.refuses = func(c call) error {
			if c.verb != "create" {
				return nil
			}
			return *h.failing.Load()
		}
	})
	return s
}
