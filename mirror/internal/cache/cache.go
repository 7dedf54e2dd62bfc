// Package cache holds the objects that the watches show: the ConfigMaps with a
// mirror label, and all namespaces. No other package reads an informer.
//
// One watch carries sources and copies in one order, so a cache that holds a
// copy has already held its source. A reader reads the target first, and the
// view of its name after it. Of copies and namespaces the cache keeps only the
// fields that decisions need. Nobody may change an object that it returns.
package cache

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

const (
	// byName is the index of all ConfigMaps by their names.
	byName = "name"
	// bySource is the index by name of those that ask to be mirrored.
	bySource = "source"
)

// Cache is the stores of two informers, and the views that are parsed from
// them.
type Cache struct {
	rules      *plan.Rules
	configMaps coreinformers.ConfigMapIndexInformer
	namespaces coreinformers.NamespaceIndexInformer
	handlers   []cache.ResourceEventHandlerRegistration
	watches    map[string]*watchState // by resource

	mu    sync.Mutex
	views map[string]*parsedView // by name; for names that have sources
}

// New prepares both informers, without any I/O. label is the key of the mirror
// label.
func New(client kubernetes.Interface, rules *plan.Rules, label string) (*Cache, error) {
	c := &Cache{
		rules:   rules,
		watches: map[string]*watchState{},
		views:   map[string]*parsedView{},
	}
	for _, resource := range Resources {
		c.watches[resource] = newWatchState(resource)
	}
	selector := fmt.Sprintf("%s in (%s,%s)", label, plan.SourceValue, plan.CopyValue)
	ofConfigMaps, failedConfigMaps := newInformer(
		c.watches[configMaps], client.CoreV1().ConfigMaps(metav1.NamespaceAll),
		&corev1.ConfigMap{}, selector, c.stripConfigMap)
	ofNamespaces, failedNamespaces := newInformer(
		c.watches[namespaces], client.CoreV1().Namespaces(),
		&corev1.Namespace{}, "", stripNamespace)
	c.configMaps = coreinformers.ToConfigMapIndexInformer(ofConfigMaps)
	c.namespaces = coreinformers.ToNamespaceIndexInformer(ofNamespaces)
	failedIndexes := c.configMaps.AddTypedIndexers(coreinformers.ConfigMapIndexers{
		byName: func(cm *corev1.ConfigMap) ([]string, error) {
			return []string{cm.Name}, nil
		},
		bySource: func(cm *corev1.ConfigMap) ([]string, error) {
			if !rules.AsksToBeMirrored(cm) {
				return nil, nil
			}
			return []string{cm.Name}, nil
		},
	})
	return c, errors.Join(failedConfigMaps, failedNamespaces, failedIndexes)
}

// Handle adds handlers of events. Call it before Start.
func (c *Cache) Handle(configMaps coreinformers.ConfigMapHandlerFuncs,
	namespaces coreinformers.NamespaceHandlerFuncs) error {
	ofConfigMaps, failedConfigMaps := c.configMaps.AddTypedEventHandler(configMaps)
	ofNamespaces, failedNamespaces := c.namespaces.AddTypedEventHandler(namespaces)
	c.handlers = append(c.handlers, ofConfigMaps, ofNamespaces)
	return errors.Join(failedConfigMaps, failedNamespaces)
}

// Start starts the watches. They go on until ctx ends.
func (c *Cache) Start(ctx context.Context) {
	go c.configMaps.RunWithContext(ctx)
	go c.namespaces.RunWithContext(ctx)
}

// WaitForSync waits until the handlers have seen everything that was there at
// Start. It returns false if ctx ends before.
func (c *Cache) WaitForSync(ctx context.Context) bool {
	var checkers []cache.DoneChecker
	for _, h := range c.handlers {
		checkers = append(checkers, h.HasSyncedChecker())
	}
	return cache.WaitFor(ctx, "", checkers...)
}

// Interrupted returns for how long the watch of one of [Resources] has been
// interrupted; 0: it is established. The cache is old meanwhile.
func (c *Cache) Interrupted(resource string) time.Duration {
	return c.watches[resource].interrupted()
}

// ConfigMap returns the ConfigMap with this key, or nil.
func (c *Cache) ConfigMap(k types.NamespacedName) *corev1.ConfigMap {
	obj, _, _ := c.configMaps.GetIndexer().GetByKey(k.String())
	cm, _ := obj.(*corev1.ConfigMap)
	return cm
}

// Namespace returns the namespace, or nil.
func (c *Cache) Namespace(name string) *corev1.Namespace {
	obj, _, _ := c.namespaces.GetIndexer().GetByKey(name)
	ns, _ := obj.(*corev1.Namespace)
	return ns
}

// Target returns the namespace and the ConfigMap of one target. Read the view
// of its name after it.
func (c *Cache) Target(k types.NamespacedName) plan.Target {
	return plan.Target{Key: k, Namespace: c.Namespace(k.Namespace), Have: c.ConfigMap(k)}
}

// Names returns every name of a source or a copy.
func (c *Cache) Names() []string { return c.configMaps.GetIndexer().ListIndexFuncValues(byName) }

// SourceNames returns every name of a ConfigMap that asks to be mirrored.
func (c *Cache) SourceNames() []string {
	return c.configMaps.GetIndexer().ListIndexFuncValues(bySource)
}

// ConfigMapsIn returns the ConfigMaps in a namespace.
func (c *Cache) ConfigMapsIn(namespace string) []*corev1.ConfigMap {
	// The error is that of an index that does not exist.
	found, _ := c.configMaps.GetTypedIndexer().ByTypedIndex(cache.NamespaceIndex, namespace)
	return found
}

// Namespaces returns all namespaces.
func (c *Cache) Namespaces() iter.Seq[*corev1.Namespace] {
	all, _ := corelisters.NewNamespaceLister(c.namespaces.GetIndexer()).List(labels.Everything())
	return slices.Values(all)
}

// Version returns the resourceVersion up to which the cache has seen all
// ConfigMaps; empty if client-go does not know.
func (c *Cache) Version() string {
	return c.configMaps.GetIndexer().LastStoreSyncResourceVersion()
}

// Targets returns the keys that a fan-out of a name has to visit, in random
// order, so that no namespace is always the last: those of the namespaces that
// a source may have as a target or where a ConfigMap of the name is, and those
// of the namespaces in also.
func (c *Cache) Targets(name string, also []string) []types.NamespacedName {
	have, _ := c.configMaps.GetTypedIndexer().ByTypedIndex(byName, name)
	for _, cm := range have {
		also = append(also, cm.Namespace)
	}
	all := c.namespaces.GetIndexer().ListKeys()
	targets := c.rules.TargetNamespaces(c.View(name), slices.Values(all), slices.Values(also))
	keys := make([]types.NamespacedName, 0, len(targets))
	for namespace := range targets { // the order of a map is random
		keys = append(keys, types.NamespacedName{Namespace: namespace, Name: name})
	}
	return keys
}
