package plan

import (
	"cmp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"
)

// View is everything about the sources of one name that the decision about a target depends on.
type View struct {
	Sources    []*Source // those that the flags allow, the winner first
	OutOfScope []*Source // the ConfigMaps that ask to be mirrored and that the flags do not allow
}

// NewView sorts parsed sources of one name into a view.
func NewView(sources []*Source) *View {
	v := &View{}
	for _, s := range slices.SortedFunc(slices.Values(sources), compareSources) {
		if s.OutOfScope {
			v.OutOfScope = append(v.OutOfScope, s)
		} else {
			v.Sources = append(v.Sources, s)
		}
	}
	return v
}

// compareSources orders sources of one name, the winner first. A tenant must not outrank the platform by being older.
func compareSources(a, b *Source) int {
	return cmp.Or(
		cmp.Compare(a.rank, b.rank),
		a.ConfigMap.CreationTimestamp.Compare(b.ConfigMap.CreationTimestamp.Time),
		strings.Compare(a.Key.Namespace, b.Key.Namespace),
	)
}

// All returns the sources of the view, also those out of scope.
func (v *View) All() []*Source {
	if len(v.OutOfScope) == 0 {
		return v.Sources
	}
	return slices.Concat(v.Sources, v.OutOfScope)
}

// Find returns the source with this key, also one that is out of scope, or nil.
func (v *View) Find(key types.NamespacedName) *Source {
	for _, s := range v.All() {
		if s.Key == key {
			return s
		}
	}
	return nil
}
