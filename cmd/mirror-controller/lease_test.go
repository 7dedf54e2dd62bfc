package main

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
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
	delay    time.Duration // of the answer to a write that is done
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
	if do, ok := l.hindered.Load().(hinder); ok {
		if err := do(ctx, record); err != nil {
			return err
		}
	}
	err := l.lease.write(record, &l.seen)
	time.Sleep(l.delay)
	return err
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

func (l *fakeLease) remove() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.record, l.version = nil, 0
}

// newTimedLock returns a lock on the lease for a process of that identity, and the fake beneath.
func newTimedLock(lease *fakeLease, identity string) (*timedLock, *fakeLock) {
	fake := &fakeLock{lease: lease, identity: identity}
	return &timedLock{Interface: fake, term: 12 * time.Second, lost: func() {}}, fake
}

func ours(l *timedLock) resourcelock.LeaderElectionRecord {
	return resourcelock.LeaderElectionRecord{HolderIdentity: l.Identity(), LeaseDurationSeconds: 15}
}

// TestValid goes through what can happen to a lease that is ours, each beginning right after a renewal.
func TestValid(t *testing.T) {
	const second = time.Second
	for _, test := range []struct {
		name   string
		happen func(t *testing.T, l *timedLock, fake *fakeLock)
		want   bool
		lost   bool
	}{
		{"just before the end", func(*testing.T, *timedLock, *fakeLock) { time.Sleep(12*second - 1) }, true, false},
		{"at the end of the term", func(*testing.T, *timedLock, *fakeLock) { time.Sleep(12 * second) }, false, false},
		{"renewed", func(t *testing.T, l *timedLock, _ *fakeLock) {
			time.Sleep(11 * second)
			noError(t, l.Update(t.Context(), ours(l)))
			time.Sleep(11 * second)
		}, true, false},
		{"the answer to a renewal comes too late", func(t *testing.T, l *timedLock, fake *fakeLock) {
			fake.delay = 12 * second
			noError(t, l.Update(t.Context(), ours(l)))
		}, false, false},
		{"the age counts from the request", func(t *testing.T, l *timedLock, fake *fakeLock) {
			fake.delay = 6 * second
			noError(t, l.Update(t.Context(), ours(l)))
			time.Sleep(6 * second)
		}, false, false},
		{"a renewal fails", func(t *testing.T, l *timedLock, fake *fakeLock) {
			time.Sleep(6 * second)
			fake.hinder(noAnswer)
			if l.Update(t.Context(), ours(l)) == nil {
				t.Error("got no error")
			}
			time.Sleep(6 * second)
		}, false, false},
		{"a renewal after the end of the term", func(t *testing.T, l *timedLock, fake *fakeLock) {
			time.Sleep(12 * second)
			tooLate(t, l, fake)
		}, false, true},
		{"the whole machine stood still", func(t *testing.T, l *timedLock, fake *fakeLock) {
			anHourAgo := now()
			anHourAgo.wall = anHourAgo.wall.Add(-time.Hour)
			l.renewed.Store(&anHourAgo)
			tooLate(t, l, fake)
		}, false, true},
		{"another has it", func(t *testing.T, l *timedLock, fake *fakeLock) {
			fake.lease.take("another")
			expectLost(t, l)
		}, false, true},
		{"another released it", func(t *testing.T, l *timedLock, fake *fakeLock) {
			fake.lease.take("")
			expectLost(t, l)
			tooLate(t, l, fake) // or the old term would continue
		}, false, true},
		{"somebody deleted it", func(t *testing.T, l *timedLock, fake *fakeLock) {
			fake.lease.remove()
			if _, _, err := l.Get(t.Context()); !apierrors.IsNotFound(err) {
				t.Error(err)
			}
			noError(t, l.Create(t.Context(), ours(l)))
		}, true, false},
		{"it is given back", func(t *testing.T, l *timedLock, fake *fakeLock) {
			fake.hinder(func(context.Context, resourcelock.LeaderElectionRecord) error {
				if l.valid() {
					t.Error("valid while it is being given back")
				}
				return nil
			})
			noError(t, l.release(t.Context()))
		}, false, false},
		{"the answer to the giving back is lost", func(t *testing.T, l *timedLock, fake *fakeLock) {
			fake.hinder(noAnswer)
			if l.release(t.Context()) == nil {
				t.Error("got no error")
			}
		}, false, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l, fake := newTimedLock(&fakeLease{}, "us")
				var lost atomic.Bool
				l.lost = func() { lost.Store(true) }
				if l.valid() {
					t.Error("valid before it was ever ours")
				}
				noError(t, l.Create(t.Context(), ours(l)))
				if !l.valid() {
					t.Error("not valid when it was just made ours")
				}
				test.happen(t, l, fake)
				if l.valid() != test.want || lost.Load() != test.lost {
					t.Errorf("valid %v, reported lost %v, want %v, %v", l.valid(), lost.Load(), test.want, test.lost)
				}
			})
		})
	}
}

