package plan

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Op is the operation at one target.
type Op int

const (
	OpNone     Op = iota // nothing
	OpCreate             // create the copy: the cache shows no object there
	OpUpdate             // update the copy, or adopt the object
	OpRecreate           // delete and create: the copy is immutable and its content differs
	OpDelete             // delete the copy, once its premise is confirmed
)

func (o Op) String() string {
	return [...]string{"none", "create", "update", "recreate", "delete"}[o]
}

// State is the state of a source at one target. [Rules.Decide] returns it, but for StateSuperseded, which the losers of a
// target have, StateFailed and StateFight, which come of writes, and StateExpiring, which takes a clock.
type State int

const (
	StateNone       State = iota // no copy is wanted there
	StateSynced                  // the copy is in sync
	StatePending                 // the copy is out of sync, and something is to be done or awaited
	StateForeign                 // a foreign object is in the way
	StateSuperseded              // another source of that name has the target
	StateFailed                  // the API server rejects the copy
	StateFrozen                  // an annotation of the source is malformed or not known: the copy stays as it is
	StateOutOfScope              // the copy is out of scope of the flags and stays as it is
	StateFight                   // another client keeps changing the copy
	StateExpiring                // no source claims the copy: it is deleted at the end of the deletion grace
	States                       // the number of states
)

// states says, of each state, its name, its value of the label of mirror_copies, whether it is about to change, whether the
// owner of the source needs to know of it, and whether it keeps the source from a target that it selects. A copy of a frozen
// source has failed in the metrics: its owner asks for something that cannot be done.
var states = [States]struct {
	name, metric              string
	pending, problem, blocked bool
}{
	StateNone:       {name: "none"},
	StateSynced:     {name: "synced", metric: "synced"},
	StatePending:    {name: "pending", metric: "pending", pending: true},
	StateForeign:    {name: "foreign", metric: "foreign", problem: true, blocked: true},
	StateSuperseded: {name: "superseded", metric: "superseded", blocked: true},
	StateFailed:     {name: "failed", metric: "failed", problem: true, blocked: true},
	StateFrozen:     {name: "frozen", metric: "failed"},
	StateOutOfScope: {name: "out_of_scope", metric: "out_of_scope", problem: true},
	StateFight:      {name: "fight", metric: "pending", problem: true, blocked: true},
	StateExpiring:   {name: "expiring", metric: "expiring"},
}

func (s State) String() string { return states[s].name }

// Metric returns the value of the label of mirror_copies; empty if copies in this state are not counted.
func (s State) Metric() string { return states[s].metric }

// IsPending reports whether something is to be done or awaited: the source is not yet known to be in sync or blocked there.
func (s State) IsPending() bool { return states[s].pending }

// IsProblem reports whether the owner of the source needs to know of the state. StateSuperseded has an event of its own.
func (s State) IsProblem() bool { return states[s].problem }

// IsBlocked reports whether something keeps the source from a target that it selects.
func (s State) IsBlocked() bool { return states[s].blocked }

// Premise says what a deletion depends on and no precondition of the API can guard. That is read live before the deletion.
type Premise struct {
	Source    bool // that the source is gone, no longer asks to be mirrored, or no longer selects the target
	Namespace bool // that the labels of the namespace keep every source away
}

// Target is one place for a copy.
type Target struct {
	// Key is the target namespace, and the name of the copy.
	Key types.NamespacedName
	// Namespace is nil if the cache does not have it.
	Namespace *corev1.Namespace
	// Have is the ConfigMap there; nil if the cache shows none. The cache shows no objects without a mirror label.
	Have *corev1.ConfigMap
	// Prunable is set if Have is out of scope of the flags, and the prune limit allows its deletion.
	Prunable bool
	// Spared is set if --namespace-selector ruled the namespace out when the process took over, the prune limit blocked the
	// deletions, and the namespace has not matched since.
	Spared bool
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
	// Premise is what a deletion depends on.
	Premise Premise
	// Prune is set if a deletion happens because of the flags alone: the source is there and asks to be mirrored.
	Prune bool
	// State is the state of the winner, or else of CopyOf, if Op is OpNone.
	State State
}

