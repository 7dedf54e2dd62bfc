package main

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/mirror-controller/mirror-controller/e2e/faultproxy"
)

// tick is the time between two looks at the clock, tickLate how much more than that means that the machine has no time
// for anybody: a lease may then be lost, and a request take long, by no fault of anybody's.
const (
	tick     = 100 * time.Millisecond
	tickLate = 250 * time.Millisecond
	// slowAnswer is how long the API server takes for a request when it has no time.
	slowAnswer = 500 * time.Millisecond
)

// stalls are the moments in which the machine had no time.
type stalls struct {
	mu   sync.Mutex
	list []stall
}

type stall struct {
	at   time.Time // its end
	took time.Duration
}

// follow looks at the clock until ctx ends.
func (s *stalls) follow(ctx context.Context) {
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	for last := time.Now(); ; {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		now := time.Now()
		if now.Sub(last) > tick+tickLate {
			s.add(stall{now, now.Sub(last)})
		}
		last = now
	}
}

func (s *stalls) add(one stall) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.list = append(s.list, one)
}

// between returns how long those took in all that were at any moment between the two.
func (s *stalls) between(from, to time.Time) (took time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, one := range s.list {
		if !one.at.Before(from) && !one.at.Add(-one.took).After(to) {
			took += one.took
		}
	}
	return took
}

// heldUp are the faults by which requests may arrive long after they were sent, or after their sender was told that
// nothing came of them.
var heldUp = []string{
	"pause", "zombie", "silence", "lose-connections", "break-connections",
	nameOf(faultproxy.Delay), nameOf(faultproxy.BreakBefore), nameOf(faultproxy.BreakAfter),
	"pause-apiserver", "restart-apiserver", "kill-apiserver", "outdate-watches",
}

func isHeldUp(i incident) bool {
	return slices.Contains(heldUp, i.step.kind) && !slices.Equal(i.step.args[resourceArg], leases)
}

// isSlow reports whether by the incident a request may take long in all: also those that are told to try again do.
func isSlow(i incident) bool { return isHeldUp(i) || strings.HasPrefix(i.step.kind, requestsPrefix) }

// met reports whether a replica met such an incident between the two.
func (s *storm) met(user string, from, to time.Time, such func(incident) bool) bool {
	return slices.ContainsFunc(s.fleet.incidents.between(from, to), func(i incident) bool { return i.user == user && such(i) })
}

// lateLoad is how much time the machine must have had for nobody, for a request to come after the lease of its sender:
// half of the time by which the lease outlasts the sender's trust in it.
const lateLoad = 500 * time.Millisecond

// mayBeLate reports whether requests of a replica that were sent between the two may have come late.
func (s *storm) mayBeLate(user string, from, to time.Time) bool {
	return s.stalls.between(from, to) >= lateLoad || s.met(user, from, to, isHeldUp)
}
