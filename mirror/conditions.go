package mirror

import (
	"cmp"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/mirror-controller/mirror-controller/mirror/internal/outcome"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// facts are what one decision about a target goes by, besides its record.
type facts struct {
	have    *corev1.ConfigMap // at the target, as the cache shows it; nil: nothing
	change  plan.Change       // what would bring the target in sync
	version string            // the cache has seen all ConfigMaps up to this resourceVersion
	grace   time.Duration     // the deletion grace
	now     time.Time
}

// condition is a reason to leave a target as it is for now. One that holds has a
// time, a state, or rests. The zero value means that it does not hold.
type condition struct {
	until  time.Time // when the condition ends by itself; zero: an event ends it
	stands standing  // how the target stands meanwhile
	rests  bool      // nothing is to be done, and nothing of former tries matters
}

// next returns how the target stands, and whether to act now or after which time
// to look again; 0: an event brings the next decision. c is the first condition
// that holds, or the zero value.
func (r *record) next(c condition, f *facts) (stands standing, act bool, wait time.Duration) {
	if c == (condition{}) {
		return r.corrected(r.untilTried(f), f), true, 0
	}
	stands = r.corrected(c.stands, f)
	until := c.until
	if until.IsZero() && stands.state == plan.StateFight {
		until = r.repairs.calmAt()
	}
	if !until.IsZero() {
		wait = max(until.Sub(f.now), time.Nanosecond) // 0 would be no time
	}
	return stands, false, wait
}

// firstCondition returns the first one of the conditions, in this order, that holds.
// None of them changes anything. They are called by name, and return values: with a
// table of functions each decision of a resync would allocate its record.
func (r *record) firstCondition(f *facts) condition {
	return cmp.Or(
		r.awaitsOwnWrite(f),
		r.madeByAdmission(f),
		r.hasNothingToDo(f),
		r.backsOff(f),
		r.isInGrace(f),
		r.delaysRepair(f),
		r.spacesUpdates(f),
	)
}

// decided returns how the target stands by what the cache shows.
func (f *facts) decided() standing {
	c := f.change
	return standing{state: c.State, owner: c.Owner, note: c.Note, adoptable: c.Adoptable}
}

// hasWanted reports whether the content that is wanted now is the one with which
// the copy was last in sync, or was written.
func (r *record) hasWanted(f *facts) bool { return r.content == contentOf(f.change.Source) }

// awaitsOwnWrite holds while the cache shows something older than our own last
// write. The target stands as that write left it.
func (r *record) awaitsOwnWrite(f *facts) condition {
	if !r.lastWrite.isAwaited(f.have, f.version) {
		return condition{}
	}
	stands := f.decided()
	isWanted := f.change.Source != nil
	switch {
	case isWanted && r.hasWanted(f):
		stands = standing{state: plan.StateSynced, owner: f.change.Owner}
	case isWanted:
		stands = standing{state: plan.StatePending, owner: f.change.Owner}
	case r.hasWanted(f): // the copy is deleted
		stands = standing{}
	}
	return condition{until: r.lastWrite.at.Add(maxAwait), stands: stands}
}

// madeByAdmission holds while the object there comes from our own write and
// admission altered it, if only a deletion could correct that: the object counts
// as foreign, or it is immutable. The controller takes nothing back, because
// admission would alter the next write in the same way. An object that is being
// deleted is in the way, whichever client made it.
func (r *record) madeByAdmission(f *facts) condition {
	isForeign := f.change.State == plan.StateForeign
	isSameAgain := f.change.Op == plan.OpRecreate && r.retry.altered.content == contentOf(f.change.Source)
	if !r.hasAltered(f.have) || !isForeign && !isSameAgain {
		return condition{}
	}
	note := r.retry.altered.note
	return condition{stands: standing{state: plan.StateRejected, owner: f.change.Owner, note: note}}
}

// hasAltered reports whether have comes from our own write, altered by admission.
func (r *record) hasAltered(have *corev1.ConfigMap) bool {
	return have != nil && have.UID == r.retry.altered.uid && have.DeletionTimestamp == nil
}

// hasNothingToDo holds while the target is in sync, or is to stay as it is.
func (r *record) hasNothingToDo(f *facts) condition {
	if f.change.Op != plan.OpNone {
		return condition{}
	}
	return condition{stands: f.decided(), rests: true}
}

// backsOff holds after a failure, until the next try is due.
func (r *record) backsOff(f *facts) condition {
	if !r.retry.notBefore.After(f.now) || r.isTriggered(f) {
		return condition{}
	}
	return condition{until: r.retry.notBefore, stands: r.asLastTried(f.decided())}
}

// isTriggered reports whether a change ends the wait for the next try. Other
// wanted content does, unless a foreign object is in the way. A change of the
// object there does, unless the target has failed often.
func (r *record) isTriggered(f *facts) bool {
	if r.retry.content != contentOf(f.change.Source) && r.retry.standing.state != plan.StateForeign {
		return true
	}
	have := versionOf(f.have)
	if have == r.retry.have || r.retry.stored != "" && have == r.retry.stored {
		return false
	}
	// The owner of a foreign object may hand it over at any time.
	return r.retry.failures < maxTriggers || r.retry.outcome == outcome.Foreign && have != ""
}

// isInGrace holds until the deletion grace of an unclaimed copy is over. Before
// a line of the log has announced the deletion the grace has no end: the line
// begins it, and queues the target.
func (r *record) isInGrace(f *facts) condition {
	end := r.unclaimed.since.Add(f.grace)
	switch {
	case f.change.Op != plan.OpDelete:
		return condition{}
	case r.unclaimed.since.IsZero():
		return condition{stands: f.decided()}
	case end.After(f.now):
		return condition{until: end, stands: f.decided()}
	}
	return condition{}
}

// delaysRepair holds while the next repair waits, because another client changes
// the copy back again and again.
func (r *record) delaysRepair(f *facts) condition {
	end := r.repairs.last.Add(r.repairs.delay())
	if !r.hasWanted(f) || !end.After(f.now) {
		return condition{}
	}
	return condition{until: end, stands: f.decided()}
}

// spacesUpdates holds for a moment after an update, if the source has changed
// again.
func (r *record) spacesUpdates(f *facts) condition {
	end := r.lastWrite.at.Add(updateGap)
	if r.hasWanted(f) || f.change.Op == plan.OpDelete || !end.After(f.now) {
		return condition{}
	}
	return condition{until: end, stands: f.decided()}
}

// untilTried returns how the target stands until the change that is due was
// tried. If the last try was of the same kind, the target stands as that showed.
func (r *record) untilTried(f *facts) standing {
	isDeletion := f.change.Op == plan.OpDelete
	wasDeletion := r.retry.content == content{}
	if r.retry.standing.owner != f.change.Owner || wasDeletion != isDeletion {
		return f.decided()
	}
	return r.asLastTried(f.decided())
}

// asLastTried returns how the target stands by the last try, if that showed
// something the cache does not show.
func (r *record) asLastTried(decided standing) standing {
	if r.retry.standing.state == plan.StateNone {
		return decided
	}
	stands := r.retry.standing
	stands.owner = decided.owner
	return stands
}

// corrected returns how the target stands while a call is on its way, and in a
// fight, whichever condition holds.
func (r *record) corrected(stands standing, f *facts) standing {
	if r.busy && stands.state == plan.StateSynced { // the call may write other content
		stands.state = plan.StatePending
	}
	if r.isFight(stands.state, f) {
		stands.state = plan.StateFight
	}
	return stands
}

// isFight reports whether another client keeps changing the copy: a repair was
// delayed lately, or the next one will be. If something else is in the way, such
// as a foreign object, the target counts as that.
func (r *record) isFight(state plan.State, f *facts) bool {
	switch state {
	case plan.StateSynced:
		return r.repairs.inRow > freeRepairs
	case plan.StatePending:
		return r.repairs.inRow > freeRepairs || r.repairs.inRow == freeRepairs && r.hasWanted(f)
	}
	return false
}
