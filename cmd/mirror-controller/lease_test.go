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
	forgets  bool          // that answer is lost
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
	if l.forgets {
		return errors.New("no answer")
	}
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

var defaults = newElectionOptions()

// newTimedLock returns a lock on the lease for a process of that identity, and the fake beneath.
func newTimedLock(lease *fakeLease, identity string) (*timedLock, *fakeLock) {
	fake := &fakeLock{lease: lease, identity: identity}
	return &timedLock{Interface: fake, term: defaults.term(), lost: func() {}}, fake
}

func ours(l *timedLock) resourcelock.LeaderElectionRecord {
	return resourcelock.LeaderElectionRecord{HolderIdentity: l.Identity(), LeaseDurationSeconds: 15}
}

// TestValid goes through what can happen to a lease that is ours, each beginning right after a renewal, and releases it
// then. TestLostLease has the end of a term, and TestTakenLease another holder.
func TestValid(t *testing.T) {
	for _, test := range []struct {
		name   string
		happen func(t *testing.T, l *timedLock, fake *fakeLock)
		want   bool
		lost   bool
		holder string // after the release
	}{
		{"the age counts from the request", func(t *testing.T, l *timedLock, fake *fakeLock) {
			fake.delay = l.term / 2
			noError(t, l.Update(t.Context(), ours(l)))
			time.Sleep(l.term / 2)
		}, false, false, ""},
		{"the whole machine stood still", func(t *testing.T, l *timedLock, fake *fakeLock) {
			setClock(l, time.Hour)
			before := fake.requests.Load()
			if err := l.Update(t.Context(), ours(l)); !errors.Is(err, errTooLate) || fake.requests.Load() > before {
				t.Errorf("got error %v after %d requests, want that it is too late for one", err, fake.requests.Load()-before)
			}
		}, false, true, ""},
		{"the wall clock was set back", func(_ *testing.T, l *timedLock, _ *fakeLock) {
			setClock(l, -time.Hour)
			time.Sleep(l.term)
		}, false, false, ""},
		{"somebody deleted it", func(_ *testing.T, _ *timedLock, fake *fakeLock) {
			fake.lease.remove()
		}, true, false, "nobody"},
		{"somebody deleted it, and it is ours again", func(t *testing.T, l *timedLock, fake *fakeLock) {
			fake.lease.remove()
			if _, _, err := l.Get(t.Context()); !apierrors.IsNotFound(err) {
				t.Error(err)
			}
			noError(t, l.Create(t.Context(), ours(l)))
		}, true, false, ""},
		{"it is another's, which we do not know", func(_ *testing.T, _ *timedLock, fake *fakeLock) {
			fake.lease.take("them")
		}, true, false, "them"},
		{"the first requests of the release fail", func(t *testing.T, l *timedLock, fake *fakeLock) {
			late := errors.New("a late renewal")
			answers := []error{errors.New("no answer"), apierrors.NewConflict(leases, "lease", late), nil}
			fake.hinder(func(context.Context, resourcelock.LeaderElectionRecord) error {
				if l.valid() {
					t.Error("valid while it is being given back")
				}
				first := answers[0]
				answers = answers[1:]
				return first
			})
		}, true, false, ""},
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
				noError(t, l.release(t.Context()))
				if holder := fake.lease.holder(); holder != test.holder || l.valid() {
					t.Errorf("after the release: holder %q, valid %v, want %q and false", holder, l.valid(), test.holder)
				}
			})
		})
	}
}

// setClock has the wall clock go forward by d since the last renewal, while the monotonic clock stands still.
func setClock(l *timedLock, d time.Duration) {
	renewed := now()
	renewed.wall = renewed.wall.Add(-d)
	l.renewed.Store(&renewed)
}

func noError(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
