package main

import (
	"testing"

	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

func TestPhase(t *testing.T) {
	for name, test := range map[string]struct {
		status           string
		states           []plan.State
		want, ifIgnoring phase
	}{
		"in sync":      {statusInSync, []plan.State{plan.StateSynced, plan.StateSynced}, waitDone, waitDone},
		"no targets":   {statusInSync, nil, waitDone, waitDone},
		"pending":      {statusOutOfSync, []plan.State{plan.StateSynced, plan.StatePending}, waitOn, waitOn},
		"foreign":      {statusOutOfSync, []plan.State{plan.StateSynced, plan.StateForeign}, waitBlocked, waitDone},
		"both":         {statusOutOfSync, []plan.State{plan.StatePending, plan.StateSuperseded}, waitBlocked, waitOn},
		"failed":       {statusOutOfSync, []plan.State{plan.StateFailed}, waitBlocked, waitDone},
		"out of scope": {statusOutOfSync, []plan.State{plan.StateSynced, plan.StateOutOfScope}, waitDone, waitDone},
		"frozen":       {statusFrozen, []plan.State{plan.StateFrozen}, waitBlocked, waitDone},
		"reserved":     {statusReserved, nil, waitBlocked, waitDone},
	} {
		r := &oneReport{sourceReport: sourceReport{Status: test.status, Counts: map[string]int{}}}
		for _, state := range test.states {
			r.Counts[state.Metric()]++
		}
		if got := phaseOf(r, false); got != test.want {
			t.Errorf("%s: got %v, want %v", name, got, test.want)
		}
		if got := phaseOf(r, true); got != test.ifIgnoring {
			t.Errorf("%s, ignoring: got %v, want %v", name, got, test.ifIgnoring)
		}
	}
}
