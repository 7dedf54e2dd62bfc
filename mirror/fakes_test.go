package mirror

// The API server and the caches of the tests that need more than a fake clientset: answers that wait or fail to come,
// watches that lose events, and something that happens between two readings.

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// call is a request that has a hook. A namespace has its own name for namespace.
type call struct{ verb, resource, namespace string }

// apiServer is a fake clientset with hooks. What a test does through the embedded client has none.
type apiServer struct {
	kubernetes.Interface
	hangs  func(call) bool // no answer until the caller gives up
	before func(call)
	after  func(call) // the answer is on its way

	refusing atomic.Pointer[func(call) error]

	hung    atomic.Int32
	stalled atomic.Pointer[string] // the namespace whose ConfigMaps the watch does not show

	mu       sync.Mutex
	calls    map[call]int
	watch    *brittleWatch // the last one of ConfigMaps
	labelled map[cache.ObjectName]*corev1.ConfigMap
}

func newAPIServer(objects ...runtime.Object) *apiServer {
	nothing := func(call) {}
	s := &apiServer{
		Interface: fake.NewClientset(objects...), calls: map[call]int{}, labelled: map[cache.ObjectName]*corev1.ConfigMap{},
		hangs: func(call) bool { return false }, before: nothing, after: nothing,
	}
	for _, o := range objects {
		if cm, is := o.(*corev1.ConfigMap); is {
			s.shown(watch.Event{Object: cm})
		}
	}
	return s
}

func (s *apiServer) IsWatchListSemanticsUnSupported() bool { return true } // as of the fake clientset

func (s *apiServer) CoreV1() typedcorev1.CoreV1Interface { return hookedCore{s.Interface.CoreV1(), s} }

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

// relist lets the watch of ConfigMaps go on, and ends it with 410.
func (s *apiServer) relist() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stalled.Store(nil)
	s.watch.expired.Do(func() { close(s.watch.expire) }) // there may be none yet behind the last time
}

// shown returns the event that a watch with our selector has of what happened, if it has one: an object that loses its label
// is deleted there, and shown as it was before. The fake clientset's watch knows no selectors.
func (s *apiServer) shown(e watch.Event) (out watch.Event, shows bool) {
	cm, is := e.Object.(*corev1.ConfigMap)
	if !is {
		return e, true
	}
	stalled := s.stalled.Load()
	reaches := stalled == nil || cm.Namespace != *stalled
	s.mu.Lock()
	defer s.mu.Unlock()
	key := cache.MetaObjectToName(cm)
	before := s.labelled[key]
	if label := cm.Labels[plan.DefaultLabel]; e.Type != watch.Deleted && (label == plan.SourceValue || label == plan.CopyValue) {
		s.labelled[key] = cm
		return e, reaches
	}
	delete(s.labelled, key)
	return watch.Event{Type: watch.Deleted, Object: before}, reaches && before != nil
}

// refuse has requests answered with the error that f has for them, from now on.
func (s *apiServer) refuse(f func(call) error) { s.refusing.Store(&f) }

// hooked sends a request with its hooks.
func hooked[T any](ctx context.Context, s *apiServer, verb, resource, namespace string, send func() (T, error)) (T, error) {
	c := call{verb, resource, namespace}
	s.mu.Lock()
	s.calls[c]++
	s.mu.Unlock()
	s.before(c)
	defer s.after(c)
	if s.hangs(c) {
		s.hung.Add(1)
		<-ctx.Done()
		var none T
		return none, ctx.Err()
	}
	if refuse := s.refusing.Load(); refuse != nil {
		if err := (*refuse)(c); err != nil {
			var none T
			return none, err
		}
	}
	return send()
}

type hookedCore struct {
	typedcorev1.CoreV1Interface
	server *apiServer
}

func (c hookedCore) ConfigMaps(namespace string) typedcorev1.ConfigMapInterface {
	return hookedConfigMaps{c.CoreV1Interface.ConfigMaps(namespace), c.server, namespace}
}

func (c hookedCore) Namespaces() typedcorev1.NamespaceInterface {
	return hookedNamespaces{c.CoreV1Interface.Namespaces(), c.server}
}

type hookedConfigMaps struct {
	typedcorev1.ConfigMapInterface
	server    *apiServer
	namespace string
}

func (c hookedConfigMaps) Create(ctx context.Context, cm *corev1.ConfigMap, o metav1.CreateOptions) (*corev1.ConfigMap, error) {
	return hooked(ctx, c.server, "create", "configmaps", c.namespace, func() (*corev1.ConfigMap, error) {
		return c.ConfigMapInterface.Create(ctx, cm, o)
	})
}

