package main

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// timedLock is a lock that counts the age of its last renewal from the request. The elector counts it from the answer, which
// may have waited for a minute while the process was stopped, and the deadline from the first failure. One goroutine at a time
// calls the methods, except valid and expire.
type timedLock struct {
	resourcelock.Interface
	deadline time.Duration // a renewal of this age counts no more
	rest     time.Duration // a renewal younger than this is not repeated
	// lost is called when the lease is no longer ours: another process has it, or the last renewal is too old. It may be
	// called more than once, and in any goroutine.
	lost func()

	held    bool                   // the lease was ours when last seen
	asked   bool                   // the lease may be ours: we asked for it, and the answer may be lost
	renewed atomic.Pointer[moment] // the time of the request of the last renewal; nil: the lease is not ours
	expiry  *time.Timer            // calls expire when the last renewal is as old as the deadline
}

// valid reports whether the lease is certainly ours. The controller calls it before each write.
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
			// The elector would try to acquire the lease again, and then continue the old term.
			l.held = false
			l.lost()
		}
	}
	return record, raw, err
}

func (l *timedLock) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return l.write(record, func() error { return l.Interface.Create(ctx, record) })
}

// errTooLate is the error of a renewal after the deadline.
var errTooLate = errors.New("the last renewal is older than the renew deadline")

// Update skips a renewal if the last one is young. The elector renews as often as the standbys read the lease, which is more
// often than necessary, and each renewal is a write to etcd. Update also refuses to renew after the deadline: after a pause
// of the whole machine, the caches are as old as the pause was long.
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

// write sends a record that acquires, renews or releases the lease.
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

// expire ends the term, and with it the writes in flight, unless a renewal succeeded at the last moment. Its timer fires at
// once after a pause of the process. After a pause of the whole machine, during which timers stand still, it fires late:
// then the next renewal ends the term, and until then valid lets no write begin.
func (l *timedLock) expire() {
	if !l.valid() {
		l.lost()
	}
}

// stop stops the timer of the deadline.
func (l *timedLock) stop() {
	if l.expiry != nil {
		l.expiry.Stop()
	}
}

// moment is a point in time by two clocks, because each of them misses something: the wall clock can be set back, and the
// monotonic clock stands still while a virtual machine is suspended.
type moment struct {
	wall    time.Time     // without a monotonic reading
	running time.Duration // since the process began
}

var processStart = time.Now()

func now() moment {
	t := time.Now()
	return moment{wall: t.Round(0), running: t.Sub(processStart)}
}

// since returns the time since the earlier moment, by the clock that shows more.
func (m moment) since(earlier moment) time.Duration {
	return max(m.running-earlier.running, m.wall.Sub(earlier.wall))
}
