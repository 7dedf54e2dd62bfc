package plan

import (
	"iter"

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
	OpRecreate           // delete and create: the copy is immutable, and its payload differs
	OpDelete             // delete the copy, once a live read confirms that no source claims it
)

// String returns the operation as kubectl mirror plan shows it.
func (o Op) String() string {
	return [...]string{"none", "create", "update", "recreate", "delete"}[o]
}

// Target is one place for a copy.
type Target struct {
	Key       types.NamespacedName // the target namespace, and the name of the copy
	Namespace *corev1.Namespace    // nil if the cache does not have it
	// Have is the object there; nil if the cache shows none. The cache shows no
	// object without a mirror label.
	Have *corev1.ConfigMap
}

// Change is the decision about one target.
type Change struct {
	Op  Op
	Key types.NamespacedName
	// Source is the one whose content the target is to have; nil if no source that
	// selects the target wins it.
	Source *Source
	// Have is the object to update or delete, as it was judged; nil for a create.
	Have *corev1.ConfigMap
	// CopyOf is the source of Have, if Have is a copy of ours.
	CopyOf types.NamespacedName
	// State is that of the target until the change is made. It counts for Owner:
	// the winner or, if no source claims the target, CopyOf. Owner is empty if
	// State is StateNone.
	State State
	Owner types.NamespacedName
	// Why is the reason of a deletion, or why the copy is out of scope.
	Why Unclaimed
	// Note describes the object in the way, if State is StateForeign. If State is
	// StateOutOfScope, it names the flag that rules the copy out.
	Note string
	// Adoptable is set if the owner of the object in the way can hand it over.
	Adoptable bool
}

// TargetNamespaces returns the namespaces in which there may be something to
// decide about a name: those that the flags allow, if the name has a source, and
// those that have an object of the name.
func (r *Rules) TargetNamespaces(v *View, namespaces, objects iter.Seq[string]) map[string]bool {
	targets := map[string]bool{}
	for namespace := range objects {
		targets[namespace] = true
	}
	if len(v.Sources) > 0 {
		for namespace := range namespaces {
			if r.AllowsTarget(namespace) {
				targets[namespace] = true
			}
		}
	}
	return targets
}

// Decide returns the change at a target that brings it in sync with the sources
// of its name. It does not change its arguments.
//
//	object there        | a source claims the target      | none does
//	--------------------+---------------------------------+--------------------
//	none                | create                          | nothing
//	foreign             | nothing; update, if handed over | nothing
//	copy of ours        | nothing, update or recreate     | delete, if in scope
//	copy without label  | update or recreate              | nothing: released
//	being deleted       | nothing: it is in the way       | nothing
//
// Nothing happens if the winner is frozen or holds the target, nor in a namespace
// that is terminating or absent from the cache, nor under a reserved name.
func (r *Rules) Decide(v *View, t Target) Change {
	c := Change{Key: t.Key}
	if t.Namespace == nil || Terminating(t.Namespace) || Reserved(t.Key.Name) {
		return c
	}
	if t.Have != nil {
		c.CopyOf, _ = r.SourceOf(t.Have)
	}
	w := r.winner(v, t.Namespace, c.CopyOf)
	switch {
	case w == nil:
		return r.decideUnclaimed(c, v, t)
	case w.Frozen != nil:
		c.State = StateFrozen
		c.Owner = w.Key
		return c
	case w.Holds(t.Namespace):
		return r.decideHeld(c, v, t, w)
	}
	return r.decideClaimed(c, t, w)
}

// winner returns the first source that claims the namespace, or nil. copyOf is
// the source of our copy there, if any.
func (r *Rules) winner(v *View, ns *corev1.Namespace, copyOf types.NamespacedName) *Source {
	for _, s := range v.Sources {
		if r.claims(s, ns, copyOf) {
			return s
		}
	}
	return nil
}

// claims reports whether the source claims the namespace: it selects the
// namespace or, while it is frozen or holds the target, has a copy in it.
func (r *Rules) claims(s *Source, ns *corev1.Namespace, copyOf types.NamespacedName) bool {
	return r.Exclusion(s, ns) == NotExcluded || s.Key == copyOf && (s.Frozen != nil || s.Holds(ns))
}

