package mirror

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"time"

	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

// Names of the indexes on the ConfigMaps that carry the mirror label.
const (
	byName   = "name"   // every one of them, by its name
	bySource = "source" // those that ask to be mirrored, by their name
)

// watchConfigMaps prepares the one watch that carries sources and copies, in one order, and no other
// ConfigMap of the cluster.
func (c *Controller) watchConfigMaps(client kubernetes.Interface) error {
	selector := fmt.Sprintf("%s in (%s,%s)", c.rules.label, SourceValue, CopyValue)
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0,
		informers.WithTweakListOptions(func(o *metav1.ListOptions) { o.LabelSelector = selector }),
		informers.WithTransform(func(obj any) (any, error) {
			if cm, ok := obj.(*corev1.ConfigMap); ok {
				c.rules.strip(cm)
			}
			return obj, nil
		}))
	c.factories = append(c.factories, factory)
	c.configMaps = factory.Core().V1().ConfigMaps().TypedInformer()
	if err := c.configMaps.SetWatchErrorHandlerWithContext(c.watchErrorHandler(configMapsResource)); err != nil {
		return err
	}
	err := c.configMaps.AddTypedIndexers(coreinformers.ConfigMapIndexers{
		byName: func(cm *corev1.ConfigMap) ([]string, error) { return []string{cm.Name}, nil },
		bySource: func(cm *corev1.ConfigMap) ([]string, error) {
			if !c.rules.asksToBeMirrored(cm) {
				return nil, nil
			}
			return []string{cm.Name}, nil
		},
	})
	if err != nil {
		return err
	}
	handler, err := c.configMaps.AddTypedEventHandler(coreinformers.ConfigMapHandlerFuncs{
		AddFunc:    c.configMapSeen,
		UpdateFunc: c.configMapUpdated,
		DeleteFunc: c.configMapDeleted,
	})
	c.handlers = append(c.handlers, handler)
	return err
}

func (c *Controller) watchNamespaces(client kubernetes.Interface) error {
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0,
		informers.WithTransform(func(obj any) (any, error) {
			if ns, ok := obj.(*corev1.Namespace); ok {
				ns.ManagedFields, ns.Annotations = nil, nil
				ns.Name = intern(ns.Name)
			}
			return obj, nil
		}))
	c.factories = append(c.factories, factory)
	c.namespaces = factory.Core().V1().Namespaces().TypedInformer()
	if err := c.namespaces.SetWatchErrorHandlerWithContext(c.watchErrorHandler(namespacesResource)); err != nil {
		return err
	}
	handler, err := c.namespaces.AddTypedEventHandler(coreinformers.NamespaceHandlerFuncs{
		AddFunc:    func(ns *corev1.Namespace) { c.namespaceSeen(ns.Name) },
		UpdateFunc: c.namespaceUpdated,
		DeleteFunc: func(ns coreinformers.DeletedNamespace) { c.namespaceGone(ns.GetName()) },
	})
	c.handlers = append(c.handlers, handler)
	return err
}

// The handlers only map an event to the name of its sources, and to the target of it that needs a look.

func (c *Controller) configMapUpdated(old, new *corev1.ConfigMap) {
	if old.UID == new.UID && old.ResourceVersion == new.ResourceVersion {
		return // a relist, and nothing new in it
	}
	c.configMapChanged(old)
	c.configMapSeen(new)
	if old.UID != new.UID {
		c.writer.deleted(old.UID) // its deletion has no event of its own
	}
	if !c.rules.isSource(new) {
		c.forgetSource(cache.MetaObjectToName(new))
	}
}

// configMapSeen is configMapChanged for the present state of one.
func (c *Controller) configMapSeen(cm *corev1.ConfigMap) {
	if c.active.Load() && c.rules.isSource(cm) {
		c.latencies.sourceChanged(cache.MetaObjectToName(cm))
	}
	c.configMapChanged(cm)
}

func (c *Controller) configMapChanged(cm *corev1.ConfigMap) {
	if c.rules.asksToBeMirrored(cm) {
		c.looks.forget(cache.MetaObjectToName(cm))
		c.markAll(cm.Name)
	}
	c.mark(cm.Name, cm.Namespace, mark{})
}

