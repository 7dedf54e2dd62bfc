package mirror

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/tools/cache"
)

var (
	inA = cache.ObjectName{Namespace: "team-a", Name: "settings"}
	inB = cache.ObjectName{Namespace: "team-b", Name: "settings"}
)

// withRetries runs f in a bubble, where the time is exact and passes at once, and shuts the retries down.
func withRetries(t *testing.T, f func(*testing.T, *retries)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := newRetries()
		defer r.queue.ShutDown()
		f(t, r)
	})
}

// wantNext takes the next target and compares it, its mark, and the time until it came.
func wantNext(t *testing.T, r *retries, what string, target cache.ObjectName, m mark, after time.Duration) {
	t.Helper()
	start := time.Now()
	got, gotMark, more := r.next()
	if !more {
		t.Fatalf("%s: got the end, want %s", what, target)
	}
	if got != target || gotMark != m {
		t.Errorf("%s: got %s with %+v, want %s with %+v", what, got, gotMark, target, m)
	}
	if waited := time.Since(start); waited != after {
		t.Errorf("%s: got it after %v, want %v", what, waited, after)
	}
}

// wantNothingMore waits for longer than any pace and looks whether a target came.
func wantNothingMore(t *testing.T, r *retries) {
	t.Helper()
	time.Sleep(2 * maxRetryDelay)
	synctest.Wait()
	if n := r.queue.Len(); n > 0 {
		t.Errorf("got %d targets handed out again, want none", n)
	}
}

func TestC30PaceOfEveryTrouble(t *testing.T) {
	const ms, s = time.Millisecond, time.Second
	for trouble, want := range map[trouble][]time.Duration{
		behind:     {s, 2 * s, 4 * s, 8 * s, 16 * s, 32 * s, 60 * s, 60 * s, 60 * s},
		transient:  {50 * ms, 100 * ms, 200 * ms, 400 * ms, 800 * ms, 1600 * ms, 3200 * ms, 6400 * ms, 12800 * ms, 15 * s, 15 * s},
		closing:    {50 * ms, 100 * ms, 200 * ms, 400 * ms, 800 * ms, 1600 * ms, 3200 * ms, 6400 * ms, 12800 * ms, 25600 * ms, 51200 * ms, 60 * s, 60 * s},
		refused:    {250 * ms, 500 * ms, s, 2 * s, 4 * s, 8 * s, 16 * s, 32 * s, 60 * s, 60 * s},
		obstructed: {s, 2 * s, 4 * s, 8 * s, 16 * s, 32 * s, 60 * s, 60 * s, 60 * s},
		unseen:     {30 * s, 60 * s, 60 * s},
	} {
		t.Run(trouble.String(), func(t *testing.T) {
			withRetries(t, func(t *testing.T, r *retries) {
				for _, delay := range want {
					r.add(inA, mark{}, trouble)
					wantNext(t, r, "next", inA, mark{}, delay)
				}
			})
		})
	}
	if len(paces) != 6 {
		t.Errorf("got paces of %d troubles, want 6, each with a row here", len(paces))
	}
}

// TestC30NobodyWaitsLongerThanAMinute: no event tells that a quota was raised.
func TestC30NobodyWaitsLongerThanAMinute(t *testing.T) {
	for trouble := range paces {
		withRetries(t, func(t *testing.T, r *retries) {
			for range 200 {
				r.add(inA, mark{}, trouble)
				start := time.Now()
				r.next()
				if waited := time.Since(start); waited > time.Minute {
					t.Fatalf("%v: got a try after %v, want one a minute", trouble, waited)
				}
			}
		})
	}
}

func TestTargetsHaveTheirOwnPace(t *testing.T) {
	withRetries(t, func(t *testing.T, r *retries) {
		for range 3 {
			r.add(inA, mark{}, refused)
			r.next()
		}
		r.add(inA, mark{}, refused) // in 2 s
		r.add(inB, mark{}, refused) // in 250 ms
		wantNext(t, r, "the new one", inB, mark{}, 250*time.Millisecond)
		wantNext(t, r, "the old one", inA, mark{}, 1750*time.Millisecond)
	})
}

