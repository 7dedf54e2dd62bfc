package plan

// State is the state of a source at one target. [Rules.Decide] returns it, but
// for StateSuperseded of the other sources that select the target, and for
// StateRejected and StateFight, which come of writes.
type State int

// The states, in the order in which tables show them.
const (
	StateNone       State = iota // no copy is wanted there, and there is none of ours
	StateSynced                  // the copy is in sync
	StatePending                 // the copy is out of sync, and something is to be done
	StateForeign                 // a foreign object, or one that is being deleted, is in the way
	StateSuperseded              // another source of that name wins the target
	StateRejected                // the API server rejects the copy
	StateFight                   // another client keeps changing the copy
	StateFrozen                  // an annotation of the source is malformed: the copy stays
	StateHeld                    // an annotation of the source holds the target as it is
	StateOutOfScope              // the copy is out of scope of the flags and stays as it is
	StateExpiring                // no source claims the copy: it is deleted after its grace
	States                       // the number of states
)

// Status is how a source stands by its targets. The greatest status among its
// targets is that of the source, and decides the exit code of kubectl mirror.
type Status int

// The statuses, from the least to the greatest.
const (
	StatusNone     Status = iota // there is neither a target nor a copy
	StatusLeft                   // a copy is left where the source has no target
	StatusInSync                 // nothing is to be done
	StatusBlocked                // somebody else has to do something
	StatusRejected               // a retry may succeed
	StatusPending                // the controller has something to do
	StatusFrozen                 // the owner of the source has to fix an annotation
)

// String returns the status as kubectl mirror shows it; empty if it shows none.
func (s Status) String() string {
	return [...]string{"", "", "InSync", "Blocked", "Rejected", "Pending", "Frozen"}[s]
}

// states has what each state is called and means. Everything else about states
// follows from this table: metric, events, statuses, exit codes. The reference
// in deploy/docs shows the table, with the alerts.
var states = [States]struct {
	// name is the value of the label of mirror_copies, the annotation of a
	// Mirrored, and the state that kubectl mirror shows.
	name string
	// event is the reason of the event that comes of such a target.
	event string
	// status is how a source stands that has such a target and no greater one.
	status Status
}{
	StateNone:       {"none", "", StatusNone},
	StateSynced:     {"synced", ReasonMirrored, StatusInSync},
	StatePending:    {"pending", "", StatusPending},
	StateForeign:    {"foreign", ReasonForeign, StatusBlocked},
	StateSuperseded: {"superseded", ReasonSuperseded, StatusBlocked},
	StateRejected:   {"rejected", ReasonWriteFailed, StatusRejected},
	StateFight:      {"fight", ReasonFight, StatusBlocked},
	StateFrozen:     {"frozen", ReasonInvalidAnnotation, StatusFrozen},
	StateHeld:       {"held", ReasonHeld, StatusInSync},
	StateOutOfScope: {"out_of_scope", ReasonOutOfScope, StatusLeft},
	StateExpiring:   {"expiring", ReasonExpiring, StatusLeft},
}

// String returns the name of the state, as metrics, events and kubectl mirror
// have it.
func (s State) String() string { return states[s].name }

// Event returns the reason of the event that comes of a target in this state;
// empty if none does.
func (s State) Event() string { return states[s].event }

// Status returns how a source stands that has a target in this state, and none
// with a greater status.
func (s State) Status() Status { return states[s].status }

// IsTarget reports whether the source selects a namespace in this state.
func (s State) IsTarget() bool { return s.Status() > StatusLeft }

// IsBlocked reports whether something keeps the source from a target in this
// state.
func (s State) IsBlocked() bool {
	return s.Status() == StatusBlocked || s.Status() == StatusRejected
}

// IsWarned reports whether a Warning is about the targets in this state. The one
// about a frozen source is about the source.
func (s State) IsWarned() bool { return s.IsBlocked() || s.Status() == StatusLeft }

// EventAnnotation returns the annotation of a Mirrored that holds the number of
// targets in a state.
func EventAnnotation(s State) string { return Domain + "/" + s.String() }

// Counts are numbers of targets of one source, by state.
type Counts [States]int

// Targets returns the number of targets that the source selects and wins.
func (c *Counts) Targets() (n int) {
	for state, count := range c {
		if State(state).IsTarget() && State(state) != StateSuperseded {
			n += count
		}
	}
	return n
}

// IsWithoutTargets reports whether the source selects no namespace. Copies may be
// left where it has selected one.
func (c *Counts) IsWithoutTargets() bool {
	return c.Targets() == 0 && c[StateSuperseded] == 0
}

// Counted are the states that are counted: all but StateNone.
var Counted = func() (all []State) {
	for s := StateSynced; s < States; s++ {
		all = append(all, s)
	}
	return all
}()
