// Package apitest is the API server of the tests that drive a whole controller in virtual time. It keeps ConfigMaps and
// namespaces by the rules of a real one, which e2e compares with it, and tests can hook every request of the
// controller.
package apitest

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/kubernetes"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"

	_ "github.com/mirror-controller/mirror-controller/mirror/apitest/mutations" // in all that drives a controller
)

// Call is a request. A namespace has its own name for Namespace.
type Call struct{ Verb, Resource, Namespace string }

// IsWrite reports whether the request changes something.
func (c Call) IsWrite() bool {
	return slices.Contains([]string{"create", "update", "delete"}, c.Verb)
}

// Hooks act on the requests of the controller. Those that are nil do nothing.
type Hooks struct {
	Before  func(Call)
	Hangs   func(Call) bool          // there is no answer until the caller gives up
	Takes   func(Call) time.Duration // the request is on its way
	Arrives func(Call) bool          // also if the caller gives up meanwhile, as late again
	Refuses func(Call) error
	Alters  func(Call, *corev1.ConfigMap)         // what is stored
	Loses   func(Call) error                      // instead of the answer
	Answers func(Call) time.Duration              // the answer is on its way
	Lags    func(resource string) time.Duration   // how late the watch is
	Lost    func(resource, namespace string) bool // what the watch does not show, as a half-open connection does
	Plain   func(resource string) bool            // no watch begins with all objects, as behind an old proxy
	// Cuts returns after which time a watch that begins with all objects ends,
	// before it shows their end; 0: it shows it.
	Cuts func(resource string) time.Duration
	// Bookmarks returns the time between two bookmarks of a watch; 0: none.
	Bookmarks func(resource string) time.Duration
}

// Server is an API server with hooks. Calls of the embedded client have none.
type Server struct {
	kubernetes.Interface
	ConfigMaps *Store[*corev1.ConfigMap]
	Namespaces *Store[*corev1.Namespace]
	// Hung counts the requests that were left without an answer.
	Hung atomic.Int32
	// Altered has the UIDs of objects whose update a webhook has altered. Perhaps nothing changed by that.
	Altered sync.Map

	hooks    atomic.Pointer[Hooks]
	mu       sync.Mutex
	calls    map[Call]int
	inFlight map[writeOf]bool
	started  atomic.Int32 // processes
	unsafe   []string     // requests that could do harm
	read     map[Key]bool // ConfigMaps that were read; true: a write there had failed before
	failed   map[Key]bool // where a write has failed
}

// NewServer returns an API server that holds these ConfigMaps and namespaces.
func NewServer(objects ...runtime.Object) *Server {
	s := &Server{calls: map[Call]int{}, inFlight: map[writeOf]bool{}, read: map[Key]bool{}, failed: map[Key]bool{}}
	s.hooks.Store(&Hooks{})
	s.Interface = clientset{core: core{server: s}}
	clock := &atomic.Int64{}
	s.Namespaces = newStore(clock, "namespaces", &corev1.Namespace{},
		func(_ string, _, _ *corev1.Namespace) error { return nil })
	s.ConfigMaps = newStore(clock, "configmaps", &corev1.ConfigMap{}, s.admit)
	for _, o := range objects {
		switch o := o.(type) {
		case *corev1.Namespace:
			s.Namespaces.objects[KeyOf(o)] = o.DeepCopy()
		case *corev1.ConfigMap:
			s.ConfigMaps.objects[KeyOf(o)] = o.DeepCopy()
		}
	}
	return s
}

// admit refuses ConfigMaps in namespaces that are absent or terminating, and changes of what is immutable.
func (s *Server) admit(op string, old, cm *corev1.ConfigMap) error {
	if op == "update" {
		return validateUpdate(old, cm)
	}
	ns, err := s.Namespaces.Get(Key{Name: cm.Namespace})
	if err == nil && ns.Status.Phase == corev1.NamespaceTerminating {
		err := apierrors.NewForbidden(corev1.Resource("configmaps"), cm.Name, errors.New("the namespace is being terminated"))
		err.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
		return err
	}
	if problems := validateAnnotations(cm); err == nil && len(problems) > 0 {
		return invalid(cm, problems)
	}
	return err
}

func validateUpdate(old, cm *corev1.ConfigMap) error {
	problems := validateAnnotations(cm)
	if old.Immutable != nil && *old.Immutable &&
		(cm.Immutable == nil || !*cm.Immutable || fmt.Sprint(old.Data, old.BinaryData) != fmt.Sprint(cm.Data,
			cm.BinaryData)) {
		problems = append(problems, field.Forbidden(field.NewPath("data"), "is immutable"))
	}
	if cm.DeletionTimestamp != nil && !cm.DeletionTimestamp.Equal(old.DeletionTimestamp) {
		problems = append(problems, field.Forbidden(field.NewPath("metadata", "deletionTimestamp"), "is immutable"))
	}
	if old.DeletionTimestamp != nil {
		isNew := func(finalizer string) bool { return !slices.Contains(old.Finalizers, finalizer) }
		if slices.ContainsFunc(cm.Finalizers, isNew) {
			problems = append(problems, field.Forbidden(field.NewPath("metadata", "finalizers"), "the object is being deleted"))
		}
	}
	if len(problems) > 0 {
		return invalid(cm, problems)
	}
	return nil
}

