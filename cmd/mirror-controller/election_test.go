package main

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/mirror-controller/mirror-controller/mirror"
)

// replica is a process that stands for election, with a worker in the place of the controller.
type replica struct {
	t        *testing.T
	lock     *timedLock
	fake     *fakeLock
	watchdog *leaderelection.HealthzAdaptor
	stop     context.CancelFunc
	ready    atomic.Bool
	inFlight time.Duration // how long the last write takes
	winding  time.Duration // how long the work takes to return after that

	valid func() bool
	began time.Time                 // of its term
	ended time.Time                 // of its last write
	lost  atomic.Pointer[time.Time] // when the loss of the lease was first reported to it
	err   chan error
}

// pass lets time pass, and all that happens in it.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func newReplica(t *testing.T, lease *fakeLease, identity string) *replica {
	r := &replica{t: t, watchdog: leaderelection.NewLeaderHealthzAdaptor(stuckTolerance), err: make(chan error, 1)}
	r.ready.Store(true)
	r.lock, r.fake = newTimedLock(lease, identity)
	return r
}

// start runs the replica until its stop is called.
func (r *replica) start() *replica {
	ctx, stop := context.WithCancel(r.t.Context())
	r.stop = stop
	election, err := defaults.newElection(r.lock, r.watchdog, func() {
		now := time.Now()
		r.lost.CompareAndSwap(nil, &now)
	})
	noError(r.t, err)
	go func() { r.err <- election.run(ctx, r.ready.Load, r.work) }()
	synctest.Wait()
	return r
}

// work does what a controller does with its leadership.
func (r *replica) work(ctx context.Context, leadership mirror.Leadership) error {
	r.valid = leadership.Valid
	select {
	case <-ctx.Done():
		return nil
	case term := <-leadership.Begun:
		r.began = time.Now()
		select {
		case <-term.Done():
			r.ended = time.Now()
			return mirror.ErrLeadershipLost
		case <-ctx.Done():
			select {
			case <-time.After(r.inFlight):
			case <-term.Done():
				r.ended = time.Now()
				return mirror.ErrLeadershipLost
			}
			r.ended = time.Now()
			leadership.Resign()
			time.Sleep(r.winding)
			return nil
		}
	}
}

// end stops the replica and returns its error.
func (r *replica) end() error {
	r.stop()
	err := <-r.err
	if lost := r.lost.Load() != nil; lost != errors.Is(err, mirror.ErrLeadershipLost) {
		r.t.Errorf("it ended with error %v, and the loss of the lease was reported: %v", err, lost)
	}
	return err
}

// TestLeaseIsReleasedAfterTheLastWrite stops a leader again and again, because a standby reads the lease at random
// times.
func TestLeaseIsReleasedAfterTheLastWrite(t *testing.T) {
	for range 20 {
		synctest.Test(t, testHandOver)
	}
}

func testHandOver(t *testing.T) {
	lease := &fakeLease{}
	first, second := newReplica(t, lease, "first"), newReplica(t, lease, "second")
	first.inFlight = 25 * time.Second // longer than the lease: it has to be renewed meanwhile
	first.winding = time.Minute       // work without writes holds up no successor
	first.start()
	second.start()
	pass(time.Minute)
	if first.began.IsZero() || !second.began.IsZero() || !first.valid() || second.valid() {
		t.Fatal("not the first leads, and only the first")
	}
	stopped := time.Now()
	noError(t, first.end())
	synctest.Wait()
	if got := first.ended.Sub(stopped); got != first.inFlight {
		t.Errorf("the work ended after %v, want %v", got, first.inFlight)
	}
	if wait := second.began.Sub(first.ended); second.began.IsZero() || wait < 0 || wait > 5*time.Second {
		t.Errorf("the second began %v after the last write of the first, want 0 to 5s", wait)
	}
	noError(t, second.end())
	if lease.holder() != "" {
		t.Errorf("at the end %q has the lease, want that it is given back", lease.holder())
	}
}

