package apitest

import (
	"context"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
)

type clientset struct {
	kubernetes.Interface
	core core
}

func (c clientset) CoreV1() typedcorev1.CoreV1Interface { return c.core }

type core struct {
	typedcorev1.CoreV1Interface
	server  *Server
	hooks   *atomic.Pointer[Hooks] // nil: the requests have none
	process int32
}

func (c core) ConfigMaps(namespace string) typedcorev1.ConfigMapInterface {
	store := c.server.ConfigMaps
	return configMapClient{client: client[*corev1.ConfigMap]{c.server, store, namespace, c.hooks, c.process}}
}

func (c core) Namespaces() typedcorev1.NamespaceInterface {
	return namespaceClient{client: client[*corev1.Namespace]{c.server, c.server.Namespaces, "", c.hooks, c.process}}
}

type configMapClient struct {
	client[*corev1.ConfigMap]
	noConfigMaps
}

type noConfigMaps struct{ typedcorev1.ConfigMapInterface }

func (c configMapClient) List(ctx context.Context, o metav1.ListOptions) (*corev1.ConfigMapList, error) {
	list := &corev1.ConfigMapList{}
	err := c.list(ctx, o, &list.ListMeta, func(cm *corev1.ConfigMap) { list.Items = append(list.Items, *cm) })
	return list, err
}

type namespaceClient struct {
	client[*corev1.Namespace]
	noNamespaces
}

type noNamespaces struct{ typedcorev1.NamespaceInterface }

func (c namespaceClient) List(ctx context.Context, o metav1.ListOptions) (*corev1.NamespaceList, error) {
	list := &corev1.NamespaceList{}
	err := c.list(ctx, o, &list.ListMeta, func(ns *corev1.Namespace) { list.Items = append(list.Items, *ns) })
	return list, err
}

// client is a client for one resource.
type client[T Object[T]] struct {
	server    *Server
	store     *Store[T]
	namespace string
	hooks     *atomic.Pointer[Hooks]
	process   int32
}

// hooked reports whether the requests are those of a controller.
func (c client[T]) hooked() bool { return c.hooks != nil }

// do sends a request, with its hooks if it has any.
func (c client[T]) do(ctx context.Context, verb, name string, send func(Call) (T, error)) (none T, err error) {
	s, this := c.server, Call{verb, c.store.resource.Resource, c.namespace}
	if this.Resource == "namespaces" {
		this.Namespace = name
	}
	if !c.hooked() {
		return send(this)
	}
	s.called(this)
	defer func() { s.note(this, Key{Namespace: c.namespace, Name: name}, err) }()
	if this.IsWrite() {
		defer s.write(writeOf{c.process, Key{Namespace: c.namespace, Name: name}})()
	}
	h := c.hooks.Load()
	if h.Before != nil {
		h.Before(this)
	}
	if ask(h.Hangs, this) {
		s.Hung.Add(1)
		<-ctx.Done()
		return none, ctx.Err()
	}
	if d := ask(h.Takes, this); !wait(ctx, d) {
		if ask(h.Arrives, this) {
			time.AfterFunc(d, func() { _, _ = send(this) })
		}
		return none, ctx.Err()
	}
	if err := ask(h.Refuses, this); err != nil {
		return none, err
	}
	answer, err := send(this)
	if lost := ask(h.Loses, this); lost != nil {
		return none, lost
	}
	if !wait(ctx, ask(h.Answers, this)) {
		return none, ctx.Err()
	}
	return answer, err
}

// ask returns what a hook returns, which may be nil.
func ask[C, R any](hook func(C) R, c C) (none R) {
	if hook == nil {
		return none
	}
	return hook(c)
}

