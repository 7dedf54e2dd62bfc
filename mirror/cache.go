package mirror

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"slices"
	"sync"
	"time"

	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/informers"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/pager"
	"k8s.io/klog/v2"

	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// Names of the indexes on the ConfigMaps with a mirror label.
const (
	byName   = "name"   // every ConfigMap, by its name
	bySource = "source" // ConfigMaps that ask to be mirrored, by their name
)

// caches are the stores of the two informers: the ConfigMaps with a mirror label, and all namespaces.
type caches struct {
	rules      *plan.Rules
	factories  []informers.SharedInformerFactory
	configMaps coreinformers.ConfigMapIndexInformer
	namespaces coreinformers.NamespaceIndexInformer

	mu    sync.Mutex
	views map[string]*parsedView // by name; for names that have sources
}

// newCaches prepares both informers. One watch carries sources and copies, in one order, and no other ConfigMap of the
// cluster. onError is called with what is watched when a list or a watch fails.
func newCaches(client kubernetes.Interface, rules *plan.Rules, label string, onError func(resource string)) (*caches, error) {
	c := &caches{rules: rules, views: map[string]*parsedView{}}
	selector := fmt.Sprintf("%s in (%s,%s)", label, plan.SourceValue, plan.CopyValue)
	ofConfigMaps := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithTransform(c.stripConfigMap))
	ofNamespaces := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithTransform(stripNamespace))
	c.factories = []informers.SharedInformerFactory{ofConfigMaps, ofNamespaces}
	c.configMaps = coreinformers.ToConfigMapIndexInformer(ofConfigMaps.InformerFor(&corev1.ConfigMap{}, c.newInformer(selector)))
	c.namespaces = ofNamespaces.Core().V1().Namespaces().TypedInformer()
	unreachable := &rate.Sometimes{Interval: time.Minute}
	return c, errors.Join(
		c.configMaps.SetWatchErrorHandlerWithContext(watchErrorHandler(configMapsResource, unreachable, onError)),
		c.namespaces.SetWatchErrorHandlerWithContext(watchErrorHandler(namespacesResource, unreachable, onError)),
		c.configMaps.AddTypedIndexers(coreinformers.ConfigMapIndexers{
			byName: func(cm *corev1.ConfigMap) ([]string, error) { return []string{cm.Name}, nil },
			bySource: func(cm *corev1.ConfigMap) ([]string, error) {
				if !rules.AsksToBeMirrored(cm) {
					return nil, nil
				}
				return []string{cm.Name}, nil
			},
		}))
}

// newInformer returns the constructor of the informer of ConfigMaps. It is client-go's, but for the list.
func (c *caches) newInformer(selector string) func(kubernetes.Interface, time.Duration) cache.SharedIndexInformer {
	return func(client kubernetes.Interface, _ time.Duration) cache.SharedIndexInformer {
		configMaps := client.CoreV1().ConfigMaps(metav1.NamespaceAll)
		listWatch := &cache.ListWatch{
			ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
				o.LabelSelector = selector
				return c.list(ctx, configMaps, o)
			},
			WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
				o.LabelSelector = selector
				return configMaps.Watch(ctx, o)
			},
		}
		return cache.NewSharedIndexInformerWithOptions(cache.ToListWatcherWithWatchListSemantics(listWatch, client),
			&corev1.ConfigMap{}, cache.SharedIndexInformerOptions{Indexers: cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}})
	}
}

// A page of a list holds ConfigMaps of up to 1.5 MiB whole, before they are stripped. It begins small, and grows while pages
// take less than pageBytes.
const (
	firstPage, maxPage = 25, 500
	pageBytes          = 1 << 20
)

// list lists page by page, and strips each page before it asks for the next. It serves an API server that cannot stream the
// objects to the watch, and would send all of them whole in one response.
func (c *caches) list(ctx context.Context, configMaps typedcorev1.ConfigMapInterface, o metav1.ListOptions) (runtime.Object, error) {
	o.ResourceVersion, o.ResourceVersionMatch = "", "" // with a resourceVersion there may be no pages
	limit := int64(firstPage)
	pages := pager.New(func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
		o.Limit = limit
		page, err := configMaps.List(ctx, o)
		if err != nil {
			return nil, err
		}
		if page.Size() < pageBytes {
			limit = min(2*limit, maxPage)
		} else {
			limit = max(limit/2, firstPage)
		}
		for i := range page.Items {
			c.rules.Strip(&page.Items[i])
		}
		return page, nil
	})
	pages.FullListIfExpired = false // the informer begins again
	list, _, err := pages.ListWithAlloc(ctx, o)
	return list, err
}

func (c *caches) stripConfigMap(obj any) (any, error) {
	if cm, ok := obj.(*corev1.ConfigMap); ok {
		c.rules.Strip(cm)
		if !c.rules.IsSource(cm) {
			return share(cm), nil
		}
	}
	return obj, nil
}

func stripNamespace(obj any) (any, error) {
	if ns, ok := obj.(*corev1.Namespace); ok {
		plan.StripNamespace(ns)
	}
	return obj, nil
}

// configMap returns the cached ConfigMap with this key, or nil.
func (c *caches) configMap(k key) *corev1.ConfigMap {
	obj, _, _ := c.configMaps.GetIndexer().GetByKey(k.String())
	cm, _ := obj.(*corev1.ConfigMap)
	return cm
}

