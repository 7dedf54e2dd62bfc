package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/mirror-controller/mirror-controller/mirror"
)

// fakeLease is a lease as the API server keeps it: a write that was not judged by its last version is refused.
type fakeLease struct {
	mu      sync.Mutex
	record  *resourcelock.LeaderElectionRecord
	version int
}

// hinder does something before a write is done; its error is the answer.
type hinder func(ctx context.Context, record resourcelock.LeaderElectionRecord) error

// fakeLock is the way of one process to a lease.
type fakeLock struct {
	lease    *fakeLease
	identity string
	seen     int
	requests atomic.Int32
	hindered atomic.Value // a hinder, before a write is done
}

var leases = coordinationv1.Resource("leases")

func (l *fakeLock) Get(context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	l.requests.Add(1)
	l.lease.mu.Lock()
	defer l.lease.mu.Unlock()
	if l.lease.record == nil {
		l.seen = 0
		return nil, nil, apierrors.NewNotFound(leases, "lease")
	}
	l.seen = l.lease.version
	record := *l.lease.record
	return &record, []byte{byte(l.seen)}, nil
}

func (l *fakeLock) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return l.Update(ctx, record)
}

func (l *fakeLock) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	l.requests.Add(1)
	if do, _ := l.hindered.Load().(hinder); do != nil {
		if err := do(ctx, record); err != nil {
			return err
		}
	}
	return l.lease.write(record, &l.seen)
}

func (l *fakeLock) hinder(h hinder) { l.hindered.Store(h) }

func (l *fakeLock) RecordEvent(string) {}
func (l *fakeLock) Identity() string   { return l.identity }
func (l *fakeLock) Describe() string   { return "system/lease" }

// write writes the record over the version that was seen.
func (l *fakeLease) write(record resourcelock.LeaderElectionRecord, seen *int) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if *seen != l.version {
		return apierrors.NewConflict(leases, "lease", errors.New("seen too early"))
	}
	l.version++
	l.record, *seen = &record, l.version
	return nil
}

func (l *fakeLease) holder() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.record == nil {
		return "nobody"
	}
	return l.record.HolderIdentity
}

// take makes the lease another's, as when it has expired meanwhile.
func (l *fakeLease) take(holder string) {
	_ = l.write(resourcelock.LeaderElectionRecord{HolderIdentity: holder, LeaseDurationSeconds: 15}, &[]int{l.version}[0])
}

var defaults = newElectionOptions()

// replica is a process that stands for election, with a worker in the place of the controller.
type replica struct {
	t        *testing.T
	lock     *fakeLock
	watchdog *leaderelection.HealthzAdaptor
	stop     context.CancelFunc
	ready    atomic.Bool
	inFlight time.Duration // how long the last write takes
	winding  time.Duration // how long the work takes to return after that
	blind    atomic.Int64  // since when a watch is interrupted, in Unix nanoseconds; 0: it is established

	election *election
	began    time.Time // of its term
	ended    time.Time // of its last write
	err      chan error
}

// interrupted returns for how long a watch of the replica has been interrupted.
func (r *replica) interrupted() time.Duration {
	since := r.blind.Load()
	if since == 0 {
		return 0
	}
	return time.Since(time.Unix(0, since))
}

// pass lets time pass, and all that happens in it.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func newReplica(t *testing.T, lease *fakeLease, identity string) *replica {
	r := &replica{t: t, watchdog: leaderelection.NewLeaderHealthzAdaptor(stuckTolerance), err: make(chan error, 1),
		lock: &fakeLock{lease: lease, identity: identity}}
	r.ready.Store(true)
	return r
}

// start runs the replica until its stop is called, for a day at most: a term that does not end fails a test.
func (r *replica) start() *replica {
	ctx, stop := context.WithTimeout(r.t.Context(), 24*time.Hour)
	r.stop = stop
	var err error
	r.election, err = defaults.newElection(r.lock, r.interrupted, r.watchdog)
	noError(r.t, err)
	go func() { r.err <- r.election.run(ctx, r.ready.Load, r.work) }()
	synctest.Wait()
	return r
}