func (c *Controller) configMapDeleted(d coreinformers.DeletedConfigMap) {
	key, cm := d.GetObjectName(), d.OptionalObj
	source, copied := true, true // of an object that is not known any more, either
	if cm != nil {
		source = c.rules.asksToBeMirrored(cm)
		_, copied = c.rules.sourceOf(cm)
		copied = !c.writer.deleted(cm.UID) && copied
	}
	if source {
		c.forgetSource(key)
		if c.active.Load() {
			c.looks.vanished(key) // who takes over later begins with a look of his own
		}
		c.markAll(key.Name)
	}
	c.mark(key.Name, key.Namespace, mark{vanished: copied, deleted: copied})
}

func (c *Controller) namespaceUpdated(old, new *corev1.Namespace) {
	switch {
	case old.UID != new.UID:
		c.namespaceGone(old.Name)
		c.namespaceSeen(new.Name)
	case terminating(old) != terminating(new) || !maps.Equal(old.Labels, new.Labels):
		c.namespaceChanged(new.Name)
	}
}

// namespaceSeen is namespaceChanged for a new one.
func (c *Controller) namespaceSeen(namespace string) {
	c.markNamespace(namespace, true)
}

func (c *Controller) namespaceGone(namespace string) {
	c.retries.forgetNamespace(namespace)
	c.fights.forgetNamespace(namespace)
	c.writer.forgetNamespace(namespace)
	c.latencies.forgetNamespace(namespace)
	c.namespaceChanged(namespace)
}

// namespaceChanged makes the namespace due for every source, and for every copy in it.
func (c *Controller) namespaceChanged(namespace string) { c.markNamespace(namespace, false) }

func (c *Controller) markNamespace(namespace string, fresh bool) {
	if !c.active.Load() {
		return
	}
	indexer := c.configMaps.GetTypedIndexer()
	if c.rules.allowsTarget(namespace) {
		names := indexer.ListIndexFuncValues(bySource)
		if fresh {
			c.latencies.namespaceSeen(namespace, names)
		}
		for _, name := range names {
			c.mark(name, namespace, mark{})
		}
	}
	copies, _ := indexer.ByTypedIndex(cache.NamespaceIndex, namespace)
	for _, cm := range copies {
		c.mark(cm.Name, namespace, mark{})
	}
}

func (c *Controller) mark(name, namespace string, m mark) {
	if c.active.Load() {
		c.backlog.mark(name, namespace, m)
		c.queue.Add(name)
	}
}

func (c *Controller) markAll(name string) {
	if c.active.Load() {
		c.backlog.markAll(name)
		c.queue.Add(name)
	}
}

// watchErrorHandler returns a handler that says once a minute why a watch cannot be had: for each resource what
// the API server answers, and once for all if it does not answer. The informer tries again by itself, with a
// backoff that grows to 30 seconds.
func (c *Controller) watchErrorHandler(resource string) cache.WatchErrorHandlerWithContext {
	refused := &rate.Sometimes{Interval: time.Minute}
	return func(ctx context.Context, _ *cache.Reflector, err error) {
		logger := klog.FromContext(ctx)
		switch {
		case ctx.Err() != nil: // we are stopping
			return
		case apierrors.IsResourceExpired(err), apierrors.IsGone(err), isEndOfWatch(err):
			logger.V(4).Info("Watch ended, beginning anew", "resource", resource, "reason", err)
			return
		}
		c.measures.watchErrors.WithLabelValues(resource).Inc()
		if apierrors.ReasonForError(err) == metav1.StatusReasonUnknown {
			c.unreachable.Do(func() {
				logger.Error(err, "Cannot reach the API server, trying again until it works")
			})
			return
		}
		refused.Do(func() {
			logger.Error(err, "Cannot watch, trying again until it works", "resource", resource)
		})
	}
}

// isEndOfWatch reports whether a watch ended as watches do: the API server closes each after some minutes.
func isEndOfWatch(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
}