// TestLeaseIsReleasedWithoutATerm stops a process that has acquired the lease and does not know it, because the answer
// was lost.
func TestLeaseIsReleasedWithoutATerm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lease := &fakeLease{}
		r := newReplica(t, lease, "us")
		r.fake.forgets = true
		r.start()
		if lease.holder() != "us" || !r.began.IsZero() {
			t.Fatalf("%q has the lease, and its term began at %v", lease.holder(), r.began)
		}
		noError(t, r.end())
		if lease.holder() != "" {
			t.Errorf("%q has the lease, want that it is released", lease.holder())
		}
	})
}

// TestStandsForElectionWhenReady: a process without full caches would hold the lease and do nothing.
func TestStandsForElectionWhenReady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, never := newReplica(t, &fakeLease{}, "us"), newReplica(t, &fakeLease{}, "never")
		r.ready.Store(false)
		never.ready.Store(false)
		r.start()
		never.start()
		pass(time.Hour)
		noError(t, never.end())
		if n := r.fake.requests.Load() + never.fake.requests.Load(); n != 0 {
			t.Errorf("%d requests before it is ready", n)
		}
		r.ready.Store(true)
		pass(time.Second)
		if r.began.IsZero() {
			t.Error("it does not lead when it is ready")
		}
		noError(t, r.end())
	})
}

func TestNamespaceOfTheLease(t *testing.T) {
	defer func(before string) { podNamespaceFile = before }(podNamespaceFile)
	pod, none := writeFile(t, "namespace", "mirror-system\n"), filepath.Join(t.TempDir(), "none")
	for _, test := range []struct {
		elect             bool
		file, given, want string
	}{
		{true, pod, "", "mirror-system"},
		{false, pod, "", "mirror-system"}, // the self-check asks there, too
		{true, pod, "other", "other"},
		{false, none, "", ""}, // TestRefusedArguments has the other one outside a pod
	} {
		podNamespaceFile = test.file
		o := newElectionOptions()
		o.enabled, o.namespace = test.elect, test.given
		if wrong := o.complete(); wrong != nil || o.namespace != test.want {
			t.Errorf("%+v: got %q, %v", test, o.namespace, wrong)
		}
	}
}

// TestLeaseClient shows that the lease has a connection of its own, by HTTP/1.1: a request without an answer then
// closes it.
func TestLeaseClient(t *testing.T) {
	asked := make(chan *http.Request, 10)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked <- r
		http.NotFound(w, r)
	}))
	server.EnableHTTP2 = true
	server.StartTLS()
	defer server.Close()
	config := &rest.Config{Host: server.URL, UserAgent: "us", TLSClientConfig: rest.TLSClientConfig{Insecure: true},
		QPS: 1, Burst: 1}

	o := newElectionOptions()
	if c := o.leaseConfig(config); c.QPS != -1 || c.RateLimiter != nil || c.Timeout != o.renewDeadline/2 {
		t.Errorf("the lease is throttled to %v requests a second, and a request may take %v", c.QPS, c.Timeout)
	}
	o.renewDeadline = time.Hour // on a slow machine no answer comes too late
	lock, err := o.lock(config)
	noError(t, err)
	other, err := o.lock(config)
	noError(t, err)
	_, _ = kubernetes.NewForConfigOrDie(config).CoreV1().ConfigMaps("a").Get(t.Context(), "a", metav1.GetOptions{})
	_, _, _ = lock.Get(t.Context())
	if write, renewal := <-asked, <-asked; write.ProtoMajor != 2 || renewal.ProtoMajor != 1 {
		t.Errorf("writes by %s, lease by %s", write.Proto, renewal.Proto)
	} else if agent := renewal.UserAgent(); agent != "us leader-election" {
		t.Errorf("User-Agent %q", agent)
	}
	if want := time.Hour + o.retryPeriod; lock.term != want {
		t.Errorf("got a term of %v, want %v", lock.term, want)
	}
	host, err := os.Hostname()
	noError(t, err)
	if !strings.HasPrefix(lock.Identity(), host+"_") || lock.Identity() == other.Identity() {
		t.Errorf("identities %q and %q, want the name of the host and something else", lock.Identity(), other.Identity())
	}
}

