package cache

import (
	"context"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/pager"

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

// newInformer returns client-go's informer of the objects of a resource that the
// selector matches. It keeps what strip leaves of them.
func newInformer[L runtime.Object](
	state *watchState,
	client client[L],
	example runtime.Object,
	selector string,
	strip cache.TransformFunc,
) (cache.SharedIndexInformer, error) {
	informer := cache.NewSharedIndexInformerWithOptions(&cache.ListWatch{
		ListWithContextFunc: func(
			ctx context.Context, _ metav1.ListOptions,
		) (runtime.Object, error) {
			all, err := list(ctx, client, selector, strip)
			if err != nil {
				err = state.failed(ctx, "list", err)
			}
			return all, err
		},
		WatchFuncWithContext: func(
			ctx context.Context, o metav1.ListOptions,
		) (watch.Interface, error) {
			o.LabelSelector = selector
			return state.watch(ctx, client.Watch, o)
		},
	}, example, cache.SharedIndexInformerOptions{
		Indexers: cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}})
	// Both functions have logged what the handler would.
	logged := func(context.Context, *cache.Reflector, error) {}
	return informer, errors.Join(
		informer.SetTransform(strip), informer.SetWatchErrorHandlerWithContext(logged))
}

const (
	pageSize    = 50               // of ConfigMaps of up to 1.5 MiB
	pageTimeout = 35 * time.Second // client-go would wait for ever
)

// list lists the objects that are there now, page by page, if no watch shows them.
// It strips each page before it asks for the next one.
func list[L runtime.Object](
	ctx context.Context, client client[L], selector string, strip cache.TransformFunc,
) (runtime.Object, error) {
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
	pages.PageSize = pageSize
	pages.FullListIfExpired = false // the informer begins again
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
