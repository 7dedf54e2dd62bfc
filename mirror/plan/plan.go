package plan

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Op is the operation at one target.
type Op int

// The operations.
const (
	OpNone     Op = iota // nothing
	OpCreate             // create the copy: the cache shows no object there
	OpUpdate             // update the copy, or adopt the object
	OpRecreate           // delete and create: the copy is immutable and its content differs, or its metadata is truncated
	OpDelete             // delete the copy, once a live read confirms that no source claims it
)

func (o Op) String() string {
	return [...]string{"none", "create", "update", "recreate", "delete"}[o]
}

// State is the state of a source at one target. [Rules.Decide] returns it, but for StateSuperseded, which the losers of
// a target have, StateRejected and StateFight, which come of writes, and StateExpiring, which takes a clock.
type State int

// The states.
const (
	StateNone       State = iota // no copy is wanted there
	StateSynced                  // the copy is in sync
	StatePending                 // the copy is out of sync, and something is to be done or awaited
	StateForeign                 // a foreign object is in the way
	StateSuperseded              // another source of that name has the target
	StateRejected                // the API server rejects the copy
	StateFrozen                  // an annotation of the source is malformed or not known: the copy stays as it is
	StateOutOfScope              // the copy is out of scope of the flags and stays as it is
	StateFight                   // another client keeps changing the copy
	StateExpiring                // no source claims the copy: it is deleted at the end of the deletion grace
	StateHeld                    // an annotation of the source holds the target: it stays as it is
	States                       // the number of states
)

// states says, of each state, its name, its value of the label of mirror_copies, whether it is about to change, and
// whether the owner of the source needs to know of it.
var states = [States]struct {
	name, metric     string
	pending, problem bool
}{
	StateNone:       {name: "none"},
	StateSynced:     {name: "synced", metric: "synced"},
	StatePending:    {name: "pending", metric: "pending", pending: true},
	StateForeign:    {name: "foreign", metric: "foreign", problem: true},
	StateSuperseded: {name: "superseded", metric: "superseded"},
	StateRejected:   {name: "rejected", metric: "rejected", problem: true},
	StateFrozen:     {name: "frozen", metric: "frozen"},
	StateOutOfScope: {name: "out_of_scope", metric: "out_of_scope", problem: true},
	StateFight:      {name: "fight", metric: "pending", problem: true},
	StateExpiring:   {name: "expiring", metric: "expiring"},
	StateHeld:       {name: "held", metric: "held"},
}

func (s State) String() string { return states[s].name }

// Metric returns the value of the label of mirror_copies; empty if copies in this state are not counted.
func (s State) Metric() string { return states[s].metric }

// IsPending reports whether something is to be done or awaited: the source is not yet known to be in sync or blocked
// there.
func (s State) IsPending() bool { return states[s].pending }

// IsProblem reports whether the owner of the source needs to know of the state. StateSuperseded has an event of its
// own.
func (s State) IsProblem() bool { return states[s].problem }

// Target is one place for a copy.
type Target struct {
	// Key is the target namespace, and the name of the copy.
	Key types.NamespacedName
	// Namespace is nil if the cache does not have it.
	Namespace *corev1.Namespace
	// Have is the ConfigMap there; nil if the cache shows none. The cache shows no objects without a mirror label.
	Have *corev1.ConfigMap
}

// Change is the decision about one target.
type Change struct {
	Op  Op
	Key types.NamespacedName
	// Source is the source that wins the target; nil if none claims it.
	Source *Source
	// Have is the object to update or delete, as it was judged; nil for a create.
	Have *corev1.ConfigMap
	// CopyOf is the source of Have, if Have is a copy of ours.
	CopyOf types.NamespacedName
	// Why is the reason of a deletion, or why the copy is out of scope.
	Why Loss
	// ByLabels is set if a deletion depends on the labels of the namespace, which are read live before it, as the source
	// is.
	ByLabels bool
	// State is the state of the winner, or else of CopyOf, if Op is OpNone.
	State State
	// Withheld is what is done once the hold ends, if State is StateHeld.
	Withheld Op
}

