package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// timedLock is a lock that remembers when it was last renewed, by the time of the request: the answer, from which the elector
// counts, may wait while the process stands still. When the lease is lost, it ends the term for good: the elector would acquire
// the lease again and continue the old term. The elector and release do not call it at the same time.
type timedLock struct {
	resourcelock.Interface
	term    time.Duration          // a renewal of this age counts no more
	lost    func()                 // ends the election; it may be called more than once
	asked   bool                   // the lease may be ours, even if the answer was lost
	renewed atomic.Pointer[moment] // nil: the lease was not ours yet
}

// valid reports whether the lease is certainly ours. The controller calls it before each write.
func (l *timedLock) valid() bool {
	renewed := l.renewed.Load()
	return renewed != nil && now().since(*renewed) < l.term
}

// end makes the lock invalid for good.
func (l *timedLock) end() {
	l.renewed.Store(&moment{}) // ages ago
}

func (l *timedLock) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	record, raw, err := l.Interface.Get(ctx)
	if err == nil && l.renewed.Load() != nil && record.HolderIdentity != l.Identity() {
		l.end()
		l.lost()
		return nil, nil, fmt.Errorf("the lease has another holder: %q", record.HolderIdentity)
	}
	return record, raw, err
}

func (l *timedLock) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return l.write(func() error { return l.Interface.Create(ctx, record) })
}

func (l *timedLock) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return l.write(func() error { return l.Interface.Update(ctx, record) })
}

// errTooLate is the error of a renewal after the end of the term.
var errTooLate = errors.New("the last renewal of the lease is too old")

// write acquires or renews the lease. It renews no lease whose term is over, even if the lease is still ours: after a
// pause of the process or of the machine the caches are as old as the pause was long.
func (l *timedLock) write(send func() error) error {
	if l.renewed.Load() != nil && !l.valid() {
		l.end()
		l.lost()
		return errTooLate
	}
	l.asked = true
	began := now()
	err := send()
	if err == nil {
		l.renewed.Store(&began)
	}
	return err
}

const (
	releaseRetry   = 100 * time.Millisecond
	releaseTimeout = 5 * time.Second
)

// release releases the lease if it is ours, so that the next leader need not wait until it expires. It tries more than
// once: a renewal that was in flight when the elector ended causes a conflict.
func (l *timedLock) release(ctx context.Context) error {
	if !l.asked {
		return nil
	}
	l.end()
	var last error
	try := func(ctx context.Context) (done bool, _ error) {
		var record *resourcelock.LeaderElectionRecord
		record, _, last = l.Interface.Get(ctx)
		if last == nil && record.HolderIdentity == l.Identity() {
			record.HolderIdentity, record.LeaseDurationSeconds = "", 1 // 0 is refused
			last = l.Interface.Update(ctx, *record)
		}
		if apierrors.IsNotFound(last) {
			last = nil
		}
		return last == nil, nil
	}
	err := wait.PollUntilContextTimeout(ctx, releaseRetry, releaseTimeout, true, try)
	return cmp.Or(last, err)
}

// moment is a point in time by two clocks, because each of them misses something: the wall clock can be set back, and
// the monotonic clock stands still while a virtual machine is suspended.
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
