package plan

import (
	"maps"
)

// State is the state of a source at one target. [Rules.Decide] returns it, but for StateSuperseded of the other sources
// that select a target, and for StateRejected and StateFight, which come of writes.
type State int

// The states.
const (
	StateNone       State = iota // no copy is wanted there
	StateSynced                  // the copy is in sync
	StatePending                 // the copy is out of sync, and something is to be done
	StateForeign                 // a foreign object, or one that is being deleted, is in the way
	StateSuperseded              // another source of that name wins the target
	StateRejected                // the API server rejects the copy
	StateFrozen                  // an annotation of the source is malformed or not known: the copy stays as it is
	StateOutOfScope              // the copy is out of scope of the flags and stays as it is
	StateFight                   // another client keeps changing the copy
	StateExpiring                // no source claims the copy: it is deleted at the end of the deletion grace
	StateHeld                    // an annotation of the source holds the target: it stays as it is
	States                       // the number of states
)

var states = [States]string{"none", "synced", "pending", "foreign", "superseded", "rejected", "frozen", "out_of_scope",
	"fight", "expiring", "held"}

func (s State) String() string { return states[s] }

// Metric returns the value of the label of mirror_copies; empty if copies in this state are not counted.
func (s State) Metric() string {
	switch s {
	case StateNone:
		return ""
	case StateFight:
		return StatePending.String()
	}
	return s.String()
}

// IsProblem reports whether the owner of the source needs to know of the targets in this state.
func (s State) IsProblem() bool {
	return s == StateForeign || s == StateRejected || s == StateOutOfScope || s == StateFight
}

// EventAnnotation returns the annotation of an event Mirrored that holds the number of targets in a state.
func EventAnnotation(s State) string { return Domain + "/" + s.String() }

// Blocking are the states of targets from which something keeps a source that selects them, by the reasons of events.
var Blocking = map[string]State{
	ReasonForeign:     StateForeign,
	ReasonSuperseded:  StateSuperseded,
	ReasonWriteFailed: StateRejected,
	ReasonFight:       StateFight,
}

// Warned are the states of targets that warnings are about, by their reasons.
var Warned = func() map[string]State {
	all := maps.Clone(Blocking)
	all[ReasonExpiring], all[ReasonOutOfScope] = StateExpiring, StateOutOfScope
	return all
}()