// Decide returns the change at a target that brings it in sync with the sources of its name. It does not change its
// arguments.
//
//	object there        | a source claims the target         | none does
//	--------------------+------------------------------------+------------------------------------
//	none                | create                             | nothing
//	foreign             | nothing; update, if adoptable      | nothing
//	copy of ours        | nothing, update or recreate        | delete, if in scope
//	copy without label  | update or recreate                 | nothing: it counts as released
//	copy, being deleted | wait                               | wait
//	copy of frozen      | nothing, also for other sources    | nothing
//
// Nothing happens at a target that the source of the copy there holds, or that its winner holds. Nothing happens in a
// namespace that the cache does not have, whose labels it does not hold, or that is terminating, nor under a reserved
// name.
func (r *Rules) Decide(v *View, t Target) Change {
	c := r.decide(v, t)
	if c.Op == OpNone && c.State != StatePending && c.State != StateForeign {
		return c
	}
	if s := v.Find(c.CopyOf); s != nil && s.Holds(t.Namespace) {
		return c.heldBy(s)
	}
	if c.Source != nil && c.Source.Holds(t.Namespace) {
		return c.heldBy(c.Source)
	}
	return c
}

// heldBy returns the change while s holds the target.
func (c Change) heldBy(s *Source) Change {
	if c.Source != s {
		c.Source = nil
	}
	c.Op, c.Withheld, c.State, c.ByLabels = OpNone, c.Op, StateHeld, false
	return c
}

// decide decides as if no source held a target.
func (r *Rules) decide(v *View, t Target) Change {
	c := Change{Key: t.Key}
	if t.Namespace == nil || LabelsTruncated(t.Namespace) || Terminating(t.Namespace) || Reserved(t.Key.Name) {
		return c
	}
	c.Source = r.Winner(v, t.Namespace)
	if t.Have == nil {
		if c.Source != nil {
			c.Op = OpCreate
		}
		return c
	}
	copyOf, ours := r.SourceOf(t.Have)
	// Only a live read shows a copy that lost its label.
	if released := c.Source == nil && !r.Visible(t.Have); !ours || released {
		return r.decideForeign(c, t)
	}
	c.Have, c.CopyOf = t.Have, copyOf
	switch s := v.Find(copyOf); {
	case s != nil && s.Frozen != nil:
		c.Source, c.State = nil, StateFrozen
	case t.Have.DeletionTimestamp != nil:
		c.State = StatePending
	case c.Source == nil:
		return r.decideUnwanted(c, v, t)
	case r.inSync(c.Source, t.Have):
		c.State = StateSynced
	default:
		c.Op = overwrite(c.Source, t.Have)
	}
	return c
}

// Winner returns the first source that claims the namespace, or nil.
func (r *Rules) Winner(v *View, ns *corev1.Namespace) *Source {
	for _, s := range v.Sources {
		if r.Exclusion(s, ns) == NotExcluded {
			return s
		}
	}
	return nil
}

// Superseded returns the sources that claim the target and do not have it: c was decided by v and t.
func (r *Rules) Superseded(v *View, t Target, c Change) (losers []*Source) {
	if c.Source == nil && c.State != StateFrozen && c.State != StateHeld {
		return nil
	}
	for _, s := range v.Sources {
		if s.Key != c.CountsFor() && r.Exclusion(s, t.Namespace) == NotExcluded {
			losers = append(losers, s)
		}
	}
	return losers
}

// overwrite returns the operation that gives have the content of s. The API allows no other content in an immutable
// object. Metadata that the cache truncated cannot be kept, and its owner must not block a repair with it. An object
// with finalizers would be held terminating, so it is updated.
func overwrite(s *Source, have *corev1.ConfigMap) Op {
	if forbidsContent(s, have) || isTruncated(have) && len(have.Finalizers) == 0 {
		return OpRecreate
	}
	return OpUpdate
}

