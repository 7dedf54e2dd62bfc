package main

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"

	"github.com/mirror-controller/mirror-controller/mirror"
	"github.com/mirror-controller/mirror-controller/mirror/apitest"
)

// TestC79NoLeaseWhileInterrupted: a leader whose watch is interrupted renews its
// Lease for five minutes, and not longer. Another replica leads then, and the
// Lease is not given back before, because the last writes may be late.
func TestC79NoLeaseWhileInterrupted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lease := &fakeLease{}
		first, second := newReplica(t, lease, "first"), newReplica(t, lease, "second")
		first.start()
		second.start()
		pass(time.Hour)
		for _, short := range []time.Duration{4 * time.Minute, maxInterrupted + defaults.renewDeadline/2} {
			first.blind.Store(time.Now().UnixNano())
			pass(short)
			first.blind.Store(0)
			pass(time.Minute)
			if lease.holder() != "first" || !second.began.IsZero() {
				t.Fatalf("after %v: %q has the lease, want the first", short, lease.holder())
			}
		}
		interrupted := time.Now()
		first.blind.Store(interrupted.UnixNano())
		if err := <-first.err; !errors.Is(err, mirror.ErrLeadershipLost) {
			t.Errorf("error %v, want that the leadership is lost", err)
		}
		took := first.ended.Sub(interrupted)
		longest := maxInterrupted + defaults.retryPeriod + defaults.renewDeadline
		if took < maxInterrupted || took > longest {
			t.Errorf("the term ended after %v, want %v to %v", took, maxInterrupted, longest)
		}
		pass(30 * time.Second)
		if second.began.Before(first.ended) {
			t.Errorf("the second began at %v, want after %v", second.began, first.ended)
		}
		noError(t, second.end())
	})
}

// TestC79InterruptedAndStopped: a leader that is stopped gives its Lease back, also
// while it does not renew it.
func TestC79InterruptedAndStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lease := &fakeLease{}
		leader := newReplica(t, lease, "leader").start()
		leader.blind.Store(time.Now().UnixNano())
		pass(maxInterrupted + defaults.renewDeadline/2)
		noError(t, leader.end())
		if holder := lease.holder(); holder != "" {
			t.Errorf("%q has the lease, want that it is given back", holder)
		}
	})
}

// TestC79InterruptedStandby: a standby whose watch is interrupted does not acquire
// a Lease that is released, has expired, or is not there, and leads when the watch
// is established again. One that is stopped meanwhile stops.
func TestC79InterruptedStandby(t *testing.T) {
	for name, record := range map[string]*resourcelock.LeaderElectionRecord{
		"released":  {LeaseDurationSeconds: 1},
		"expired":   {HolderIdentity: "first", LeaseDurationSeconds: 15},
		"not there": nil,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				lease := &fakeLease{record: record, version: 1}
				second, third := newReplica(t, lease, "second"), newReplica(t, lease, "third")
				if record == nil {
					lease.version = 0
				}
				since := time.Now().Add(-maxInterrupted).UnixNano()
				second.blind.Store(since)
				third.blind.Store(since)
				second.start()
				third.start()
				pass(time.Hour)
				noError(t, third.end())
				if lease.record != record {
					t.Fatalf("%q has the lease, want that nobody writes it", lease.holder())
				}
				second.blind.Store(0)
				pass(6 * time.Second)
				if lease.holder() != "second" || second.began.IsZero() {
					t.Errorf("%q has the lease, want the second", lease.holder())
				}
				noError(t, second.end())
			})
		})
	}
}

// pod is a process that is started again when it ends.
type pod struct {
	name   string
	hooks  atomic.Pointer[apitest.Hooks]
	logger klog.Logger
	// process is the one that runs.
	process atomic.Pointer[mirror.Controller]
	ends    atomic.Int32
	gone    chan struct{}
}

// noEvents receives events.
type noEvents struct{}

func (noEvents) Send(context.Context, mirror.Event) error { return nil }

// startPod starts a pod, which runs until ctx ends.
func startPod(ctx context.Context, t *testing.T, name string, server *apitest.Server, lease *fakeLease) *pod {
	p := &pod{
		name:   name,
		gone:   make(chan struct{}),
		logger: ktesting.NewLogger(ktesting.NopTL{}, ktesting.NewConfig(ktesting.BufferLogs(true), ktesting.Verbosity(0))),
	}
	p.hooks.Store(&apitest.Hooks{})
	ctx = klog.NewContext(ctx, p.logger)
	go func() {
		defer close(p.gone)
		for started := 1; ctx.Err() == nil; started++ {
			if p.run(ctx, t, fmt.Sprintf("%s, %d", name, started), server, lease) == nil {
				continue
			}
			p.ends.Add(1)
			select { // as a kubelet waits
			case <-time.After(10 * time.Second):
			case <-ctx.Done():
			}
		}
	}()
	pass(5 * time.Second)
	return p
}

// run runs one process.
func (p *pod) run(ctx context.Context, t *testing.T, identity string, server *apitest.Server, lease *fakeLease) error {
	opts := newOptions()
	opts.NamespacePrefixes = []string{"team-"}
	controller, err := mirror.New(server.Apart(&p.hooks), noEvents{}, opts.Options)
	noError(t, err)
	p.process.Store(controller)
	lock := &fakeLock{lease: lease, identity: identity}
	watchdog := leaderelection.NewLeaderHealthzAdaptor(stuckTolerance)
	election, err := defaults.newElection(lock, controller.Interrupted, watchdog)
	noError(t, err)
	return election.run(ctx, canLead(controller), controller.Run)
}

