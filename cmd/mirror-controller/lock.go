package main

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// timedLock is a lock that knows how old its last renewal is, counted from the moment in which it was asked for. The
// elector counts from when the answer has come in, and would trust in a lease that was granted to a process that was
// then stopped for a minute. It is also later to give up: it counts from the first try that fails. But for valid and
// expire, its methods are called by one goroutine at a time.
type timedLock struct {
	resourcelock.Interface
	deadline time.Duration // the age from which on a renewal is worth nothing
	rest     time.Duration // the age up to which one is as good as a new one
	// lost is called when the lease is ours no more: another has it, or its last renewal is worth nothing. That can be more
	// than once, and in any goroutine.
	lost func()

	held    bool                   // the lease was ours when last seen
	asked   bool                   // it may be: it was asked for, and perhaps the answer was lost
	renewed atomic.Pointer[moment] // when the last renewal was asked for; nil: the lease is not ours
	expiry  *time.Timer            // calls expire when the last renewal is as old as the deadline
}

// valid reports whether the lease is ours for certain. It is asked before each write.
func (l *timedLock) valid() bool {
	renewed := l.renewed.Load()
	return renewed != nil && now().since(*renewed) < l.deadline
}

func (l *timedLock) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	record, raw, err := l.Interface.Get(ctx)
	switch {
	case apierrors.IsNotFound(err): // the elector will create it again
		l.renewed.Store(nil)
	case err == nil && record.HolderIdentity != l.Identity():
		l.renewed.Store(nil)
		if l.held {
			// The elector would go on trying to have it again, and go on with the old term then.
			l.held = false
			l.lost()
		}
	}
	return record, raw, err
}

func (l *timedLock) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return l.write(record, func() error { return l.Interface.Create(ctx, record) })
}

// errTooLate is the error of a renewal for which it is too late.
var errTooLate = errors.New("the last renewal is older than the renew deadline")

// Update leaves out what would only renew a renewal that is young. The elector tries to renew as often as the standbys read
// the lease, which is more often than is of use: each renewal is a write to etcd. Nor does it renew what has passed
// the deadline: after a pause of the whole machine, what the process knows of the cluster is as old as the pause was long.
func (l *timedLock) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	if renewed := l.renewed.Load(); renewed != nil && record.HolderIdentity == l.Identity() {
		switch age := now().since(*renewed); {
		case age < l.rest:
			return nil
		case age >= l.deadline:
			l.lost()
			return errTooLate
		}
	}
	return l.write(record, func() error { return l.Interface.Update(ctx, record) })
}

// write sends a record that makes the lease ours, or no longer ours.
func (l *timedLock) write(record resourcelock.LeaderElectionRecord, send func() error) error {
	ours := record.HolderIdentity == l.Identity()
	if !ours {
		l.renewed.Store(nil) // the answer may be lost
	}
	l.asked = l.asked || ours
	began := now()
	err := send()
	if err != nil {
		return err
	}
	l.held = ours
	if ours {
		l.renewed.Store(&began)
		l.stop()
		l.expiry = time.AfterFunc(began.running+l.deadline-now().running, l.expire)
	}
	return nil
}

// expire ends the term, and with it the writes in flight, unless a renewal came in at the last moment. After a pause of
// the process it is called at once; after one of the whole machine it is late, for timers stand still meanwhile: then the
// next renewal ends the term. No write begins until then, for valid knows.
func (l *timedLock) expire() {
	if !l.valid() {
		l.lost()
	}
}

// stop ends the watch over the deadline.
func (l *timedLock) stop() {
	if l.expiry != nil {
		l.expiry.Stop()
	}
}

// moment is a point in time by two clocks, for neither tells all: the wall clock can be set back, and the monotonic
// one stands still while a virtual machine is suspended.
type moment struct {
	wall    time.Time     // without a monotonic reading
	running time.Duration // since the process began
}

var processStart = time.Now()

func now() moment {
	t := time.Now()
	return moment{wall: t.Round(0), running: t.Sub(processStart)}
}

// since returns how long ago the earlier moment was, by the clock that says more.
func (m moment) since(earlier moment) time.Duration {
	return max(m.running-earlier.running, m.wall.Sub(earlier.wall))
}