func TestAnotherTroubleStartsItsOwnPace(t *testing.T) {
	withRetries(t, func(t *testing.T, r *retries) {
		for range 5 {
			r.add(inA, mark{}, refused)
			r.next()
		}
		r.add(inA, mark{}, transient)
		wantNext(t, r, "another trouble", inA, mark{}, 50*time.Millisecond)
		r.add(inA, mark{}, transient)
		wantNext(t, r, "the same trouble", inA, mark{}, 100*time.Millisecond)
		r.add(inA, mark{}, refused)
		wantNext(t, r, "the first trouble once more", inA, mark{}, 250*time.Millisecond)
		r.add(inA, mark{}, transient)
		wantNext(t, r, "the other one once more", inA, mark{}, 50*time.Millisecond)
	})
}

func TestSettledBeginsAnew(t *testing.T) {
	withRetries(t, func(t *testing.T, r *retries) {
		for range 5 {
			r.add(inA, mark{vanished: true}, refused)
			r.add(inB, mark{}, refused)
			r.next()
			r.next()
		}
		r.settled(inA)
		if len(r.targets) != 1 || r.targets[inB] == nil {
			t.Errorf("got %v known, want team-b alone", r.targets)
		}
		r.add(inA, mark{}, refused)
		wantNext(t, r, "the settled one", inA, mark{}, 250*time.Millisecond)
		r.add(inB, mark{}, refused)
		wantNext(t, r, "the other one", inB, mark{}, 8*time.Second)
		r.settled(inA)
		r.settled(inB)
		if len(r.targets) != 0 {
			t.Errorf("got %v known, want nothing", r.targets)
		}
		r.settled(cache.ObjectName{Namespace: "never", Name: "seen"})
	})
}

func TestSettledTargetIsHandedOutWithoutAMark(t *testing.T) {
	withRetries(t, func(t *testing.T, r *retries) {
		r.add(inA, mark{vanished: true}, obstructed)
		r.settled(inA)
		wantNext(t, r, "settled before its time", inA, mark{}, time.Second)
	})
}

func TestC29ForgetNamespaceBeginsAnew(t *testing.T) {
	withRetries(t, func(t *testing.T, r *retries) {
		otherInA := cache.ObjectName{Namespace: "team-a", Name: "other"}
		longer := cache.ObjectName{Namespace: "team-ab", Name: "team-a"}
		all := []cache.ObjectName{inA, otherInA, inB, longer}
		for range 5 {
			for _, target := range all {
				r.add(target, mark{}, closing)
			}
			for range all {
				r.next()
			}
		}
		r.forgetNamespace("team-a")
		for target, want := range map[cache.ObjectName]time.Duration{
			inA: 50 * time.Millisecond, otherInA: 50 * time.Millisecond, inB: 1600 * time.Millisecond, longer: 1600 * time.Millisecond,
		} {
			r.add(target, mark{}, closing)
			wantNext(t, r, target.String(), target, mark{}, want)
		}
		for _, ns := range []string{"team-a", "team-b", "team-ab", "never-seen"} {
			r.forgetNamespace(ns)
		}
		if len(r.targets) != 0 {
			t.Errorf("got %v known, want nothing", r.targets)
		}
	})
}

func TestC43TheMarkIsHandedOutAgain(t *testing.T) {
	vanished := mark{vanished: true}
	withRetries(t, func(t *testing.T, r *retries) {
		r.add(inA, vanished, transient)
		r.add(inB, mark{}, behind)
		wantNext(t, r, "vanished", inA, vanished, 50*time.Millisecond)
		r.add(inA, vanished, transient)
		wantNext(t, r, "and again", inA, vanished, 100*time.Millisecond)
		r.add(inA, vanished, refused)
		wantNext(t, r, "with another trouble", inA, vanished, 250*time.Millisecond)
		wantNext(t, r, "the other one", inB, mark{}, 600*time.Millisecond)
		r.after(inA, vanished, time.Minute)
		wantNext(t, r, "put away without trouble", inA, vanished, time.Minute)
		r.after(inB, vanished, time.Second)
		wantNext(t, r, "vanished since the last time", inB, vanished, time.Second)
		never := cache.ObjectName{Namespace: "team-c", Name: "settings"}
		r.after(never, vanished, time.Second)
		wantNext(t, r, "never in trouble", never, vanished, time.Second)
		r.settled(inA)
		r.add(inA, mark{}, transient)
		wantNext(t, r, "after it was settled", inA, mark{}, 50*time.Millisecond)
	})
}

