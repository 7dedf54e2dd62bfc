package cache

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/pager"
	"k8s.io/klog/v2"

	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// The resources that are watched.
const (
	configMaps = "configmaps"
	namespaces = "namespaces"
)

// Resources are the names of the watched resources.
var Resources = []string{configMaps, namespaces}

// newInformer returns the constructor of the informer of ConfigMaps. It is client-go's, but for the list.
func (c *Cache) newInformer(selector string) func(kubernetes.Interface, time.Duration) cache.SharedIndexInformer {
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
			&corev1.ConfigMap{}, cache.SharedIndexInformerOptions{
				Indexers: cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}})
	}
}

// A page of a list holds ConfigMaps of up to 1.5 MiB whole, before they are stripped. It begins small, and grows while
// pages take less than pageBytes.
const (
	firstPage, maxPage = 25, 500
	pageBytes          = 1 << 20
)

// list lists page by page, and strips each page before it asks for the next. It serves an API server that cannot stream
// the objects to the watch, and would send all of them whole in one response.
func (c *Cache) list(ctx context.Context, configMaps typedcorev1.ConfigMapInterface, o metav1.ListOptions) (
	runtime.Object, error) {
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

// watchErrorHandler returns a handler that logs, at most once a minute, why a watch fails: for each resource the answer
// of the API server, and once for both if there is none. The informer retries with a backoff of up to 30 seconds.
func watchErrorHandler(
	resource string, unreachable *rate.Sometimes, failed func(string)) cache.WatchErrorHandlerWithContext {
	refused := &rate.Sometimes{Interval: time.Minute}
	return func(ctx context.Context, _ *cache.Reflector, err error) {
		logger := klog.FromContext(ctx)
		clipped := fmt.Errorf("%.1024s", err) //nolint:errorlint // a proxy may answer with a page of its own
		switch {
		case ctx.Err() != nil: // the controller stops
			return
		case apierrors.IsResourceExpired(err), apierrors.IsGone(err),
			errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
			logger.V(4).Info("Watch ended, restarting it", "resource", resource, "reason", clipped)
			return
		}
		failed(resource)
		if apierrors.ReasonForError(err) == metav1.StatusReasonUnknown {
			unreachable.Do(func() { logger.Error(clipped, "Cannot reach the API server, retrying") })
			return
		}
		refused.Do(func() { logger.Error(clipped, "Cannot list or watch, retrying", "resource", resource) })
	}
}
