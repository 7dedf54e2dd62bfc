package main

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/mirror-controller/mirror-controller/cmd/kubectl-mirror/snapshot"
	"github.com/mirror-controller/mirror-controller/cmd/kubectl-mirror/snapshot/snapshottest"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

func TestPhase(t *testing.T) {
	for name, test := range map[string]struct {
		status         string
		states         []plan.State
		want, ifAllows phase
	}{
		"in sync":                {snapshot.InSync, []plan.State{plan.StateSynced, plan.StateSynced}, waitDone, waitDone},
		"no targets":             {snapshot.NoTargets, nil, waitBlocked, waitBlocked},
		"pending":                {snapshot.OutOfSync, []plan.State{plan.StateSynced, plan.StatePending}, waitOn, waitOn},
		"foreign":                {snapshot.OutOfSync, []plan.State{plan.StateSynced, plan.StateForeign}, waitBlocked, waitDone},
		"both":                   {snapshot.OutOfSync, []plan.State{plan.StatePending, plan.StateSuperseded}, waitBlocked, waitOn},
		"rejected":               {snapshot.OutOfSync, []plan.State{plan.StateRejected}, waitBlocked, waitDone},
		"frozen copy":            {snapshot.OutOfSync, []plan.State{plan.StateFrozen}, waitBlocked, waitDone},
		"expiring":               {snapshot.OutOfSync, []plan.State{plan.StateSynced, plan.StateExpiring}, waitDone, waitDone},
		"out of scope":           {snapshot.OutOfSync, []plan.State{plan.StateSynced, plan.StateOutOfScope}, waitDone, waitDone},
		"held":                   {snapshot.OutOfSync, []plan.State{plan.StateSynced, plan.StateHeld}, waitDone, waitDone},
		"held, canaries blocked": {snapshot.OutOfSync, []plan.State{plan.StateForeign, plan.StateHeld}, waitBlocked, waitDone},
		"all held":               {snapshot.OutOfSync, []plan.State{plan.StateHeld}, waitHeld, waitDone},
		"held, others":           {snapshot.OutOfSync, []plan.State{plan.StatePending, plan.StateHeld}, waitOn, waitOn},
		"frozen":                 {snapshot.Frozen, []plan.State{plan.StateFrozen}, waitBlocked, waitBlocked},
		"reserved":               {snapshot.ReservedName, nil, waitBlocked, waitBlocked},
	} {
		r := &snapshot.Source{Status: test.status, Counts: map[string]int{}}
		for _, state := range test.states {
			r.Counts[state.Metric()]++
			if state != plan.StateHeld {
				r.Reached++
			}
		}
		if got := phaseOf(r, allowed{}); got != test.want {
			t.Errorf("%s: got %v, want %v", name, got, test.want)
		}
		if got := phaseOf(r, allowed{blocked: true, held: true}); got != test.ifAllows {
			t.Errorf("%s, allowing: got %v, want %v", name, got, test.ifAllows)
		}
	}
}

// TestC62PhaseOfAStage: a stage whose selector matches no target has reached nobody, also if copies of an earlier one are in sync.
func TestC62PhaseOfAStage(t *testing.T) {
	asked := types.NamespacedName{Namespace: "platform", Name: "staged"} // one copy is in sync, and all targets are held
	for label, want := range map[string]phase{"tier=gold": waitHeld, "tier=canary": waitDone} {
		s := snapshottest.EveryState()
		key, value, _ := strings.Cut(label, "=")
		for _, ns := range s.Namespaces {
			if ns.Name == "team-a" {
				ns.Labels[key] = value
			}
		}
		source := s.Snapshot(t).Sources(asked)[0]
		if got := phaseOf(source, allowed{}); got != want {
			t.Errorf("%s: got %v, want %v: %s", label, got, want, source.Summary())
		}
	}
}