// TestC43OneLookIsEnough: the trouble goes on, and what vanished is known.
func TestC43OneLookIsEnough(t *testing.T) {
	withRetries(t, func(t *testing.T, r *retries) {
		r.looked(inA, true) // of which nothing is known
		r.add(inA, mark{vanished: true, deleted: true}, obstructed)
		r.looked(inA, false)
		wantNext(t, r, "after a look that found nothing", inA, mark{deleted: true}, time.Second)
		r.add(inA, mark{}, obstructed)
		wantNext(t, r, "at its pace", inA, mark{deleted: true}, 2*time.Second)
		r.add(inA, mark{vanished: true}, obstructed)
		r.looked(inA, true)
		wantNext(t, r, "after a look that found something", inA, mark{}, 4*time.Second)
	})
}

// TestC43TheMarkIsNotLostBeforeTheTroubleIsOver: a look for another reason does not make up for one that failed.
func TestC43TheMarkIsNotLostBeforeTheTroubleIsOver(t *testing.T) {
	withRetries(t, func(t *testing.T, r *retries) {
		if r.markOf(inA).vanished {
			t.Error("got a target vanished of which nothing is known")
		}
		r.add(inA, mark{vanished: true}, transient)
		r.add(inA, mark{}, transient)
		wantNext(t, r, "after another look", inA, mark{vanished: true}, 50*time.Millisecond)
		r.after(inA, mark{}, time.Second)
		r.add(inB, mark{}, obstructed)
		if !r.markOf(inA).vanished || r.markOf(inB).vanished {
			t.Errorf("got vanished %v in team-a, %v in team-b, want true, false", r.markOf(inA).vanished, r.markOf(inB).vanished)
		}
		wantNext(t, r, "after a third one", inA, mark{vanished: true}, time.Second)
		wantNext(t, r, "the other target", inB, mark{}, 0)
		r.settled(inA)
		if r.markOf(inA).vanished {
			t.Error("got it vanished after it was settled")
		}
	})
}

func TestInWhichTrouble(t *testing.T) {
	withRetries(t, func(t *testing.T, r *retries) {
		for _, trouble := range []trouble{behind, transient, closing, refused, obstructed, unseen} {
			r.add(inA, mark{}, trouble)
			if got, want := r.is(inA, refused), trouble == refused; got != want {
				t.Errorf("%v: got %v, want %v", trouble, got, want)
			}
		}
		r.add(inA, mark{}, refused)
		r.after(inA, mark{}, time.Second)
		if !r.is(inA, refused) || r.is(inB, refused) {
			t.Errorf("got %v in team-a, %v in team-b, want true, false", r.is(inA, refused), r.is(inB, refused))
		}
		r.settled(inA)
		if r.is(inA, refused) {
			t.Error("got it refused after it was settled")
		}
	})
}

