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

// TestLostLease has a leader that cannot renew its lease any more: its term ends, and the writes in flight with it. The lease is
// left to expire, although it could be released, because the last writes may be late.
func TestLostLease(t *testing.T) {
	defaults, slow := newElectionOptions(), newElectionOptions()
	slow.renewDeadline, slow.retryPeriod = 9*time.Second, 5*time.Second
	noRenewal := func(_ context.Context, record resourcelock.LeaderElectionRecord) error {
		if record.HolderIdentity != "" {
			return errors.New("no answer")
		}
		return nil
	}
	for name, options := range map[string]electionOptions{"defaults": defaults, "seldom tries": slow} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				lease := &fakeLease{}
				first, second := newReplica(t, lease, "first"), newReplica(t, lease, "second")
				*first.options = options
				first.start()
				second.start()
				pass(time.Minute)
				last := time.Now() // a multiple of the retry period after it was first renewed
				first.fake.hinder(noRenewal)
				pass(options.term() - 1)
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
				if took := first.ended.Sub(last); took != options.term() {
					t.Errorf("the term ended %v after the last renewal, want %v", took, options.term())
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
				if took := r.ended.Sub(taken); took != r.options.retryPeriod || r.valid() || r.lost.Load() == nil {
					t.Errorf("the term ended after %v; valid %v, lost at %v", took, r.valid(), r.lost.Load())
				}
				if lease.holder() != holder {
					t.Errorf("%q has the lease, want %q", lease.holder(), holder)
				}
			})
		})
	}
}

// TestStuckLeader has a leader whose elector neither renews nor gives up: after its term it writes no more, and fails its
// liveness. A standby does not.
func TestStuckLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lease := &fakeLease{}
		leader, standby := newReplica(t, lease, "leader").start(), newReplica(t, lease, "standby").start()
		pass(time.Minute)
		free := make(chan struct{})
		stuck := func(context.Context, resourcelock.LeaderElectionRecord) error { <-free; return errors.New("too late") }
		leader.fake.hinder(stuck)
		standby.fake.hinder(stuck)
		pass(30 * time.Second)
		if leader.valid() {
			t.Error("valid long after the last renewal")
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