func validateAnnotations(cm *corev1.ConfigMap) field.ErrorList {
	return apivalidation.ValidateAnnotations(cm.Annotations, field.NewPath("metadata", "annotations"))
}

func invalid(cm *corev1.ConfigMap, problems field.ErrorList) error {
	kind := corev1.SchemeGroupVersion.WithKind("ConfigMap").GroupKind()
	return apierrors.NewInvalid(kind, cm.Name, problems)
}

// CoreV1 returns the client of the controller, whose requests have hooks.
func (s *Server) CoreV1() typedcorev1.CoreV1Interface { return core{server: s, hooks: &s.hooks} }

// Process returns a client with hooks, for a process of its own.
func (s *Server) Process() kubernetes.Interface { return s.process(&s.hooks) }

// Apart returns a client for a process that has these hooks instead of those of
// the server.
func (s *Server) Apart(hooks *atomic.Pointer[Hooks]) kubernetes.Interface { return s.process(hooks) }

func (s *Server) process(hooks *atomic.Pointer[Hooks]) kubernetes.Interface {
	return clientset{core: core{server: s, hooks: hooks, process: s.started.Add(1)}}
}

// Terminate begins to delete a namespace.
func (s *Server) Terminate(namespace string) {
	ns, err := s.Namespaces.Get(Key{Name: namespace})
	if err != nil || ns.DeletionTimestamp != nil {
		return
	}
	now := metav1.NewTime(time.Now().Truncate(time.Second))
	ns.DeletionTimestamp, ns.Status.Phase = &now, corev1.NamespaceTerminating
	s.Namespaces.Put(ns)
}

// Finalize deletes what is in a namespace that is being deleted, and then the namespace. It reports whether that is
// gone: objects with finalizers hold it up.
func (s *Server) Finalize(namespace string) (gone bool) {
	gone = true
	for _, cm := range s.ConfigMaps.All() {
		if cm.Namespace == namespace {
			_ = s.ConfigMaps.delete(KeyOf(cm), nil, Origin{}) // the controller may be faster
			_, err := s.ConfigMaps.Get(KeyOf(cm))
			gone = gone && err != nil
		}
	}
	return gone && s.Namespaces.delete(Key{Name: namespace}, nil, Origin{}) == nil
}

// Count returns how many such requests came.
func (s *Server) Count(verb, resource, namespace string) int {
	return s.Calls()[Call{verb, resource, namespace}]
}

// CountAll returns how many such requests for ConfigMaps came, of any of these verbs, in all namespaces with this
// prefix.
func (s *Server) CountAll(prefix string, verbs ...string) (n int) {
	for c, count := range s.Calls() {
		if c.Resource == "configmaps" && strings.HasPrefix(c.Namespace, prefix) && slices.Contains(verbs, c.Verb) {
			n += count
		}
	}
	return n
}

// Calls returns how often each request came.
func (s *Server) Calls() map[Call]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.calls)
}

// Hook changes the hooks, from now on.
func (s *Server) Hook(change func(*Hooks)) {
	h := *s.hooks.Load()
	change(&h)
	s.hooks.Store(&h)
}

// Stall has the watch of ConfigMaps lose everything in a namespace, from now on.
func (s *Server) Stall(namespace string) {
	s.Hook(func(h *Hooks) {
		h.Lost = func(resource, of string) bool { return resource == "configmaps" && of == namespace }
	})
}

// Relist lets the watch of ConfigMaps go on, and ends it with 410.
func (s *Server) Relist() {
	s.Hook(func(h *Hooks) { h.Lost = nil })
	s.ConfigMaps.Expire()
}

// Unsafe returns the requests that could have done harm: writes without preconditions, and two writes of one process
// to one object at a time; and those that could do no good: writes that change nothing.
func (s *Server) Unsafe() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.unsafe
}

// Read returns the ConfigMaps that were read where no write had failed before.
func (s *Server) Read() (all []Key) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for k, hadFailed := range s.read {
		if !hadFailed {
			all = append(all, k)
		}
	}
	return all
}

// note remembers a read, or a write that has failed.
func (s *Server) note(c Call, k Key, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case c.Resource != "configmaps":
	case c.Verb == "get":
		before, isKnown := s.read[k]
		s.read[k] = s.failed[k] && (before || !isKnown)
	case c.IsWrite() && err != nil:
		s.failed[k] = true
	}
}

func (s *Server) isUnsafe(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unsafe = append(s.unsafe, fmt.Sprintf(format, args...))
}

func (s *Server) called(c Call) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls[c]++
}

// writeOf is a write of one process to one object.
type writeOf struct {
	process int32
	to      Key
}

// write begins a write that has hooks, and notices two writes of a process to one object at the same time.
func (s *Server) write(w writeOf) (end func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.inFlight[w] {
		s.unsafe = append(s.unsafe, "two writes in flight to "+w.to.String())
	}
	s.inFlight[w] = true
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.inFlight, w)
	}
}