// work does what a controller does with its leadership.
func (r *replica) work(ctx context.Context, leadership mirror.Leadership) error {
	select {
	case <-ctx.Done():
		return nil
	case term := <-leadership.Begun:
		r.began = time.Now()
		defer func() { r.ended = time.Now() }()
		select {
		case <-term.Done():
			return mirror.ErrLeadershipLost
		case <-ctx.Done():
		}
		select {
		case <-time.After(r.inFlight):
		case <-term.Done():
			return mirror.ErrLeadershipLost
		}
		leadership.Resign()
		time.Sleep(r.winding)
		return nil
	}
}

// end stops the replica and returns its error.
func (r *replica) end() error {
	r.stop()
	return <-r.err
}

// TestLeaseIsReleasedAfterTheLastWrite stops a leader again and again, because a standby reads the lease at random
// times.
func TestLeaseIsReleasedAfterTheLastWrite(t *testing.T) {
	for range 20 {
		synctest.Test(t, func(t *testing.T) {
			lease := &fakeLease{}
			first, second := newReplica(t, lease, "first"), newReplica(t, lease, "second")
			first.inFlight = 25 * time.Second // longer than the lease: it has to be renewed meanwhile
			first.winding = time.Minute       // work without writes holds up no successor
			first.start()
			second.start()
			pass(time.Minute)
			if first.began.IsZero() || !second.began.IsZero() {
				t.Fatal("not the first leads, and only the first")
			}
			wrote := time.Now().Add(first.inFlight)
			noError(t, first.end())
			synctest.Wait()
			if wait := second.began.Sub(wrote); second.began.IsZero() || wait < 0 || wait > 5*time.Second {
				t.Errorf("the second began %v after the last write of the first, want 0 to 5s", wait)
			}
			noError(t, second.end())
			if lease.holder() != "" {
				t.Errorf("at the end %q has the lease, want that it is given back", lease.holder())
			}
		})
	}
}

// TestReleaseIsTriedAgain while it fails, or meets a renewal that is late.
func TestReleaseIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lease := &fakeLease{}
		r := newReplica(t, lease, "us").start()
		answers := []error{errors.New("no answer"), apierrors.NewConflict(leases, "lease", errors.New("a late renewal"))}
		r.lock.hinder(func(_ context.Context, record resourcelock.LeaderElectionRecord) (err error) {
			if record.HolderIdentity == "" && len(answers) > 0 {
				err, answers = answers[0], answers[1:]
			}
			return err
		})
		noError(t, r.end())
		if lease.holder() != "" || len(answers) > 0 {
			t.Errorf("%q has the lease, want that it is given back", lease.holder())
		}
	})
}

// TestLeaseIsReleasedWithoutATerm stops a process that has acquired the lease and does not know it, because the answer
// was lost.
func TestLeaseIsReleasedWithoutATerm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lease := &fakeLease{}
		r := newReplica(t, lease, "us")
		r.lock.hinder(func(_ context.Context, record resourcelock.LeaderElectionRecord) error {
			_ = lease.write(record, &r.lock.seen)
			return errors.New("no answer")
		})
		r.start()
		if lease.holder() != "us" || !r.began.IsZero() {
			t.Fatalf("%q has the lease, and its term began at %v", lease.holder(), r.began)
		}
		r.stop()
		pass(releaseRetry / 2)
		r.lock.hinder(nil)
		noError(t, <-r.err)
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
		if n := r.lock.requests.Load() + never.lock.requests.Load(); n != 0 {
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
	for name, test := range map[string]struct {
		elect             bool
		file, given, want string
	}{
		"in a pod":            {true, pod, "", "mirror-system"},
		"in a pod, with flag": {true, pod, "other", "other"},
		"outside a pod":       {false, none, "", ""}, // TestRefusedArguments has the other one outside a pod
	} {
		t.Run(name, func(t *testing.T) {
			podNamespaceFile = test.file
			o := newElectionOptions()
			o.enabled, o.namespace = test.elect, test.given
			if wrong := o.complete(); wrong != nil || o.namespace != test.want {
				t.Errorf("got %q, %v, want %q", o.namespace, wrong, test.want)
			}
		})
	}
}

