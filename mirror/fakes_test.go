package mirror

// The API server of the tests that drive a whole controller. It keeps the rules of a real one, and a test can hook every
// request of the controller.

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// call is a request. A namespace has its own name for namespace.
type call struct{ verb, resource, namespace string }

// hooks act on the requests of the controller.
type hooks struct {
	before  func(call)
	hangs   func(call) bool          // no answer until the caller gives up
	takes   func(call) time.Duration // before it is carried out
	refuses func(call) error
	after   func(call)                          // the answer is on its way
	lags    func(resource string) time.Duration // the watch
}

// apiServer is an API server with hooks. Calls of the embedded client have none.
type apiServer struct {
	kubernetes.Interface
	cms        *store[*corev1.ConfigMap]
	namespaces *store[*corev1.Namespace]

	hooks   atomic.Pointer[hooks]
	hung    atomic.Int32
	stalled atomic.Pointer[string] // the namespace whose ConfigMaps the watch does not show

	mu       sync.Mutex
	calls    map[call]int
	inFlight map[key]bool // writes
	unsafe   []string     // requests that could do harm
}

func newAPIServer(objects ...runtime.Object) *apiServer {
	s := &apiServer{calls: map[call]int{}, inFlight: map[key]bool{}}
	s.hooks.Store(&hooks{
		before: func(call) {}, hangs: func(call) bool { return false }, takes: func(call) time.Duration { return 0 },
		refuses: func(call) error { return nil }, after: func(call) {}, lags: func(string) time.Duration { return 0 },
	})
	s.Interface = clientset{server: s}
	s.namespaces = newStore("namespaces", &corev1.Namespace{}, func(_ string, _, _ *corev1.Namespace) error { return nil })
	s.cms = newStore("configmaps", &corev1.ConfigMap{}, s.admit)
	for _, o := range objects {
		switch o := o.(type) {
		case *corev1.Namespace:
			s.namespaces.objects[keyOf(o)] = o.DeepCopy()
		case *corev1.ConfigMap:
			s.cms.objects[keyOf(o)] = o.DeepCopy()
		}
	}
	return s
}

// admit refuses ConfigMaps in namespaces that are not there, and changes of what is immutable.
func (s *apiServer) admit(op string, old, cm *corev1.ConfigMap) error {
	resource := corev1.Resource("configmaps")
	switch ns, err := s.namespaces.get(key{Name: cm.Namespace}); {
	case op == "create" && err != nil:
		return err
	case op == "create" && plan.Terminating(ns):
		err := apierrors.NewForbidden(resource, cm.Name, errors.New("the namespace is being terminated"))
		err.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
		return err
	case op == "update" && old.Immutable != nil && *old.Immutable &&
		(cm.Immutable == nil || !*cm.Immutable || fmt.Sprint(old.Data, old.BinaryData) != fmt.Sprint(cm.Data, cm.BinaryData)):
		return apierrors.NewInvalid(corev1.SchemeGroupVersion.WithKind("ConfigMap").GroupKind(), cm.Name, nil)
	}
	return nil
}

func (s *apiServer) CoreV1() typedcorev1.CoreV1Interface { return core{server: s, hooked: true} }

// configMaps of a namespace, for the test itself.
func (s *apiServer) configMaps(namespace string) typedcorev1.ConfigMapInterface {
	return s.Interface.CoreV1().ConfigMaps(namespace)
}

// count returns how many such requests came.
func (s *apiServer) count(verb, resource, namespace string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls[call{verb, resource, namespace}]
}

// countAll returns how many such requests for ConfigMaps came, of any of these verbs, in all namespaces with this prefix.
func (s *apiServer) countAll(prefix string, verbs ...string) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c, count := range s.calls {
		for _, verb := range verbs {
			if c.verb == verb && c.resource == "configmaps" && strings.HasPrefix(c.namespace, prefix) {
				n += count
			}
		}
	}
	return n
}

// relist lets the watch of ConfigMaps go on, and ends it with 410.
func (s *apiServer) relist() {
	s.stalled.Store(nil)
	s.cms.expire()
}

// hook changes the hooks, from now on.
func (s *apiServer) hook(change func(*hooks)) {
	h := *s.hooks.Load()
	change(&h)
	s.hooks.Store(&h)
}

func (s *apiServer) isUnsafe(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unsafe = append(s.unsafe, fmt.Sprintf(format, args...))
}

// write carries out a write that has hooks, and notices two writes to one object at the same time.
func (s *apiServer) write(k key) (end func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.inFlight[k] {
		s.unsafe = append(s.unsafe, "two writes in flight to "+k.String())
	}
	s.inFlight[k] = true
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.inFlight, k)
	}
}

// clientset is a client without hooks.
type clientset struct {
	kubernetes.Interface
	server *apiServer
}

func (c clientset) CoreV1() typedcorev1.CoreV1Interface { return core{server: c.server} }

type core struct {
	typedcorev1.CoreV1Interface
	server *apiServer
	hooked bool
}

func (c core) ConfigMaps(namespace string) typedcorev1.ConfigMapInterface {
	return configMapClient{client: client[*corev1.ConfigMap]{c.server, c.server.cms, namespace, c.hooked}}
}