// forbidsContent reports whether have is immutable, and its content differs from that of s.
func forbidsContent(s *Source, have *corev1.ConfigMap) bool {
	return isImmutable(have) && payloadDigest(have) != s.payload
}

func (r *Rules) decideForeign(c Change, t Target) Change {
	if c.Source == nil {
		return c
	}
	c.Have = t.Have
	switch {
	case !r.adoptable(t.Have):
		c.State = StateForeign
	case t.Have.DeletionTimestamp != nil:
		c.State = StatePending
	default:
		c.Op = overwrite(c.Source, t.Have)
	}
	return c
}

// decideUnwanted decides about a copy of ours that no source claims. It is kept if it is out of scope, unless --prune
// is set.
func (r *Rules) decideUnwanted(c Change, v *View, t Target) Change {
	scope := r.Scope(c.CopyOf, t.Namespace)
	if scope != NotExcluded && !r.prune {
		c.State, c.Why = StateOutOfScope, Loss{Rule: scope}
		return c
	}
	s := v.Find(c.CopyOf)
	c.Op, c.Why = OpDelete, r.loss(s, scope, t.Namespace)
	c.ByLabels = !r.selector.Empty() || s != nil && s.rollout != nil ||
		slices.ContainsFunc(v.Sources, func(s *Source) bool { return r.Exclusion(s, t.Namespace).byLabels() })
	return c
}

// StillUnwanted reports whether the copy that c deletes is to be deleted after live reads, too. v are the sources in
// the cache, source is the live source of the copy, nil if it is gone. ns is the live namespace if c is by labels, or
// else the cached one.
func (r *Rules) StillUnwanted(c Change, v *View, source *corev1.ConfigMap, ns *corev1.Namespace) bool {
	if LabelsTruncated(ns) || r.Winner(v, ns) != nil || r.Scope(c.CopyOf, ns) != NotExcluded && !r.prune {
		return false
	}
	if source == nil || !r.AsksToBeMirrored(source) {
		return true
	}
	s := r.ParseSource(source)
	return s.Frozen == nil && r.Exclusion(s, ns) != NotExcluded && !s.Holds(ns)
}

// DependsOnLabels reports whether it depends on the labels of the namespace if a live source claims or holds the copy,
// so that they have to be read live, too.
func (r *Rules) DependsOnLabels(source *corev1.ConfigMap, ns *corev1.Namespace) bool {
	if source == nil || !r.AsksToBeMirrored(source) {
		return false
	}
	s := r.ParseSource(source)
	return s.rollout != nil || r.Exclusion(s, ns).byLabels()
}

// Causes of a repair, the values of the label of mirror_repairs_total.
const (
	CauseDeleted    = "deleted"
	CauseEdited     = "edited"
	CauseUnlabelled = "unlabelled"
	CauseMetadata   = "metadata"
)

// RepairCause returns what another client did to the copy that the change restores. It returns an empty string if the
// copy is new or the source has changed. wasSynced says that the copy was in sync with this content before.
func (r *Rules) RepairCause(c Change, wasSynced bool) string {
	switch {
	case c.Op == OpCreate && wasSynced:
		return CauseDeleted
	case c.Have == nil || c.Source == nil ||
		!sameKey(c.Have.Annotations[SourceAnnotation], c.Source.Key.Namespace, c.Source.Key.Name):
		return ""
	case c.Have.Annotations[ChecksumAnnotation] != c.Source.Checksum &&
		(isTruncated(c.Have) || MatchesChecksum(c.Have, r.label)):
		return "" // the copy holds a former content
	case c.Have.Labels[r.label] != CopyValue:
		return CauseUnlabelled
	case payloadDigest(c.Have) != c.Source.payload:
		return CauseEdited
	}
	return CauseMetadata
}
