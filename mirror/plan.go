package mirror

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"
)

// op is what is to be done at one target.
type op int

const (
	opNone     op = iota // nothing
	opCreate             // make the copy, where no object is seen
	opUpdate             // put the copy in line, or adopt the object
	opRecreate           // delete the copy and make it again: it is immutable and its content differs
	opDelete             // delete the copy, once the premise has been asked for live
	opLook               // look live: a copy vanished that nobody wants, perhaps it lost its label only
)

func (o op) String() string {
	return [...]string{"none", "create", "update", "recreate", "delete", "look"}[o]
}

// outcome is how a source stands at one target.
type outcome int

const (
	outcomeNone       outcome = iota // the source has no business there
	outcomeSynced                    // the copy is in line
	outcomePending                   // something is to be done or waited for
	outcomeForeign                   // an object that is not ours is in the way
	outcomeSuperseded                // another source of that name has the target
	outcomeFailed                    // the API server refuses the copy
	outcomeFrozen                    // the source's narrowing cannot be read: left as it is
	outcomeStranger                  // a copy outside the flags that is left alone
	outcomeFight                     // somebody else keeps changing the copy back
	outcomes                         // how many there are
)

func (o outcome) String() string {
	return [...]string{"none", "synced", "pending", "foreign", "superseded", "failed", "frozen", "stranger", "fight"}[o]
}

// premise says what the deletion of a copy rests on and preconditions cannot guard, so that it is asked for
// live before.
type premise struct {
	source    bool // the source is gone, no longer asks to be mirrored, or narrows the target away
	namespace bool // the namespace no longer qualifies
}

// view is all that the plan for one name rests on, besides the targets themselves.
type view struct {
	name string
	// sources are all sources of the name, by precedence.
	sources []*source
	// outsiders are those that ask to be mirrored and are no sources under the flags, in that order as well.
	outsiders []*source
	// prunable reports whether a copy outside the flags was judged at take-over and may go.
	prunable func(*corev1.ConfigMap) bool
}

// target is one namespace, and what stands there under the name.
type target struct {
	namespace string
	// object is the namespace itself; nil if the cache does not have it.
	object *corev1.Namespace
	// have is the ConfigMap of the name there; nil if none is seen. Those that carry no label of ours are
	// not seen, unless somebody looked live.
	have *corev1.ConfigMap
	// vanished is set if a copy went from there by no delete of ours, and nobody has looked since.
	vanished bool
	// deleted is set if a copy went from there by no delete of ours, and was not put back.
	deleted bool
}

// change is what the plan says about one target.
type change struct {
	op        op
	namespace string
	// source is the one that wins the target; nil if none claims it.
	source *source
	// have is the object to update or delete, with the resourceVersion that was judged; nil for a create.
	have *corev1.ConfigMap
	// owner is the source of which have is a copy, for a deletion.
	owner cache.ObjectName
	// premise is what to ask for live before a deletion.
	premise premise
	// byFlags is set if a copy is to be deleted because of the flags alone: its source is there and asks for it.
	byFlags bool
	// outcome is how the winner, or else the owner, stands there if nothing is to be done.
	outcome outcome
}

// plan returns what is to be done at each target to bring it in line with the sources of the name, in the
// order of the targets. It does no I/O and modifies none of its arguments.
//
//	seen there          | a source claims the target         | none does
//	--------------------+------------------------------------+-------------------------------------------
//	nothing             | create                             | nothing; look, if a copy vanished
//	foreign             | leave it; update, if adoptable     | nothing
//	copy of ours        | nothing, update or recreate        | delete behind its premise (see unwanted)
//	copy, being deleted | wait                               | wait
//	copy of frozen      | leave it, also against namesakes   | leave it
//
// A namespace that is not in the cache, or is going away, is left alone altogether, and so are the reserved
// names.
func (r *rules) plan(v view, targets []target) []change {
	changes := make([]change, 0, len(targets))
	for _, t := range targets {
		changes = append(changes, r.decide(v, t))
	}
	return changes
}