func (c core) Namespaces() typedcorev1.NamespaceInterface {
	return namespaceClient{client: client[*corev1.Namespace]{c.server, c.server.namespaces, "", c.hooked}}
}

type configMapClient struct {
	client[*corev1.ConfigMap]
	noConfigMaps
}

type noConfigMaps struct{ typedcorev1.ConfigMapInterface }

func (c configMapClient) List(ctx context.Context, o metav1.ListOptions) (*corev1.ConfigMapList, error) {
	found, version, err := c.list(ctx, o)
	list := &corev1.ConfigMapList{ListMeta: metav1.ListMeta{ResourceVersion: version}}
	for _, cm := range found {
		if c.namespace == "" || cm.Namespace == c.namespace {
			list.Items = append(list.Items, *cm)
		}
	}
	return list, err
}

type namespaceClient struct {
	client[*corev1.Namespace]
	noNamespaces
}

type noNamespaces struct{ typedcorev1.NamespaceInterface }

func (c namespaceClient) List(ctx context.Context, o metav1.ListOptions) (*corev1.NamespaceList, error) {
	found, version, err := c.list(ctx, o)
	list := &corev1.NamespaceList{ListMeta: metav1.ListMeta{ResourceVersion: version}}
	for _, ns := range found {
		list.Items = append(list.Items, *ns)
	}
	return list, err
}

// client is a client for one resource.
type client[T object[T]] struct {
	server    *apiServer
	store     *store[T]
	namespace string
	hooked    bool
}

// do sends a request, with its hooks if it has any.
func (c client[T]) do(ctx context.Context, verb, name string, send func() (T, error)) (none T, err error) {
	if !c.hooked {
		return send()
	}
	s, namespace := c.server, c.namespace
	if c.store.resource.Resource == "namespaces" {
		namespace = name
	}
	this := call{verb, c.store.resource.Resource, namespace}
	s.mu.Lock()
	s.calls[this]++
	s.mu.Unlock()
	if verb != "get" && verb != "list" && verb != "watch" {
		defer s.write(key{Namespace: c.namespace, Name: name})()
	}
	h := s.hooks.Load()
	h.before(this)
	defer func() { s.hooks.Load().after(this) }()
	if h.hangs(this) {
		s.hung.Add(1)
		<-ctx.Done()
		return none, ctx.Err()
	}
	if d := h.takes(this); d > 0 {
		select {
		case <-ctx.Done():
			return none, ctx.Err()
		case <-time.After(d):
		}
	}
	if err := h.refuses(this); err != nil {
		return none, err
	}
	return send()
}

func (c client[T]) Create(ctx context.Context, o T, options metav1.CreateOptions) (T, error) {
	return c.do(ctx, "create", o.GetName(), func() (T, error) {
		if len(options.DryRun) > 0 {
			return o, nil
		}
		return c.store.create(o)
	})
}

func (c client[T]) Update(ctx context.Context, o T, _ metav1.UpdateOptions) (T, error) {
	if c.hooked && (o.GetResourceVersion() == "" || o.GetUID() == "") {
		c.server.isUnsafe("update without resourceVersion or UID: %s", keyOf(o))
	}
	return c.do(ctx, "update", o.GetName(), func() (T, error) { return c.store.update(o) })
}

func (c client[T]) Delete(ctx context.Context, name string, o metav1.DeleteOptions) error {
	k, p := key{Namespace: c.namespace, Name: name}, o.Preconditions
	if c.hooked && (p == nil || p.UID == nil || p.ResourceVersion == nil || *p.UID == "" || *p.ResourceVersion == "") {
		c.server.isUnsafe("delete without preconditions: %s", k)
	}
	_, err := c.do(ctx, "delete", name, func() (none T, err error) { return none, c.store.delete(k, p) })
	return err
}

func (c client[T]) Get(ctx context.Context, name string, _ metav1.GetOptions) (T, error) {
	return c.do(ctx, "get", name, func() (T, error) { return c.store.get(key{Namespace: c.namespace, Name: name}) })
}

func (c client[T]) list(ctx context.Context, o metav1.ListOptions) (found []T, version string, err error) {
	selector, err := labels.Parse(o.LabelSelector)
	if err != nil {
		return nil, "", err
	}
	_, err = c.do(ctx, "list", "", func() (none T, err error) {
		found, version = c.store.list(selector)
		return none, nil
	})
	return found, version, err
}

func (c client[T]) Watch(ctx context.Context, o metav1.ListOptions) (w watch.Interface, err error) {
	_, err = c.do(ctx, "watch", "", func() (none T, err error) {
		w, err = c.store.watch(ctx, o, c.lost, c.lag)
		return none, err
	})
	return w, err
}

// lag returns how long after a change a watch shows it.
func (c client[T]) lag() time.Duration { return c.server.hooks.Load().lags(c.store.resource.Resource) }

// lost reports whether a watch does not show this object.
func (c client[T]) lost(o T) bool {
	stalled := c.server.stalled.Load()
	return stalled != nil && o.GetNamespace() != "" && o.GetNamespace() == *stalled
}