// decideClaimed decides about a target that s wins and selects.
func (r *Rules) decideClaimed(c Change, t Target, s *Source) Change {
	c.Source = s
	c.Have = t.Have
	c.Owner = s.Key
	c.State = StatePending
	switch {
	case t.Have == nil:
		c.Op = OpCreate
	case t.Have.DeletionTimestamp != nil, c.CopyOf.Name == "" && !r.isHandedOver(t.Have):
		c.State = StateForeign
		c.Note, c.Adoptable = r.Foreign(t.Have)
	case r.inSync(s, t.Have):
		c.State = StateSynced
	case isImmutable(t.Have) && payloadDigest(t.Have) != s.payload:
		c.Op = OpRecreate // the API allows no other payload there
	default:
		c.Op = OpUpdate
	}
	return c
}

// decideUnclaimed decides about a target that no source claims. A copy there is
// kept if it is out of scope, unless --prune is set. Only a live read shows a
// copy without its label.
func (r *Rules) decideUnclaimed(c Change, v *View, t Target) Change {
	if c.CopyOf.Name == "" || !r.Visible(t.Have) || t.Have.DeletionTimestamp != nil {
		return c
	}
	c.Have = t.Have
	c.Owner = c.CopyOf
	source := v.Find(c.CopyOf)
	scope := r.scope(c.CopyOf, t.Namespace)
	switch {
	case scope != NotExcluded:
		c.Why.Rule = scope
	case source == nil:
		c.Why.Rule = SourceGone
	default:
		c.Why = source.unclaimedBy(r.Exclusion(source, t.Namespace))
	}
	if scope != NotExcluded && !r.opts.Prune {
		c.State = StateOutOfScope
		c.Note, _ = r.Explain(c.Why)
		return c
	}
	c.Op = OpDelete
	c.State = StateExpiring
	return c
}

// decideHeld decides about a target that w wins and holds. Once the hold ends, the
// first source wins that selects the target: w, another one, or none. If the end
// of the hold would change nothing, as at a copy in sync, the target counts as it
// would without the hold. A foreign object is no such case: its state would not
// show the hold.
func (r *Rules) decideHeld(c Change, v *View, t Target, w *Source) Change {
	next := r.winner(v, t.Namespace, types.NamespacedName{}) // a copy there gives no claim
	if next == nil {
		c = r.decideUnclaimed(c, v, t)
	} else {
		c = r.decideClaimed(c, t, next)
	}
	if c.Op == OpNone && c.State != StateForeign {
		return c
	}
	if c.Source != w {
		c.Source = nil // the source does not win the target while w holds it
	}
	c.Op = OpNone
	c.State = StateHeld
	c.Owner = w.Key
	c.Note = ""
	c.Adoptable = false
	return c
}

// Superseded returns the sources that select the target and do not win it: c was
// decided by v and t.
func (r *Rules) Superseded(v *View, t Target, c Change) (superseded []*Source) {
	for _, s := range v.Sources {
		if c.Owner.Name != "" && s.Key != c.Owner && r.Exclusion(s, t.Namespace) == NotExcluded {
			superseded = append(superseded, s)
		}
	}
	return superseded
}

// DependsOnLabels reports whether labels of namespaces decide if a copy is wanted,
// as far as the cache shows.
func (r *Rules) DependsOnLabels(v *View) bool { return !r.selector.Empty() || len(v.All) > 0 }

// StillUnwanted reports whether the copy that c deletes is to be deleted after
// live reads of its source, nil if it is gone, and of its namespace, too, if
// labels decide. v has the sources in the cache: if it lacks a source that the
// live read shows, the cache is behind, and the copy stays.
func (r *Rules) StillUnwanted(c Change, v *View, source *corev1.ConfigMap,
	ns *corev1.Namespace) bool {
	inScope := r.opts.Prune || r.scope(c.CopyOf, ns) == NotExcluded
	if r.winner(v, ns, c.CopyOf) != nil || !inScope {
		return false
	}
	return source == nil || !r.AsksToBeMirrored(source) ||
		v.Find(c.CopyOf) != nil && !r.claims(r.ParseSource(source), ns, c.CopyOf)
}