// TestLeaseClient shows that the lease has a connection of its own, by HTTP/1.1: a request without an answer then
// closes it, after half of the renew deadline.
func TestLeaseClient(t *testing.T) {
	asked := make(chan *http.Request, 10)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked <- r
		http.NotFound(w, r)
	}))
	server.EnableHTTP2 = true
	server.StartTLS()
	defer server.Close()
	insecure := rest.TLSClientConfig{Insecure: true}
	config := &rest.Config{Host: server.URL, UserAgent: "us", TLSClientConfig: insecure, QPS: -1}

	o := newElectionOptions()
	o.namespace = "system"
	o.renewDeadline = 2 * time.Hour // on a slow machine no answer comes too late
	lock, err := o.lock(config)
	noError(t, err)
	other, err := o.lock(config)
	noError(t, err)
	_, _ = kubernetes.NewForConfigOrDie(config).CoreV1().ConfigMaps("a").Get(t.Context(), "a", metav1.GetOptions{})
	_, _, _ = lock.Get(t.Context())
	if write, renewal := <-asked, <-asked; write.ProtoMajor != 2 || renewal.ProtoMajor != 1 {
		t.Errorf("writes by %s, lease by %s", write.Proto, renewal.Proto)
	} else if renewal.URL.Query().Get("timeout") != "1h0m0s" || renewal.UserAgent() != "us leader-election" {
		t.Errorf("%s by User-Agent %q", renewal.URL, renewal.UserAgent())
	}
	host, err := os.Hostname()
	noError(t, err)
	if !strings.HasPrefix(lock.Identity(), host+"_") || lock.Identity() == other.Identity() {
		t.Errorf("identities %q and %q, want the name of the host and something else", lock.Identity(), other.Identity())
	}
}

// TestLostLease has a leader that cannot renew its lease any more: its term ends, and with it the writes in flight,
// also of a leader that is stopping. The lease is left to expire, although it could be released, because the last
// writes may be late. Case C35.
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
				first.lock.hinder(func(_ context.Context, record resourcelock.LeaderElectionRecord) error {
					if record.HolderIdentity == "" { // a release
						return nil
					}
					return errors.New("no answer")
				})
				if stops {
					first.stop()
				}
				if err := <-first.err; !errors.Is(err, mirror.ErrLeadershipLost) || !strings.Contains(err.Error(), "system/lease") {
					t.Errorf("error %v, want one that names the lease", err)
				}
				if took, term := first.ended.Sub(last), defaults.renewDeadline+defaults.retryPeriod; took != term {
					t.Errorf("the term ended %v after the last renewal, want %v", took, term)
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
// renewal, and is not continued when the lease is free. A leader that stops leaves it to the other. Case C35.
func TestTakenLease(t *testing.T) {
	for _, tc := range []struct {
		holder string
		stops  bool
	}{{"another", false}, {"", false}, {"another", true}} {
		t.Run(fmt.Sprintf("%+v", tc), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				lease := &fakeLease{}
				r := newReplica(t, lease, "us").start()
				pass(time.Minute) // a multiple of the retry period
				lease.take(tc.holder)
				taken := time.Now()
				if tc.stops {
					noError(t, r.end())
				} else if err := <-r.err; !errors.Is(err, mirror.ErrLeadershipLost) {
					t.Errorf("error %v, want that the leadership is lost", err)
				} else if took := r.ended.Sub(taken); took != defaults.retryPeriod {
					t.Errorf("the term ended after %v, want %v", took, defaults.retryPeriod)
				}
				if lease.holder() != tc.holder {
					t.Errorf("%q has the lease, want %q", lease.holder(), tc.holder)
				}
			})
		})
	}
}

// TestLeaseEndsInAPause: a leader whose elector neither renews nor gives up fails its liveness. If it reads its lease
// only when that has expired, it sends no request and ends. Case C61.
func TestLeaseEndsInAPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		leader := newReplica(t, &fakeLease{}, "leader").start()
		pass(time.Minute)
		stuck := make(chan struct{})
		leader.lock.hinder(func(context.Context, resourcelock.LeaderElectionRecord) error {
			<-stuck
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
		before := leader.lock.requests.Load()
		if _, _, err := leader.election.Get(t.Context()); err == nil || leader.lock.requests.Load() > before {
			t.Errorf("got error %v and %d requests, want an error alone", err, leader.lock.requests.Load()-before)
		}
		close(stuck)
		if err := <-leader.err; !errors.Is(err, mirror.ErrLeadershipLost) {
			t.Errorf("error %v, want that the leadership is lost", err)
		}
	})
}