// wait returns false if ctx ends before the time is over.
func wait(ctx context.Context, d time.Duration) bool {
	if d == 0 {
		return true
	}
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// altered returns what a webhook makes of an object that the controller sends.
func (c client[T]) altered(this Call, sent T) (T, Origin) {
	cm, ok := any(sent.DeepCopy()).(*corev1.ConfigMap)
	if !ok || !c.hooked() {
		return sent, Origin{Controller: c.hooked()}
	}
	if alters := c.hooks.Load().Alters; alters != nil {
		alters(this, cm)
	}
	by := Origin{Controller: true, Altered: !equality.Semantic.DeepEqual(any(cm), any(sent))}
	if by.Altered && cm.UID != "" {
		c.server.Altered.Store(cm.UID, true)
	}
	return any(cm).(T), by
}

func (c client[T]) Create(ctx context.Context, o T, options metav1.CreateOptions) (T, error) {
	if c.hooked() && options.FieldManager == "" {
		c.server.isUnsafe("create without a field manager: %s", KeyOf(o))
	}
	return c.do(ctx, "create", o.GetName(), func(this Call) (T, error) {
		if len(options.DryRun) > 0 {
			return o, nil
		}
		o, by := c.altered(this, o)
		return c.store.create(o, by)
	})
}

func (c client[T]) Update(ctx context.Context, o T, options metav1.UpdateOptions) (T, error) {
	if c.hooked() && (o.GetResourceVersion() == "" || o.GetUID() == "" || options.FieldManager == "") {
		c.server.isUnsafe("update without resourceVersion, UID or field manager: %s", KeyOf(o))
	}
	return c.do(ctx, "update", o.GetName(), func(this Call) (T, error) {
		version := o.GetResourceVersion()
		o, by := c.altered(this, o)
		stored, err := c.store.update(o, by)
		if err == nil && by.Controller && !by.Altered && stored.GetResourceVersion() == version {
			c.server.isUnsafe("update that changes nothing: %s", KeyOf(o))
		}
		return stored, err
	})
}

func (c client[T]) Delete(ctx context.Context, name string, o metav1.DeleteOptions) error {
	k, p := Key{Namespace: c.namespace, Name: name}, o.Preconditions
	if c.hooked() && (p == nil || p.UID == nil || p.ResourceVersion == nil || *p.UID == "" || *p.ResourceVersion == "") {
		c.server.isUnsafe("delete without preconditions: %s", k)
	}
	_, err := c.do(ctx, "delete", name, func(Call) (none T, err error) {
		old, absent := c.store.Get(k)
		err = c.store.delete(k, p, Origin{Controller: c.hooked()})
		if c.hooked() && err == nil && absent == nil && old.GetDeletionTimestamp() != nil {
			c.server.isUnsafe("delete of what is being deleted: %s", k)
		}
		return none, err
	})
	return err
}

func (c client[T]) Get(ctx context.Context, name string, _ metav1.GetOptions) (T, error) {
	return c.do(ctx, "get", name, func(Call) (T, error) { return c.store.Get(Key{Namespace: c.namespace, Name: name}) })
}

// list yields a page of the objects in the namespace of the client, or in all.
func (c client[T]) list(ctx context.Context, o metav1.ListOptions, meta *metav1.ListMeta, yield func(T)) error {
	selector, err := labels.Parse(o.LabelSelector)
	if err != nil {
		return err
	}
	_, err = c.do(ctx, "list", "", func(Call) (none T, err error) {
		var page []T
		page, *meta = c.store.list(selector, o)
		for _, object := range page {
			if c.namespace == "" || object.GetNamespace() == c.namespace {
				yield(object)
			}
		}
		return none, nil
	})
	return err
}

func (c client[T]) Watch(ctx context.Context, o metav1.ListOptions) (w watch.Interface, err error) {
	resource, hooks := c.store.resource.Resource, c.hooks
	if !c.hooked() {
		hooks = &c.server.hooks
	}
	if ask(hooks.Load().Plain, resource) {
		o.SendInitialEvents = nil
	}
	of := watchHooks[T]{
		lag: func() time.Duration { return ask(hooks.Load().Lags, resource) },
		lost: func(o T) bool {
			loses := hooks.Load().Lost
			return loses != nil && loses(resource, o.GetNamespace())
		},
		cut:      ask(hooks.Load().Cuts, resource),
		bookmark: ask(hooks.Load().Bookmarks, resource),
	}
	_, err = c.do(ctx, "watch", "", func(Call) (none T, err error) {
		w, err = c.store.watch(ctx, o, of)
		return none, err
	})
	return w, err
}
