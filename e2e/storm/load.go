package main

import (
	"slices"
	"strings"
	"time"

	"github.com/mirror-controller/mirror-controller/e2e/faultproxy"
)

// slowAnswer is how long the API server takes for a request when it has no time.
const slowAnswer = 500 * time.Millisecond

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

// slowCalls is how many calls may be in flight besides --concurrent-writes: a slow call gives its place away.
const slowCalls = 16

// lateRequests returns how many requests of a replica that were sent between the two may have come late: those in flight. A
// process that stands still begins no more of them. Where requests are held up, it does.
func (s *storm) lateRequests(user string, from, to time.Time) int {
	switch {
	case s.stalls.Between(from, to) >= lateLoad, s.met(user, from, to, func(i incident) bool { return isHeldUp(i) && !standsStill(i) }):
		return concurrentWrites + slowCalls
	case s.met(user, from, to, standsStill):
		return concurrentWrites
	}
	return 0
}

func standsStill(i incident) bool { return i.step.kind == "pause" || i.step.kind == "zombie" }
