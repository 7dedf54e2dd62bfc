package plan

import (
	"slices"
	"testing"
)

// TestStates writes out what each state means to users.
func TestStates(t *testing.T) {
	for state, want := range map[State]struct {
		name, event, status       string
		target, blocked, isWarned bool
	}{
		StateNone:       {"none", "", "", false, false, false},
		StateSynced:     {"synced", "Mirrored", "InSync", true, false, false},
		StatePending:    {"pending", "", "Pending", true, false, false},
		StateForeign:    {"foreign", "Foreign", "Blocked", true, true, true},
		StateSuperseded: {"superseded", "Superseded", "Blocked", true, true, true},
		StateRejected:   {"rejected", "WriteFailed", "Rejected", true, true, true},
		StateFight:      {"fight", "Fight", "Blocked", true, true, true},
		StateFrozen:     {"frozen", "InvalidAnnotation", "Frozen", true, false, false},
		StateHeld:       {"held", "Held", "InSync", true, false, false},
		StateOutOfScope: {"out_of_scope", "OutOfScope", "", false, false, true},
		StateExpiring:   {"expiring", "Expiring", "", false, false, true},
	} {
		t.Run(want.name, func(t *testing.T) {
			if state.String() != want.name || state.Event() != want.event ||
				state.Status().String() != want.status {
				t.Errorf("got %s, event %q, status %q, want %s, %q, %q",
					state, state.Event(), state.Status(), want.name, want.event, want.status)
			}
			if state.IsTarget() != want.target || state.IsBlocked() != want.blocked ||
				state.IsWarned() != want.isWarned {
				t.Errorf("got a target %v, blocked %v, warned about %v, want %v, %v, %v",
					state.IsTarget(), state.IsBlocked(), state.IsWarned(),
					want.target, want.blocked, want.isWarned)
			}
			owned := 0
			if want.target && state != StateSuperseded {
				owned = 1
			}
			counts := Counts{}
			counts[state] = 1
			if got := counts.Targets(); got != owned {
				t.Errorf("got %d targets owned, want %d", got, owned)
			}
			if counts.IsWithoutTargets() == want.target {
				t.Errorf("got that one such target is none: %v", want.target)
			}
			if got, want := EventAnnotation(state), "mirror-controller.github.io/"+want.name; got != want {
				t.Errorf("got annotation %q, want %q", got, want)
			}
			if isCounted := slices.Contains(Counted, state); isCounted != (state != StateNone) {
				t.Errorf("got counted %v", isCounted)
			}
		})
	}
	if len(Counted) != int(States)-1 {
		t.Errorf("got %v counted, want each state once", Counted)
	}
}
