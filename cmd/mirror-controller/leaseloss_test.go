package main

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/mirror-controller/mirror-controller/mirror"
)

// TestLostLease has a leader that cannot renew its lease any more: at the deadline its term ends, and the writes in flight
// with it. The lease is left to expire, because the last writes may be late.
func TestLostLease(t *testing.T) {
	defaults, slow := newElectionOptions(), newElectionOptions()
	slow.renewDeadline, slow.retryPeriod = 14*time.Second, 5*time.Second
	t.Run("defaults", func(t *testing.T) { loseLease(t, defaults) })
	t.Run("long deadline, seldom tries", func(t *testing.T) { loseLease(t, slow) })
}

func loseLease(t *testing.T, options electionOptions) {
	for _, way := range []struct {
		name   string
		hinder hinder
	}{
		{"requests fail", noAnswer},
		{"renewals fail, and giving back would not", func(_ context.Context, record resourcelock.LeaderElectionRecord) error {
			if record.HolderIdentity != "" {
				return errors.New("no answer")
			}
			return nil
		}},
		{"requests hang", func(ctx context.Context, _ resourcelock.LeaderElectionRecord) error {
			ctx, cancel := context.WithTimeout(ctx, leaseTimeout(&options))
			defer cancel()
			<-ctx.Done()
			return ctx.Err()
		}},
	} {
		t.Run(way.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				lease := &fakeLease{}
				first, second := newReplica(t, lease, "first"), newReplica(t, lease, "second")
				*first.options = options
				first.start()
				second.start()
				pass(time.Minute)
				last := time.Now() // a multiple of the renew period after it was first renewed
				first.fake.hinder(way.hinder)
				pass(options.renewDeadline - 1)
				if !first.valid() {
					t.Error("not valid before the deadline")
				}
				pass(1)
				if first.valid() {
					t.Error("valid at the deadline")
				}
				if err := <-first.err; !errors.Is(err, mirror.ErrLeadershipLost) || !strings.Contains(err.Error(), "system/lease") {
					t.Errorf("error %v, want one that names the lease", err)
				}
				if took := first.ended.Sub(last); took != options.renewDeadline {
					t.Errorf("the term ended %v after the last renewal", took)
				}
				if lost := first.lost.Load(); lost == nil || !lost.Equal(first.ended) {
					t.Errorf("notified at %v that the lease is lost, want at the end of the term at %v", lost, first.ended)
				}
				if lease.holder() != "first" {
					t.Errorf("%q has the lease, want that it is left to expire", lease.holder())
				}
				pass(10 * time.Second)
				// It may see the last renewal 1.1 s late, and read it again 1.1 s after it has expired for it.
				if wait := second.began.Sub(last); second.began.IsZero() || wait < 15*time.Second || wait > 17200*time.Millisecond {
					t.Errorf("the second began %v after the last renewal of the first, want 15s to 17.2s", wait)
				}
				noError(t, second.end())
			})
		})
	}
}

// TestTakenLease shows a leader that finds that another has the lease, as after a pause: it ends, also if it could have
// the lease again, because the other has written meanwhile.
func TestTakenLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lease := &fakeLease{}
		r := newReplica(t, lease, "us").start()
		pass(time.Minute)
		lease.take("another")
		taken := time.Now()
		if err := <-r.err; !errors.Is(err, mirror.ErrLeadershipLost) {
			t.Errorf("error %v", err)
		}
		if took := time.Since(taken); took > usualRenewPeriod || r.valid() {
			t.Errorf("valid %v, ended %v after", r.valid(), took)
		}
		if lease.holder() != "another" {
			t.Errorf("%q has the lease", lease.holder())
		}
	})
}

// A renewal that was on its way when the elector was ended arrives before the lease is given back.
func TestGivingBackMeetsARenewal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lease := &fakeLease{}
		r := newReplica(t, lease, "us").start()
		pass(time.Minute)
		late := false
		r.fake.hinder(func(context.Context, resourcelock.LeaderElectionRecord) error {
			if !late {
				late = true
				seen := lease.version
				return lease.write(ours(r.lock), &seen)
			}
			return nil
		})
		noError(t, r.end())
		if lease.holder() != "" {
			t.Errorf("%q has the lease", lease.holder())
		}
	})
}

// A leader whose elector is stuck, so that it neither renews nor gives up, writes no more from the deadline on, and fails
// its liveness. A standby does not.
func TestStuckLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lease := &fakeLease{}
		leader, standby := newReplica(t, lease, "leader").start(), newReplica(t, lease, "standby").start()
		pass(time.Minute)
		free := make(chan struct{})
		stuck := func(context.Context, resourcelock.LeaderElectionRecord) error { <-free; return errors.New("too late") }
		leader.fake.hinder(stuck)
		standby.fake.hinder(stuck)
		stuckSince := time.Now()
		pass(30 * time.Second)
		if got := leader.ended.Sub(stuckSince); got != 10*time.Second {
			t.Errorf("its term ended after %v, want 10s", got)
		}
		if err := leader.watchdog.Check(nil); err != nil {
			t.Errorf("within the tolerance: %v", err)
		}
		pass(10 * time.Second)
		if leader.watchdog.Check(nil) == nil {
			t.Error("a leader that has been stuck for 40 s passes")
		}
		if err := standby.watchdog.Check(nil); err != nil {
			t.Errorf("a standby: %v", err)
		}
		close(free)
		<-leader.err
		noError(t, standby.end())
	})
}