// namespace returns the cached namespace, or nil.
func (c *caches) namespace(name string) *corev1.Namespace {
	obj, _, _ := c.namespaces.GetIndexer().GetByKey(name)
	ns, _ := obj.(*corev1.Namespace)
	return ns
}

// target returns what the caches show of one target. Read the view of its name after it: a cache that holds a copy has
// already held its source.
func (c *caches) target(k key) plan.Target {
	return plan.Target{Key: k, Namespace: c.namespace(k.Namespace), Have: c.configMap(k)}
}

// noSources is the view of a name without sources. A pointer to it compares equal to itself, as all views do.
var noSources = &plan.View{}

// view returns the sources of a name. It returns the same pointer until one of them changes.
func (c *caches) view(name string) *plan.View {
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

// viewOf returns the present view of a name, or the sources that are neither in the last view nor among the parsed ones. It
// reads the index under the lock, so that an older view never replaces a newer one.
func (c *caches) viewOf(name string, parsed map[*corev1.ConfigMap]*plan.Source) (v *plan.View, unparsed []*corev1.ConfigMap) {
	c.mu.Lock()
	defer c.mu.Unlock()
	found, _ := c.configMaps.GetTypedIndexer().ByTypedIndex(bySource, name)
	if len(found) == 0 {
		delete(c.views, name)
		return noSources, nil
	}
	last := c.views[name]
	if last != nil && last.has(found) {
		return last.View, nil
	}
	next := &parsedView{parsed: make(map[*corev1.ConfigMap]*plan.Source, len(found))}
	for _, cm := range found {
		next.parsed[cm] = parsed[cm]
		if last != nil && last.parsed[cm] != nil {
			next.parsed[cm] = last.parsed[cm]
		}
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

// parsedView is a view, and its sources by what the cache holds.
type parsedView struct {
	*plan.View
	parsed map[*corev1.ConfigMap]*plan.Source
}

// viewReader reads the view of a name again and again.
type viewReader struct {
	caches        *caches
	name, version string
	view          *plan.View
}

// read returns the present view. It costs little unless the cache has changed.
func (l *viewReader) read() *plan.View {
	if version := l.caches.version(); l.view == nil || version == "" || version != l.version {
		l.version, l.view = version, l.caches.view(l.name)
	}
	return l.view
}

// has reports whether the view is that of these ConfigMaps.
func (v *parsedView) has(found []*corev1.ConfigMap) bool {
	return len(found) == len(v.parsed) && !slices.ContainsFunc(found, func(cm *corev1.ConfigMap) bool { return v.parsed[cm] == nil })
}

// names returns every name of a source or a copy.
func (c *caches) names() []string { return c.configMaps.GetIndexer().ListIndexFuncValues(byName) }

// sourceNames returns every name of a ConfigMap that asks to be mirrored.
func (c *caches) sourceNames() []string {
	return c.configMaps.GetIndexer().ListIndexFuncValues(bySource)
}

// copiesIn returns the cached ConfigMaps of a namespace.
func (c *caches) copiesIn(namespace string) []*corev1.ConfigMap {
	found, _ := c.configMaps.GetTypedIndexer().ByTypedIndex(cache.NamespaceIndex, namespace)
	return found
}

// version returns the resourceVersion up to which the cache has seen all ConfigMaps; empty if client-go does not know.
func (c *caches) version() string { return c.configMaps.GetIndexer().LastStoreSyncResourceVersion() }

// targets returns the keys that a fan-out of a name has to visit, in random order: the places of the name, and those in also.
func (c *caches) targets(name string, also []string) []key {
	have, _ := c.configMaps.GetTypedIndexer().ByTypedIndex(byName, name)
	objects := func(yield func(string) bool) {
		for _, cm := range have {
			if !yield(cm.Namespace) {
				return
			}
		}
	}
	places := c.rules.Places(c.view(name), slices.Values(c.namespaces.GetIndexer().ListKeys()), objects)
	for _, namespace := range also {
		places[namespace] = true
	}
	keys := make([]key, 0, len(places))
	for namespace := range places { // the order of a map is random
		keys = append(keys, key{Namespace: namespace, Name: name})
	}
	return keys
}

// allNamespaces returns the namespaces in the cache.
func (c *caches) allNamespaces() iter.Seq[*corev1.Namespace] {
	return func(yield func(*corev1.Namespace) bool) {
		for _, obj := range c.namespaces.GetIndexer().List() {
			if !yield(obj.(*corev1.Namespace)) {
				return
			}
		}
	}
}

// watchErrorHandler returns a handler that logs, at most once a minute, why a watch fails: for each resource the answer
// of the API server, and once for both if there is none. The informer retries with a backoff of up to 30 seconds.
func watchErrorHandler(resource string, unreachable *rate.Sometimes, onError func(string)) cache.WatchErrorHandlerWithContext {
	refused := &rate.Sometimes{Interval: time.Minute}
	return func(ctx context.Context, _ *cache.Reflector, err error) {
		logger := klog.FromContext(ctx)
		switch {
		case ctx.Err() != nil: // the controller stops
			return
		case apierrors.IsResourceExpired(err), apierrors.IsGone(err), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
			logger.V(4).Info("Watch ended, restarting it", "resource", resource, "reason", clipError(err))
			return
		}
		onError(resource)
		if apierrors.ReasonForError(err) == metav1.StatusReasonUnknown {
			unreachable.Do(func() { logger.Error(clipError(err), "Cannot reach the API server, retrying") })
			return
		}
		refused.Do(func() {
			logger.Error(clipError(err), "Cannot list or watch, retrying", "resource", resource)
		})
	}
}