func (c hookedConfigMaps) Update(ctx context.Context, cm *corev1.ConfigMap, o metav1.UpdateOptions) (*corev1.ConfigMap, error) {
	return hooked(ctx, c.server, "update", "configmaps", c.namespace, func() (*corev1.ConfigMap, error) {
		return c.ConfigMapInterface.Update(ctx, cm, o)
	})
}

func (c hookedConfigMaps) Get(ctx context.Context, name string, o metav1.GetOptions) (*corev1.ConfigMap, error) {
	return hooked(ctx, c.server, "get", "configmaps", c.namespace, func() (*corev1.ConfigMap, error) {
		return c.ConfigMapInterface.Get(ctx, name, o)
	})
}

func (c hookedConfigMaps) Delete(ctx context.Context, name string, o metav1.DeleteOptions) error {
	_, err := hooked(ctx, c.server, "delete", "configmaps", c.namespace, func() (struct{}, error) {
		return struct{}{}, c.ConfigMapInterface.Delete(ctx, name, o)
	})
	return err
}

func (c hookedConfigMaps) Watch(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	w, err := c.ConfigMapInterface.Watch(ctx, o)
	if err != nil {
		return nil, err
	}
	brittle := &brittleWatch{Interface: w, events: make(chan watch.Event), expire: make(chan struct{}), stopped: make(chan struct{})}
	c.server.mu.Lock()
	defer c.server.mu.Unlock()
	c.server.watch = brittle
	go brittle.run(c.server.shown)
	return brittle, nil
}

type hookedNamespaces struct {
	typedcorev1.NamespaceInterface
	server *apiServer
}

func (c hookedNamespaces) Get(ctx context.Context, name string, o metav1.GetOptions) (*corev1.Namespace, error) {
	return hooked(ctx, c.server, "get", "namespaces", name, func() (*corev1.Namespace, error) {
		return c.NamespaceInterface.Get(ctx, name, o)
	})
}

// brittleWatch is a watch that can lose events and expire.
type brittleWatch struct {
	watch.Interface
	events          chan watch.Event
	expire, stopped chan struct{}
	stop, expired   sync.Once
}

func (w *brittleWatch) ResultChan() <-chan watch.Event { return w.events }

func (w *brittleWatch) Stop() {
	w.stop.Do(func() { close(w.stopped) })
	w.Interface.Stop()
}

func (w *brittleWatch) run(shown func(watch.Event) (watch.Event, bool)) {
	defer close(w.events)
	for {
		select {
		case <-w.stopped:
			return
		case <-w.expire:
			w.send(watch.Event{Type: watch.Error, Object: &metav1.Status{
				Status: metav1.StatusFailure, Code: 410, Reason: metav1.StatusReasonExpired}})
			return
		case e, ok := <-w.Interface.ResultChan():
			if !ok {
				return
			}
			if e, shows := shown(e); shows {
				e.Object = e.Object.DeepCopyObject() // the cache keeps it, and not all of it
				w.send(e)
			}
		}
	}
}

func (w *brittleWatch) send(e watch.Event) {
	select {
	case w.events <- e:
	case <-w.stopped:
	}
}

// diary keeps the reasons and the notes of events.
type diary struct {
	mu             sync.Mutex
	reasons, notes []string
}

func (d *diary) Eventf(_, _ runtime.Object, _, reason, _, note string, args ...any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.reasons = append(d.reasons, reason)
	d.notes = append(d.notes, fmt.Sprintf(note, args...))
}

// told returns how many events had this reason.
func (d *diary) told(reason string) (n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, r := range d.reasons {
		if r == reason {
			n++
		}
	}
	return n
}

// scene is a controller that runs, the API server that it runs on, and the events that it tells.
type scene struct {
	*apiServer
	*diary
	controller *Controller
}

// alone runs a controller without a resync in a bubble, on this API server. f may wait as long as it likes.
func alone(t *testing.T, server func() *apiServer, edit func(*Options), f func(*testing.T, scene)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		o := NewOptions()
		o.NamespacePrefixes, o.ResyncPeriod = []string{"team-"}, 0
		edit(o)
		s, d := server(), &diary{}
		c, err := New(s, d, o)
		if err != nil {
			t.Fatal(err)
		}
		defer runs(t, c)() // also if f fails
		f(t, scene{s, d, c})
	})
}

// runs starts a controller that has no rival. end stops it.
func runs(t *testing.T, c *Controller) (end func()) {
	t.Helper()
	ctx, stop := context.WithCancel(klog.NewContext(t.Context(), logr.Discard()))
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx, Alone(ctx)) }()
	synctest.Wait()
	return func() {
		t.Helper()
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}