// tooLate fails the test unless a renewal is refused, and not sent.
func tooLate(t *testing.T, l *timedLock, fake *fakeLock) {
	t.Helper()
	before := fake.requests.Load()
	if err := l.Update(t.Context(), ours(l)); !errors.Is(err, errTooLate) || fake.requests.Load() > before {
		t.Errorf("got error %v after %d requests, want that it is too late for one", err, fake.requests.Load()-before)
	}
}

// expectLost fails the test unless a read returns that the lease is lost.
func expectLost(t *testing.T, l *timedLock) {
	t.Helper()
	if record, _, err := l.Get(t.Context()); err == nil || record != nil {
		t.Errorf("got record %+v, error %v, want that the lease is lost", record, err)
	}
}

// TestRelease gives a lease back that is hard to be rid of.
func TestRelease(t *testing.T) {
	for _, test := range []struct {
		name   string
		happen func(l *timedLock, fake *fakeLock)
		want   string // the holder
	}{
		{"ours, and the next requests fail", func(l *timedLock, fake *fakeLock) {
			_ = l.Create(t.Context(), ours(l))
			answers := []error{errors.New("no answer"), apierrors.NewConflict(leases, "lease", errors.New("a late renewal"))}
			fake.hinder(func(context.Context, resourcelock.LeaderElectionRecord) error {
				if len(answers) == 0 {
					return nil
				}
				first := answers[0]
				answers = answers[1:]
				return first
			})
		}, ""},
		{"another's", func(l *timedLock, fake *fakeLock) {
			_ = l.Create(t.Context(), ours(l))
			fake.lease.take("them")
		}, "them"},
		{"gone", func(l *timedLock, fake *fakeLock) {
			_ = l.Create(t.Context(), ours(l))
			fake.lease.remove()
		}, "nobody"},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l, fake := newTimedLock(&fakeLease{}, "us")
				test.happen(l, fake)
				noError(t, l.release(t.Context()))
				if got := fake.lease.holder(); got != test.want {
					t.Errorf("got holder %q, want %q", got, test.want)
				}
			})
		})
	}
	l, fake := newTimedLock(&fakeLease{}, "us")
	noError(t, l.release(t.Context()))
	if n := fake.requests.Load(); n > 0 {
		t.Errorf("got %d requests of one that never stood for election", n)
	}
}

// forgetful does what it is asked and loses the answer.
type forgetful struct{ *fakeLock }

func (f forgetful) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	_ = f.fakeLock.Create(ctx, record)
	return errors.New("no answer")
}

func noAnswer(context.Context, resourcelock.LeaderElectionRecord) error {
	return errors.New("no answer")
}

func noError(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestMoment shows that a clock that stands still, or goes back, does not make a renewal younger than it is.
func TestMoment(t *testing.T) {
	at := func(wall, running time.Duration) moment {
		return moment{wall: time.Unix(1e9, 0).Add(wall), running: running}
	}
	for _, test := range []struct {
		name           string
		earlier, later moment
		want           time.Duration
	}{
		{"both clocks go on", at(5, 1), at(15, 11), 10},
		{"the monotonic clock stood still", at(5, 1), at(65, 1), 60},
		{"the wall clock was set back", at(65, 1), at(5, 11), 10},
		{"the wall clock was set forward", at(5, 1), at(1005, 11), 1000},
	} {
		if got := test.later.since(test.earlier); got != test.want {
			t.Errorf("%s: %v, want %v", test.name, got, test.want)
		}
	}
}