func (p *pod) log() string { return p.logger.GetSink().(ktesting.Underlier).GetBuffer().String() }

// world is an API server, its Lease, and two pods.
type world struct {
	t             *testing.T
	server        *apitest.Server
	lease         *fakeLease
	first, second *pod
}

func inWorld(f func(*world)) func(*testing.T) {
	return func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			namespace := func(name string) *corev1.Namespace {
				return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, UID: "1"}}
			}
			w := &world{t: t, lease: &fakeLease{}}
			w.server = apitest.NewServer(namespace("platform"), namespace("team-a"))
			ctx, stop := context.WithCancel(t.Context())
			w.first = startPod(ctx, t, "first", w.server, w.lease)
			w.second = startPod(ctx, t, "second", w.server, w.lease)
			pass(time.Minute)
			f(w)
			stop()
			<-w.first.gone
			<-w.second.gone
			for _, what := range w.server.Unsafe() {
				t.Error(what)
			}
		})
	}
}

// interrupt interrupts the watch of a resource, of these pods.
func (w *world) interrupt(way apitest.Interruption, resource string, pods ...*pod) {
	for _, p := range pods {
		h := &apitest.Hooks{}
		way.Of(resource)(h)
		p.hooks.Store(h)
	}
	w.server.ConfigMaps.Expire()
	w.server.Namespaces.Expire()
}

// publish makes a source of this name, and reports whether it has a copy within a
// time.
func (w *world) publish(name string, within time.Duration) bool {
	w.t.Helper()
	source := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		Namespace: "platform", Name: name, Labels: map[string]string{"mirror": "true"},
	}}
	_, err := w.server.Interface.CoreV1().ConfigMaps("platform").Create(w.t.Context(), source, metav1.CreateOptions{})
	noError(w.t, err)
	pass(within)
	_, err = w.server.ConfigMaps.Get(apitest.Key{Namespace: "team-a", Name: name})
	return err == nil
}

// ended fails the test unless the pods have ended this often.
func (w *world) ended(first, second int32) {
	w.t.Helper()
	if w.first.ends.Load() != first || w.second.ends.Load() != second {
		w.t.Errorf("the first ended %d times and the second %d, want %d and %d",
			w.first.ends.Load(), w.second.ends.Load(), first, second)
	}
}

// holds fails the test unless a pod has the Lease; empty: nobody renews it.
func (w *world) holds(pod string) {
	w.t.Helper()
	w.lease.mu.Lock()
	version := w.lease.version
	w.lease.mu.Unlock()
	pass(time.Minute)
	w.lease.mu.Lock()
	renewed := w.lease.version > version
	w.lease.mu.Unlock()
	if renewed != (pod != "") || !strings.HasPrefix(w.lease.holder(), pod) {
		w.t.Errorf("%q has the lease, and it is renewed: %v; want %q", w.lease.holder(), renewed, pod)
	}
}

// TestC79Replicas: a watch of the leader, or of both replicas, is interrupted in
// each way that is known. If pages can be listed the leader leads on. Else a
// standby whose watches work leads after five minutes; if there is none nobody
// does, until the cause is gone. No process ends twice, and one that starts anew
// does not stand for election, and is not ready.
func TestC79Replicas(t *testing.T) {
	const soon, long = 2 * time.Minute, 20 * time.Minute
	for name, way := range apitest.Interruptions {
		for _, resource := range []string{"configmaps", "namespaces"} {
			t.Run(name+", "+resource+", of the leader", inWorld(func(w *world) {
				leader, ends := "second", int32(1)
				if way.Lists() {
					leader, ends = "first", 0
				}
				w.interrupt(way, resource, w.first)
				pass(6 * time.Minute)
				w.holds(leader)
				if !w.publish("settings", soon) {
					t.Error("got no copy, want one")
				}
				pass(long)
				w.holds(leader)
				w.ended(ends, 0)
				if ready := w.first.process.Load().Synced(); ready != way.Lists() {
					t.Errorf("the first is ready: %v, want %v", ready, way.Lists())
				}
			}))
			if way.Lists() {
				continue
			}
			t.Run(name+", "+resource+", of both", inWorld(func(w *world) {
				w.interrupt(way, resource, w.first, w.second)
				pass(6 * time.Minute)
				w.holds("")
				if w.publish("settings", long) {
					t.Error("got a copy, want none from old data")
				}
				w.holds("")
				w.ended(1, 0)
				waits := regexp.MustCompile("Neither acquiring nor renewing")
				for _, p := range []*pod{w.first, w.second} {
					if n := len(waits.FindAllString(p.log(), -1)); n != 1 {
						t.Errorf("%s: got %d lines that the Lease is not renewed, want 1", p.name, n)
					}
				}
				w.first.hooks.Store(&apitest.Hooks{})
				w.second.hooks.Store(&apitest.Hooks{})
				if pass(soon); !w.publish("more", soon) {
					t.Error("got no copy when the cause is gone, want one")
				}
				w.ended(1, 0)
			}))
		}
	}
}

// TestC79WatchesAloneAreRefused, and lists are not, for both replicas: the leader
// ends after five minutes, and no process leads and ends again and again.
func TestC79WatchesAloneAreRefused(t *testing.T) {
	inWorld(func(w *world) {
		for _, p := range []*pod{w.first, w.second} {
			p.hooks.Store(&apitest.Hooks{Refuses: func(c apitest.Call) error {
				if c.Verb == "watch" {
					return errors.New("refused")
				}
				return nil
			}})
		}
		w.server.ConfigMaps.Expire()
		w.server.Namespaces.Expire()
		pass(20 * time.Minute)
		w.holds("")
		w.ended(1, 0)
	})(t)
}
