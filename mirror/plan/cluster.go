package plan

import (
	"iter"

	"k8s.io/apimachinery/pkg/types"
)

// Places returns the namespaces in which there may be something to decide about a name: those that the flags allow, if
// the name has a source, and those that have an object of the name.
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

// CountsFor returns the source that the state of the target counts for: the one that wins it, or else the one of the
// copy that is there.
func (c Change) CountsFor() types.NamespacedName {
	if c.Source != nil {
		return c.Source.Key
	}
	return c.CopyOf
}
