package main

import (
	"testing"

	"github.com/mirror-controller/mirror-controller/cmd/kubectl-mirror/snapshot"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// TestPhase has how far a source is, without and with both flags that allow more. A stage whose selector matches no
// target has reached nobody, also if copies of an earlier one are in sync (C62).
func TestPhase(t *testing.T) {
	const s, p, f, h = plan.StateSynced, plan.StatePending, plan.StateForeign, plan.StateHeld
	for name, test := range map[string]struct {
		status         string
		reached        int
		states         []plan.State
		want, ifAllows phase
	}{
		"in sync":                {snapshot.InSync, 2, []plan.State{s, s}, waitDone, waitDone},
		"pending":                {snapshot.OutOfSync, 2, []plan.State{s, p}, waitOn, waitOn},
		"foreign":                {snapshot.OutOfSync, 2, []plan.State{s, f}, waitBlocked, waitDone},
		"both":                   {snapshot.OutOfSync, 2, []plan.State{p, plan.StateSuperseded}, waitBlocked, waitOn},
		"frozen copy":            {snapshot.OutOfSync, 1, []plan.State{plan.StateFrozen}, waitBlocked, waitDone},
		"expiring":               {snapshot.OutOfSync, 1, []plan.State{s, plan.StateExpiring}, waitDone, waitDone},
		"out of scope":           {snapshot.OutOfSync, 1, []plan.State{s, plan.StateOutOfScope}, waitDone, waitDone},
		"held":                   {snapshot.OutOfSync, 1, []plan.State{s, h}, waitDone, waitDone},
		"held, canaries blocked": {snapshot.OutOfSync, 1, []plan.State{f, h}, waitBlocked, waitDone},
		"all held":               {snapshot.OutOfSync, 0, []plan.State{h}, waitHeld, waitDone},
		"all held, some in sync": {snapshot.OutOfSync, 0, []plan.State{s, h}, waitHeld, waitDone},
	} {
		r := &snapshot.Source{Status: test.status, Counts: map[string]int{}, Reached: test.reached}
		for _, state := range test.states {
			r.Counts[state.Metric()]++
		}
		got, allowing := phaseOf(r, allowed{}), phaseOf(r, allowed{blocked: true, held: true})
		if got != test.want || allowing != test.ifAllows {
			t.Errorf("%s: got %v, and allowing %v, want %v and %v", name, got, allowing, test.want, test.ifAllows)
		}
	}
}
