// Package outside watches a cluster from outside, so that tests, the demo and people see what is there and
// do not have to take the controller's word for it.
package outside

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"
)

// Observer is a watch on all ConfigMaps, namespaces and events of a cluster.
type Observer struct {
	configMaps, namespaces, events cache.Store
}

// Observe starts to watch until ctx ends, and returns when what is there has been seen.
func Observe(ctx context.Context, client kubernetes.Interface) (*Observer, error) {
	factory := informers.NewSharedInformerFactory(client, 0)
	store := func(i cache.SharedIndexInformer) cache.Store {
		// Fails only for an informer that runs already. The end of ctx is no error to log.
		_ = i.SetWatchErrorHandlerWithContext(func(ctx context.Context, r *cache.Reflector, err error) {
			if ctx.Err() == nil {
				cache.DefaultWatchErrorHandler(ctx, r, err)
			}
		})
		return i.GetStore()
	}
	core := factory.Core().V1()
	o := &Observer{store(core.ConfigMaps().Informer()), store(core.Namespaces().Informer()),
		store(core.Events().Informer())}
	factory.StartWithContext(ctx)
	return o, factory.WaitForCacheSyncWithContext(ctx).AsError()
}

// Watch begins a watch on the ConfigMaps that a selector of labels chooses, at what is there now. It goes on where it
// was when the API server ends it, as that does under load.
func Watch(ctx context.Context, client kubernetes.Interface, selector string) (watch.Interface, error) {
	configMaps := client.CoreV1().ConfigMaps(metav1.NamespaceAll)
	list, err := configMaps.List(ctx, metav1.ListOptions{LabelSelector: selector, Limit: 1})
	if err != nil {
		return nil, err
	}
	begin := func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
		o.LabelSelector = selector
		return configMaps.Watch(ctx, o)
	}
	again := &cache.ListWatch{WatchFuncWithContext: begin}
	return watchtools.NewRetryWatcherWithContext(ctx, list.ResourceVersion, again)
}

// ConfigMap returns the ConfigMap as the watch has shown it; nil if there is none.
func (o *Observer) ConfigMap(namespace, name string) *corev1.ConfigMap {
	return stored[*corev1.ConfigMap](o.configMaps, namespace+"/"+name)
}

// HasSeen reports whether the watch has shown the ConfigMap in this state or in a later one, its end included:
// what is asked of the observer then is no answer from before.
func (o *Observer) HasSeen(cm *corev1.ConfigMap) bool {
	synced, err := resourceversion.CompareResourceVersion(o.configMaps.LastStoreSyncResourceVersion(), cm.ResourceVersion)
	return err == nil && synced >= 0
}

// Namespace returns the namespace as the watch has shown it; nil if there is none.
func (o *Observer) Namespace(name string) *corev1.Namespace {
	return stored[*corev1.Namespace](o.namespaces, name)
}

// EventsOn returns the events on a ConfigMap.
func (o *Observer) EventsOn(namespace, name string) []*corev1.Event {
	var out []*corev1.Event
	for _, obj := range o.events.List() {
		e := obj.(*corev1.Event)
		if about := e.InvolvedObject; about.Kind == "ConfigMap" && about.Namespace == namespace && about.Name == name {
			out = append(out, e)
		}
	}
	return out
}

func stored[T any](s cache.Store, key string) T {
	obj, _, _ := s.GetByKey(key)
	typed, _ := obj.(T)
	return typed
}
