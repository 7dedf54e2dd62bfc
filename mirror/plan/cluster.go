package plan

import (
	"iter"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Decisions about more than one target: which there are, and the verdict of the prune limit.

// Places returns the namespaces in which there may be something to decide about a name: those that the flags allow, if the name
// has a source, and those that have an object of the name.
func (r *Rules) Places(v *View, namespaces, objects iter.Seq[string]) map[string]bool {
	places := map[string]bool{}
	for namespace := range objects {
		places[namespace] = true
	}
	if len(v.Sources) == 0 {
		return places
	}
	for namespace := range namespaces {
		if r.AllowsTarget(namespace) {
			places[namespace] = true
		}
	}
	return places
}

// Cluster is all that a process knows of a cluster.
type Cluster interface {
	// Views returns the sources of each name that has any.
	Views() iter.Seq[*View]
	Namespaces() iter.Seq[*corev1.Namespace]
	// Targets returns each ConfigMap with a mirror label, with the sources of its name.
	Targets() iter.Seq2[*View, Target]
}

// Pruning is the verdict of the prune limit.
type Pruning struct {
	// OutOfScope are the copies that only the flags rule out: their source is there and asks to be mirrored.
	OutOfScope []*corev1.ConfigMap
	// Copies is of how many they are: these, and those that the sources want. It counts no other objects: anybody can forge those.
	Copies int
	// Blocked is set if the limit allows the deletion of none of them.
	Blocked bool
}

// JudgePruning applies the prune limit to all copies of a cluster, as a process does when it takes over.
func (r *Rules) JudgePruning(c Cluster, limit Percent) (p Pruning) {
	for v, t := range c.Targets() {
		t.Prunable = true
		if r.Decide(v, t).Prune {
			p.OutOfScope = append(p.OutOfScope, t.Have)
		}
	}
	if len(p.OutOfScope) == 0 {
		return p
	}
	p.Copies = len(p.OutOfScope)
	for v := range c.Views() {
		for ns := range c.Namespaces() {
			if r.Winner(v, ns) != nil {
				p.Copies++
			}
		}
	}
	p.Blocked = limit.Exceeded(len(p.OutOfScope), p.Copies)
	return p
}

// Spares reports whether the namespace keeps its copies although its labels do not match --namespace-selector, because the
// limit blocked the deletions.
func (r *Rules) Spares(p Pruning, ns *corev1.Namespace) bool {
	return p.Blocked && ns != nil && !r.Selects(ns)
}

// Status returns the state of the target until the change is made.
func (c Change) Status() State {
	switch c.Op {
	case OpNone:
		return c.State
	case OpDelete:
		return StateExpiring
	}
	return StatePending
}

// CountsFor returns the source that the state of the target counts for: the one that wins it, or else the one of the copy that
// is there.
func (c Change) CountsFor() types.NamespacedName {
	if c.Source != nil {
		return c.Source.Key
	}
	return c.CopyOf
}