// Plan returns the change at each target that brings it in sync with the sources of its name, in the order of the
// targets. It does not change its arguments.
//
//	object there        | a source claims the target         | none does
//	--------------------+------------------------------------+------------------------------------
//	none                | create                             | nothing
//	foreign             | nothing; update, if adoptable      | nothing
//	copy of ours        | nothing, update or recreate        | delete (see decideUnwanted)
//	copy without label  | update or recreate                 | nothing: it counts as released
//	copy, being deleted | wait                               | wait
//	copy of frozen      | nothing, also for other sources    | nothing
//
// Nothing happens in a namespace that the cache does not have, whose labels it does not hold, or that is terminating, nor under a
// reserved name.
func (r *Rules) Plan(v *View, targets []Target) []Change {
	changes := make([]Change, 0, len(targets))
	for _, t := range targets {
		changes = append(changes, r.Decide(v, t))
	}
	return changes
}

// Decide is the row of [Rules.Plan] for one target.
func (r *Rules) Decide(v *View, t Target) Change {
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
	if c.Source == nil && c.State != StateFrozen {
		return nil
	}
	for _, s := range v.Sources {
		if (c.Source == nil || s.Key != c.Source.Key) && r.Exclusion(s, t.Namespace) == NotExcluded {
			losers = append(losers, s)
		}
	}
	return losers
}

// overwrite returns the operation that gives have the content of s. The API allows no other content in an immutable
// object.
func overwrite(s *Source, have *corev1.ConfigMap) Op {
	if isImmutable(have) && payloadDigest(have) != s.payload {
		return OpRecreate
	}
	return OpUpdate
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

// decideUnwanted decides about a copy of ours that no source claims.
//
//	its source                           | the target                 | decision
//	-------------------------------------+----------------------------+----------------------------------
//	gone, or does not ask to be mirrored | any                        | delete; premise: source
//	excluded by --source-namespace       | any                        | delete if prunable, else keep
//	there                                | excluded by the flags      | delete if prunable, else keep
//	there, does not select its name      | allowed by the flags       | delete; premise: source
//	there                                | opted out, or not selected | delete; premise: source, namespace
//	there                                | only --namespace-selector  | delete, unless spared; premise: source, namespace
//	                                     | rules it out               |
//
// The namespace is a premise in every row where only its labels keep a source of that name from the target.
func (r *Rules) decideUnwanted(c Change, v *View, t Target) Change {
	labelsMatter := slices.ContainsFunc(v.Sources, func(s *Source) bool { return r.Exclusion(s, t.Namespace).byLabels() })
	c.Premise.Namespace = labelsMatter
	s := v.Find(c.CopyOf)
	byFlag := s != nil && r.Exclusion(s, t.Namespace) == ExcludedByNamespaceSelector
	switch {
	case byFlag && t.Spared:
		c.State, c.Premise = StateOutOfScope, Premise{}
	case s == nil && find(v.OutOfScope, c.CopyOf) == nil, s != nil && r.AllowsTarget(t.Key.Namespace):
		c.Op, c.Premise.Source, c.Prune = OpDelete, true, byFlag
	case t.Prunable:
		c.Op, c.Prune = OpDelete, true
	default:
		c.State, c.Premise = StateOutOfScope, Premise{}
	}
	return c
}

// StillUnwanted reports whether a copy is still unwanted after the premise of its deletion was read live. source is the live
// source of the copy, nil if it is gone or no part of the premise. ns is the live namespace, or the cached one, which has no
// annotations, if it is no part of the premise. No other source of the name may claim the namespace, either.
func (r *Rules) StillUnwanted(v *View, source *corev1.ConfigMap, ns *corev1.Namespace) bool {
	if LabelsTruncated(ns) || r.Winner(v, ns) != nil {
		return false
	}
	if source == nil || !r.AsksToBeMirrored(source) {
		return true
	}
	if !r.AllowsSource(source.Namespace) || !r.AllowsTarget(ns.Name) {
		return false // out of scope of the flags: only the prune limit decides about that
	}
	s := r.ParseSource(source)
	return s.Frozen == nil && r.Exclusion(s, ns) != NotExcluded
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
	case c.Have == nil || c.Source == nil || c.Have.Annotations[ChecksumAnnotation] != c.Source.Checksum ||
		!sameKey(c.Have.Annotations[SourceAnnotation], c.Source.Key.Namespace, c.Source.Key.Name):
		return ""
	case c.Have.Labels[r.label] != CopyValue:
		return CauseUnlabelled
	case payloadDigest(c.Have) != c.Source.payload:
		return CauseEdited
	}
	return CauseMetadata
}