// TestLostLease has a leader that cannot renew its lease any more: its term ends, and with it the writes in flight,
// also of a leader that is stopping. The lease is left to expire, although it could be released, because the last
// writes may be late.
func TestLostLease(t *testing.T) {
	for name, stops := range map[string]bool{"at work": false, "stopping": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				lease := &fakeLease{}
				first, second := newReplica(t, lease, "first"), newReplica(t, lease, "second")
				first.inFlight = time.Minute
				first.start()
				second.start()
				pass(time.Minute)
				last := time.Now() // a multiple of the retry period after it was first renewed
				first.fake.hinder(func(_ context.Context, record resourcelock.LeaderElectionRecord) error {
					if record.HolderIdentity == "" { // a release
						return nil
					}
					return errors.New("no answer")
				})
				if stops {
					first.stop()
				}
				pass(defaults.term() - 1)
				if !first.valid() {
					t.Error("not valid before the end of the term")
				}
				pass(1)
				if first.valid() {
					t.Error("valid at the end of the term")
				}
				if err := <-first.err; !errors.Is(err, mirror.ErrLeadershipLost) || !strings.Contains(err.Error(), "system/lease") {
					t.Errorf("error %v, want one that names the lease", err)
				}
				if took := first.ended.Sub(last); took != defaults.term() {
					t.Errorf("the term ended %v after the last renewal, want %v", took, defaults.term())
				}
				if lost := first.lost.Load(); lost == nil || !lost.Equal(first.ended) {
					t.Errorf("notified at %v that the lease is lost, want at the end of the term at %v", lost, first.ended)
				}
				if lease.holder() != "first" {
					t.Errorf("%q has the lease, want that it is left to expire", lease.holder())
				}
				pass(15 * time.Second)
				// It may see the last renewal 4.4 s late, and read it again 4.4 s after it has expired for it.
				if wait := second.began.Sub(last); second.began.IsZero() || wait < 15*time.Second || wait > 23800*time.Millisecond {
					t.Errorf("the second began %v after the last renewal of the first, want 15s to 23.8s", wait)
				}
				noError(t, second.end())
			})
		})
	}
}

// TestTakenLease has a leader that finds its lease with another process, or released by it: the term ends with the next
// renewal, and is not continued when the lease is free.
func TestTakenLease(t *testing.T) {
	for _, holder := range []string{"another", ""} {
		t.Run("holder "+holder, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				lease := &fakeLease{}
				r := newReplica(t, lease, "us").start()
				pass(time.Minute) // a multiple of the retry period
				lease.take(holder)
				taken := time.Now()
				if err := <-r.err; !errors.Is(err, mirror.ErrLeadershipLost) {
					t.Errorf("error %v, want that the leadership is lost", err)
				}
				if took := r.ended.Sub(taken); took != defaults.retryPeriod || r.valid() || r.lost.Load() == nil {
					t.Errorf("the term ended after %v; valid %v, lost at %v", took, r.valid(), r.lost.Load())
				}
				if lease.holder() != holder {
					t.Errorf("%q has the lease, want %q", lease.holder(), holder)
				}
			})
		})
	}
}

// TestStuckLeader: a leader whose elector neither renews nor gives up fails its liveness.
func TestStuckLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		leader := newReplica(t, &fakeLease{}, "leader").start()
		pass(time.Minute)
		free := make(chan struct{})
		leader.fake.hinder(func(context.Context, resourcelock.LeaderElectionRecord) error {
			<-free
			return errors.New("too late")
		})
		pass(30 * time.Second)
		if err := leader.watchdog.Check(nil); err != nil {
			t.Errorf("within the tolerance: %v", err)
		}
		pass(10 * time.Second)
		if leader.watchdog.Check(nil) == nil {
			t.Error("a leader that has been stuck for 40 s passes")
		}
		close(free)
		<-leader.err
	})
}
