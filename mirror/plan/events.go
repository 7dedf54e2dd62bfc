package plan

// Reasons of the events on a source, and of Restored, which is on a copy. Mirrored, Held, Deleted and Restored are of
// type Normal, the others are Warnings. Dashboards and scripts match the reasons, so they do not change.
const (
	ReasonMirrored          = "Mirrored"
	ReasonDeleted           = "Deleted"
	ReasonForeign           = "Foreign"
	ReasonSuperseded        = "Superseded"
	ReasonReservedName      = "ReservedName"
	ReasonInvalidAnnotation = "InvalidAnnotation"
	ReasonWriteFailed       = "WriteFailed"
	ReasonFight             = "Fight"
	ReasonOutOfScope        = "OutOfScope"
	ReasonNoTargets         = "NoTargets"
	ReasonExpiring          = "Expiring"
	ReasonHeld              = "Held"
	ReasonRestored          = "Restored"
)

// Blocking are the states of targets from which something keeps a source that selects them, by the reasons of the
// events about them. Mirrored counts these targets.
var Blocking = map[string]State{
	ReasonForeign:     StateForeign,
	ReasonSuperseded:  StateSuperseded,
	ReasonWriteFailed: StateRejected,
	ReasonFight:       StateFight,
}
