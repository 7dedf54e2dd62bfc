package mirror

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"
)

// view returns the sources of a name, by precedence, as the cache has them now.
func (c *Controller) view(name string) view {
	v := view{name: name, prunable: c.isPrunable}
	found, _ := c.configMaps.GetTypedIndexer().ByTypedIndex(bySource, name)
	for _, cm := range found {
		if s := c.readSource(cm); s.outside {
			v.outsiders = append(v.outsiders, s)
		} else {
			v.sources = append(v.sources, s)
		}
	}
	sortSources(v.sources)
	sortSources(v.outsiders) // an index has no order, and two views of one state are to be equal
	return v
}

// look is view, and sees to it that the ledger knows what is decided by. Who reads targets as well reads them before: a cache
// that holds a copy has already held the state of its source.
func (c *Controller) look(name string) (v view, changed bool) {
	c.view(name) // reads what has not been read yet, outside the lock
	changed = c.ledger.open(name, func() []*source {
		v = c.view(name)
		return v.all()
	})
	return v, changed
}

// lookBehind is look where the round of what changed may have begun already: there is another.
func (c *Controller) lookBehind(name string) view {
	v, changed := c.look(name)
	if changed {
		c.markAll(name)
	}
	return v
}

// readSource reads a source, or returns what was read from that very object before.
func (c *Controller) readSource(cm *corev1.ConfigMap) *source {
	key := cache.MetaObjectToName(cm)
	c.parsedMu.Lock()
	s := c.parsed[key]
	c.parsedMu.Unlock()
	if s != nil && s.cm == cm {
		return s
	}
	s = c.rules.readSource(cm) // may hash a megabyte: not under the lock
	c.parsedMu.Lock()
	defer c.parsedMu.Unlock()
	c.parsed[key] = s
	return s
}

// sweepParsed forgets what was read of sources that have gone meanwhile.
func (c *Controller) sweepParsed() {
	c.parsedMu.Lock()
	defer c.parsedMu.Unlock()
	for key, s := range c.parsed {
		if c.cachedConfigMap(key) != s.cm {
			delete(c.parsed, key)
		}
	}
}

func (c *Controller) forgetSource(key cache.ObjectName) {
	c.parsedMu.Lock()
	defer c.parsedMu.Unlock()
	delete(c.parsed, key)
}

// target returns what the caches have about one target of a name.
func (c *Controller) target(name string, j job) target {
	key := cache.ObjectName{Namespace: j.namespace, Name: name}
	m := j.merge(c.retries.markOf(key))
	return target{
		namespace: j.namespace,
		object:    c.cachedNamespace(j.namespace),
		have:      c.cachedConfigMap(key),
		vanished:  m.vanished,
		deleted:   m.deleted,
	}
}

func (c *Controller) cachedNamespace(name string) *corev1.Namespace {
	obj, _, _ := c.namespaces.GetIndexer().GetByKey(name)
	ns, _ := obj.(*corev1.Namespace)
	return ns
}

func (c *Controller) cachedConfigMap(key cache.ObjectName) *corev1.ConfigMap {
	obj, _, _ := c.configMaps.GetIndexer().GetByKey(key.String())
	cm, _ := obj.(*corev1.ConfigMap)
	return cm
}

// cacheVersion returns the resourceVersion up to which the cache has seen all ConfigMaps; empty if client-go
// does not tell.
func (c *Controller) cacheVersion() string {
	return c.configMaps.GetIndexer().LastStoreSyncResourceVersion()
}

// open reports whether the cache shows the namespace and does not show it going away.
func (c *Controller) open(namespace string) bool {
	ns := c.cachedNamespace(namespace)
	return ns != nil && !terminating(ns)
}

// targetsOf returns the namespaces that a round for a name has to visit: those that the flags allow, and
// those where something of that name is.
func (c *Controller) targetsOf(name string) []string {
	set := map[string]bool{}
	indexer := c.configMaps.GetTypedIndexer()
	sources, _ := indexer.ByTypedIndex(bySource, name)
	if slices.ContainsFunc(sources, c.rules.isSource) {
		for _, namespace := range c.namespaces.GetIndexer().ListKeys() {
			if c.rules.allowsTarget(namespace) {
				set[namespace] = true
			}
		}
	}
	found, _ := indexer.ByTypedIndex(byName, name)
	for _, cm := range found {
		set[cm.Namespace] = true
	}
	for _, namespace := range c.ledger.targets(name) { // one that went while there was no source is due no other way
		set[namespace] = true
	}
	return slices.Collect(maps.Keys(set))
}
