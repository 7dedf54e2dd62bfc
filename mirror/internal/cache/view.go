package cache

import (
	"cmp"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// noSources is the view of each name without sources.
var noSources = &plan.View{}

// parsedView is a view, and its sources by the objects in the cache from which
// they were parsed. A source whose object is the same is not parsed again.
type parsedView struct {
	*plan.View
	parsed map[*corev1.ConfigMap]*plan.Source
}

// View returns the sources of a name. It returns the same pointer until one of
// them changes: whether the cache has moved on is a comparison of pointers.
func (c *Cache) View(name string) *plan.View {
	parsed := map[*corev1.ConfigMap]*plan.Source{}
	for {
		v, unparsed := c.viewOf(name, parsed)
		if unparsed == nil {
			return v
		}
		for _, cm := range unparsed {
			parsed[cm] = c.rules.ParseSource(cm) // hashes up to a megabyte: outside the lock
		}
	}
}

// viewOf returns the present view of a name, or the sources that are neither in
// the last view nor among the parsed ones. It reads the index under the lock,
// so that an older view never replaces a newer one.
func (c *Cache) viewOf(name string, parsed map[*corev1.ConfigMap]*plan.Source) (
	v *plan.View, unparsed []*corev1.ConfigMap) {
	c.mu.Lock()
	defer c.mu.Unlock()
	found, _ := c.configMaps.GetTypedIndexer().ByTypedIndex(bySource, name)
	if len(found) == 0 {
		delete(c.views, name)
		return noSources, nil
	}
	last := cmp.Or(c.views[name], &parsedView{})
	if last.has(found) {
		return last.View, nil
	}
	next := &parsedView{parsed: make(map[*corev1.ConfigMap]*plan.Source, len(found))}
	for _, cm := range found {
		next.parsed[cm] = cmp.Or(last.parsed[cm], parsed[cm])
		if next.parsed[cm] == nil {
			unparsed = append(unparsed, cm)
		}
	}
	if len(unparsed) > 0 {
		return nil, unparsed
	}
	next.View = plan.NewView(slices.Collect(maps.Values(next.parsed)))
	c.views[name] = next
	return next.View, nil
}

// has reports whether the view is that of these ConfigMaps.
func (v *parsedView) has(found []*corev1.ConfigMap) bool {
	isUnparsed := func(cm *corev1.ConfigMap) bool { return v.parsed[cm] == nil }
	return len(found) == len(v.parsed) && !slices.ContainsFunc(found, isUnparsed)
}