// decide is the row of plan for one target.
func (r *rules) decide(v view, t target) change {
	c := change{namespace: t.namespace}
	if t.object == nil || terminating(t.object) || reservedNames[v.name] {
		return c
	}
	c.source = r.winner(v.sources, t.object)
	owner, ours := cache.ObjectName{}, false
	if t.have != nil {
		owner, ours = r.sourceOf(t.have)
	}
	switch {
	case t.have == nil:
		return r.decideEmpty(c, t)
	case !ours:
		return r.decideForeign(c, t)
	}
	c.have, c.owner = t.have, owner
	switch {
	case isFrozen(v.sources, owner):
		c.source, c.outcome = nil, outcomeFrozen
	case t.have.DeletionTimestamp != nil:
		c.outcome = outcomePending
	case c.source == nil:
		return r.decideUnwanted(c, v, t)
	case r.inLine(c.source, t.have):
		c.outcome = outcomeSynced
	case isImmutable(t.have) && payloadDigest(t.have) != c.source.payload:
		c.op = opRecreate
	default:
		c.op = opUpdate
	}
	return c
}

// winner returns the first of the sources, which are sorted by precedence, that claims the namespace.
func (r *rules) winner(sources []*source, ns *corev1.Namespace) *source {
	for _, s := range sources {
		if s.claims(r, ns) {
			return s
		}
	}
	return nil
}

func (r *rules) decideEmpty(c change, t target) change {
	switch {
	case c.source != nil:
		c.op = opCreate
	case t.vanished:
		c.op = opLook
	}
	return c
}

func (r *rules) decideForeign(c change, t target) change {
	if c.source == nil {
		return c
	}
	c.have = t.have
	switch {
	case !r.adoptable(t.have):
		c.outcome = outcomeForeign
	case t.have.DeletionTimestamp != nil:
		c.outcome = outcomePending
	case isImmutable(t.have) && payloadDigest(t.have) != c.source.payload:
		c.op = opRecreate
	default:
		c.op = opUpdate
	}
	return c
}

// decideUnwanted decides about a copy of ours that no source claims.
//
//	its source                         | the target               | result
//	-----------------------------------+--------------------------+------------------------------------------
//	gone, or no longer asks            | any                      | delete; premise: the source
//	there, but not by --source-namespace | any                    | delete if judged at take-over, else report
//	there                              | not by the flags         | delete if judged at take-over, else report
//	there, narrows the name away       | by the flags             | delete; premise: the source
//	there                              | opted out, not selected  | delete; premise: source and namespace
//
// In each row the namespace is a premise as well if only its labels keep another source of the name from the target.
func (r *rules) decideUnwanted(c change, v view, t target) change {
	s := find(v.sources, c.owner)
	// Where the name of the target is right for a source, only the labels of the namespace speak against it.
	byLabels := slices.ContainsFunc(v.sources, func(s *source) bool { return s.claimsName(r, t.namespace) })
	switch {
	case s == nil && find(v.outsiders, c.owner) == nil:
		c.op, c.premise = opDelete, premise{source: true, namespace: byLabels}
	case s == nil || !r.allowsTarget(t.namespace):
		if v.prunable(t.have) {
			c.op, c.byFlags, c.premise = opDelete, true, premise{namespace: byLabels}
		} else {
			c.outcome = outcomeStranger
		}
	default:
		c.op = opDelete
		c.premise = premise{source: true, namespace: byLabels}
	}
	return c
}

// stillUnwanted reports whether a deletion stands up to what was just read live: the source of the copy, nil if
// there is none, and the namespace. No other source of the name may claim the target by that, either.
func (r *rules) stillUnwanted(v view, live *corev1.ConfigMap, ns *corev1.Namespace) bool {
	if r.winner(v.sources, ns) != nil {
		return false
	}
	if live == nil || !r.asksToBeMirrored(live) {
		return true
	}
	if !r.isSource(live) {
		return false // outside the flags, which is judged elsewhere
	}
	s := r.readSource(live)
	return s.frozen == nil && !s.claims(r, ns)
}

func isFrozen(sources []*source, key cache.ObjectName) bool {
	s := find(sources, key)
	return s != nil && s.frozen != nil
}

func find(sources []*source, key cache.ObjectName) *source {
	for _, s := range sources {
		if s.key == key {
			return s
		}
	}
	return nil
}