// TestC30Hardened: a webhook that cannot be called answers with an internal error for ever.
func TestC30Hardened(t *testing.T) {
	withRetries(t, func(t *testing.T, r *retries) {
		for i := range 8 {
			if got := r.hardened(inA, transient, true); got != transient {
				t.Errorf("error %d: got %v, want it to pass for transient", i+1, got)
			}
			r.add(inA, mark{}, transient)
			r.next()
		}
		if got := r.hardened(inA, transient, false); got != transient {
			t.Errorf("no answer: got %v, want transient", got)
		}
		if got := r.hardened(inB, transient, true); got != transient {
			t.Errorf("another target: got %v, want transient", got)
		}
		for _, other := range []trouble{noTrouble, behind, closing, refused, obstructed, unseen} {
			if got := r.hardened(inA, other, true); got != other {
				t.Errorf("got %v for %v, want it as it is", got, other)
			}
		}
		if got := r.hardened(inA, transient, true); got != refused {
			t.Errorf("error 9: got %v, want refused", got)
		}
		r.add(inA, mark{}, refused)
		r.next()
		if got := r.hardened(inA, transient, true); got != refused {
			t.Errorf("error 10: got %v, want it to stay refused", got)
		}
		r.settled(inA)
		if got := r.hardened(inA, transient, true); got != transient {
			t.Errorf("after it was settled: got %v, want transient", got)
		}
	})
}

func TestC30AnotherTroubleDoesNotHarden(t *testing.T) {
	withRetries(t, func(t *testing.T, r *retries) {
		for _, other := range []trouble{behind, closing, obstructed, unseen} {
			for range 10 { // for minutes
				r.add(inA, mark{}, other)
				r.next()
			}
			if got := r.hardened(inA, transient, true); got != transient {
				t.Errorf("the first error after being %v: got %v, want transient", other, got)
			}
		}
	})
}

func TestC30HardenedAtItsTime(t *testing.T) {
	withRetries(t, func(t *testing.T, r *retries) {
		r.add(inA, mark{}, transient)
		time.Sleep(transientPatience - time.Nanosecond)
		if got := r.hardened(inA, transient, true); got != transient {
			t.Errorf("just before: got %v, want transient", got)
		}
		time.Sleep(time.Nanosecond)
		if got := r.hardened(inA, transient, true); got != refused {
			t.Errorf("in time: got %v, want refused", got)
		}
	})
}

func TestC30WhatHoldsUp(t *testing.T) {
	withRetries(t, func(t *testing.T, r *retries) {
		if r.holdsUp(inA) {
			t.Error("got a target that holds up of which nothing is known")
		}
		for _, trouble := range []trouble{behind, transient, closing, refused, obstructed, unseen} {
			r.add(inA, mark{}, trouble)
			if got, want := r.holdsUp(inA), trouble == refused; got != want {
				t.Errorf("%v: got %v, want %v", trouble, got, want)
			}
		}
		r.tookLong(inA)
		if !r.holdsUp(inA) || r.holdsUp(inB) {
			t.Errorf("got %v in team-a, where the API server took long, and %v in team-b, want true, false", r.holdsUp(inA), r.holdsUp(inB))
		}
		r.settled(inA)
		if r.holdsUp(inA) {
			t.Error("got a target that holds up after it was settled")
		}
	})
}

func TestAfter(t *testing.T) {
	withRetries(t, func(t *testing.T, r *retries) {
		// It does not count as trouble: the delays do not grow, neither its own nor those of a trouble.
		r.add(inA, mark{}, transient)
		wantNext(t, r, "trouble", inA, mark{}, 50*time.Millisecond)
		for range 3 {
			r.after(inA, mark{}, 700*time.Millisecond)
			wantNext(t, r, "after", inA, mark{}, 700*time.Millisecond)
		}
		r.add(inA, mark{}, transient)
		wantNext(t, r, "the same trouble", inA, mark{}, 100*time.Millisecond)
		r.after(inB, mark{}, 0)
		wantNext(t, r, "at once", inB, mark{}, 0)
		wantNothingMore(t, r)
	})
}

func TestOneTargetIsHandedOutOnce(t *testing.T) {
	withRetries(t, func(t *testing.T, r *retries) {
		r.add(inA, mark{}, obstructed)
		r.after(inA, mark{}, 10*time.Second)
		r.add(inA, mark{}, obstructed)
		wantNext(t, r, "the earliest of all times", inA, mark{}, time.Second)
		wantNothingMore(t, r)
	})
}

func TestNextEndsWhenShutDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRetries()
		r.add(inA, mark{}, obstructed)
		ended := false
		go func() {
			_, _, more := r.next()
			ended = !more
		}()
		synctest.Wait()
		r.queue.ShutDown()
		synctest.Wait()
		if !ended {
			t.Error("got a wait that goes on or a target, want the end")
		}
	})
}

// collide lets a create collide n times with an object in the way, as the reconciler does it, and returns the
// times, from the first one on, at which the object was looked at.
func collide(r *retries, n int, period time.Duration) (looks, tries []time.Duration) {
	start := time.Now()
	for range n {
		tries = append(tries, time.Since(start))
		if r.worthALook(inA, period) {
			looks = append(looks, time.Since(start))
		}
		r.add(inA, mark{}, obstructed)
		r.next()
	}
	return looks, tries
}

func TestC11WorthALook(t *testing.T) {
	const s = time.Second
	ramp := []time.Duration{0, 1 * s, 3 * s, 7 * s, 15 * s, 31 * s, 63 * s}
	for name, tc := range map[string]struct {
		period time.Duration
		later  []time.Duration // looks after the ramp, at one try a minute
	}{
		"never again without a period":        {0, nil},
		"every period":                        {10 * time.Minute, []time.Duration{663 * s, 1263 * s, 1863 * s}},
		"a period that is no multiple of 60s": {90 * s, []time.Duration{183 * s, 303 * s, 423 * s, 543 * s}},
		"a period of a minute":                {time.Minute, []time.Duration{123 * s, 183 * s, 243 * s}},
		"a short period":                      {s, []time.Duration{123 * s, 183 * s, 243 * s}},
	} {
		t.Run(name, func(t *testing.T) {
			withRetries(t, func(t *testing.T, r *retries) {
				looks, tries := collide(r, 40, tc.period)
				want := append(slices.Clone(ramp), tc.later...)
				if tc.later != nil {
					looks = looks[:min(len(looks), len(want))]
				}
				if !slices.Equal(looks, want) {
					t.Errorf("got looks at %v, want %v", looks, want)
				}
				// Whether or not somebody looks, the create is tried once a minute.
				for i, at := range tries[7:] {
					if want := time.Duration(i+2)*time.Minute + 3*s; at != want {
						t.Errorf("C40: got try %d at %v, want %v", i+7, at, want)
					}
				}
			})
		})
	}
}

func TestC11WorthALookAfterAnotherTrouble(t *testing.T) {
	withRetries(t, func(t *testing.T, r *retries) {
		collide(r, 20, 0)
		if r.worthALook(inA, 0) {
			t.Fatal("got a look at the slow pace, want none")
		}
		if !r.worthALook(inB, 0) {
			t.Error("got no look for a target without trouble, want one")
		}
		r.after(inB, mark{}, time.Second)
		r.next()
		if !r.worthALook(inB, 0) {
			t.Error("got no look for a target that was put away without trouble, want one")
		}
		r.add(inA, mark{}, transient)
		r.next()
		if !r.worthALook(inA, 0) {
			t.Error("got no look for an object that got in the way after another trouble, want one")
		}
		r.add(inA, mark{}, obstructed)
		r.next()
		if !r.worthALook(inA, 0) {
			t.Error("got no look at the second collision, want one")
		}
		collide(r, 20, 0)
		r.settled(inA)
		if !r.worthALook(inA, 0) {
			t.Error("got no look for an object that got in the way after all was settled, want one")
		}
		collide(r, 20, 0)
		r.forgetNamespace("team-a")
		if !r.worthALook(inA, 0) {
			t.Error("C29: got no look in a namespace that is new, want one")
		}
	})
}

func TestC30WorthALookWhereTheCreateIsRefused(t *testing.T) {
	withRetries(t, func(t *testing.T, r *retries) {
		for i := range 20 {
			if got, want := r.worthALook(inA, 0), i <= rampTries; got != want {
				t.Errorf("refusal %d: got a look %v, want %v", i+1, got, want)
			}
			r.add(inA, mark{}, refused)
			r.next()
		}
	})
}
