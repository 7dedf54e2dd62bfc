package cache

import (
	"context"
	"errors"
	"time"

	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/pager"
	"k8s.io/klog/v2"

	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// Resources are the names of the watched resources.
var Resources = []string{configMaps, namespaces}

const configMaps, namespaces = "configmaps", "namespaces"

// client lists and watches a resource, whose lists are of type L.
type client[L runtime.Object] interface {
	List(context.Context, metav1.ListOptions) (L, error)
	Watch(context.Context, metav1.ListOptions) (watch.Interface, error)
}

// newInformer returns client-go's informer of the objects of a resource that the selector matches. It keeps what strip
// leaves of them, and calls failed with the resource when a list or a watch fails.
func newInformer[L runtime.Object](resource string, client client[L], example runtime.Object, selector string,
	strip cache.TransformFunc, failed func(resource string)) (cache.SharedIndexInformer, error) {
	late := reporter(resource, failed)
	informer := cache.NewSharedIndexInformerWithOptions(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, _ metav1.ListOptions) (runtime.Object, error) {
			return list(ctx, client, selector, strip)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.LabelSelector = selector
			w, err := client.Watch(ctx, o)
			if err != nil || o.SendInitialEvents == nil {
				return w, err
			}
			return filled(w, func(err error) { late(ctx, nil, err) }), nil
		},
	}, example, cache.SharedIndexInformerOptions{
		Indexers: cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}})
	return informer, errors.Join(informer.SetTransform(strip),
		informer.SetWatchErrorHandlerWithContext(reporter(resource, failed)))
}

// A watch that begins with all objects shows at least fillPace of them in each fillTimeout, or shows the end of them.
const (
	fillTimeout = 30 * time.Second
	fillPace    = 300
)

var errEndless = apierrors.NewTimeoutError("the watch does not show the end of what it begins with: listing", 0)

// filled returns a watch that begins with all objects, and fails if it does not show their end in time: the informer
// then lists. client-go would wait for as long as the watch lasts, with old data. late is called with the reason.
func filled(w watch.Interface, late func(error)) watch.Interface {
	events := make(chan watch.Event)
	out := watch.NewProxyWatcher(events)
	go func() {
		defer close(events)
		defer w.Stop()
		pace := time.NewTicker(fillTimeout)
		defer pace.Stop()
		for shown := 0; ; shown++ {
			var e watch.Event
			select {
			case <-out.StopChan():
				return
			case <-pace.C:
				if shown >= fillPace {
					shown = 0
					continue
				}
				late(errEndless)
				e = watch.Event{Type: watch.Error, Object: &errEndless.ErrStatus}
			case next, more := <-w.ResultChan():
				if !more {
					return
				}
				if e = next; isEnd(e) {
					pace.Stop()
				}
			}
			select {
			case <-out.StopChan():
				return
			case events <- e:
			}
		}
	}()
	return out
}

// isEnd reports whether an event says that a watch has shown what it begins with.
func isEnd(e watch.Event) bool {
	o, err := meta.Accessor(e.Object)
	return err == nil && e.Type == watch.Bookmark && o.GetAnnotations()[metav1.InitialEventsAnnotationKey] == "true"
}

const (
	pageSize    = 50               // of ConfigMaps of up to 1.5 MiB
	pageTimeout = 35 * time.Second // client-go would wait for ever
)

// list lists what there is now, for when a watch does not show it. It strips each page before it asks for the next.
func list[L runtime.Object](ctx context.Context, client client[L], selector string, strip cache.TransformFunc) (
	runtime.Object, error) {
	pages := pager.New(func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
		ctx, cancel := context.WithTimeout(ctx, pageTimeout)
		defer cancel()
		page, err := client.List(ctx, o)
		if err != nil {
			return nil, err
		}
		return page, meta.EachListItem(page, func(obj runtime.Object) error {
			_, err := strip(obj) // in its place
			return err
		})
	})
	pages.PageSize, pages.FullListIfExpired = pageSize, false // the informer begins again
	all, _, err := pages.ListWithAlloc(ctx, metav1.ListOptions{LabelSelector: selector})
	return all, err
}

// stripConfigMap is the transform of ConfigMaps. It runs twice on a relist.
func (c *Cache) stripConfigMap(obj any) (any, error) {
	if cm, ok := obj.(*corev1.ConfigMap); ok {
		c.rules.Strip(cm)
		if !c.rules.IsSource(cm) {
			return share(cm), nil
		}
	}
	return obj, nil
}

// stripNamespace is the transform of namespaces.
func stripNamespace(obj any) (any, error) {
	if ns, ok := obj.(*corev1.Namespace); ok {
		plan.StripNamespace(ns)
	}
	return obj, nil
}

// reporter returns a function that logs, at most once a minute, why a list or a watch fails, and calls failed each
// time. The informer retries with a backoff of up to a minute.
func reporter(resource string, failed func(resource string)) cache.WatchErrorHandlerWithContext {
	sometimes := &rate.Sometimes{Interval: time.Minute}
	return func(ctx context.Context, _ *cache.Reflector, err error) {
		if ctx.Err() != nil { // the controller stops
			return
		}
		failed(resource)
		sometimes.Do(func() { // a proxy may answer with a page of its own
			clipped := errors.New(plan.Clip(err.Error(), 1024))
			klog.FromContext(ctx).Error(clipped, "Cannot list or watch, retrying", "resource", resource)
		})
	}
}
