package apitest

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// Key is the namespace and the name of an object.
type Key = types.NamespacedName

// Object is a pointer to an API type.
type Object[T any] interface {
	runtime.Object
	metav1.Object
	DeepCopy() T
}

// Store holds the objects of one resource. It checks resourceVersions, UIDs and preconditions, and keeps objects with
// finalizers until those are gone. It remembers every change.
type Store[T Object[T]] struct {
	resource schema.GroupResource
	// admit refuses an object before it is stored. op is create or update, and old is the object before an update.
	admit func(op string, old, new T) error
	clock *atomic.Int64 // the order of the changes in all stores

	mu      sync.Mutex
	version int64
	objects map[Key]T
	changes []Change[T]
	grown   chan struct{}      // closed at the next change
	broken  chan struct{}      // closed when all watches end
	expired bool               // they end with 410
	empty   T                  // for bookmarks
	rests   map[string]rest[T] // by continue token

	forgotten int // how many changes there were before the first of changes
}

// Change is one change of a store. Old is nil after a create, and New after a deletion. Nobody may modify them.
type Change[T Object[T]] struct {
	Order    int64 // among the changes in all stores of the server
	At       time.Time
	Old, New *T
	By       Origin

	version int64
}

// Key returns the key of what has changed.
func (c Change[T]) Key() Key {
	if c.New != nil {
		return KeyOf(*c.New)
	}
	return KeyOf(*c.Old)
}

// Origin says who made a change.
type Origin struct {
	Controller bool // the request had hooks
	Altered    bool // a webhook changed what was sent
}

// rest is what is left of a list behind a page. All pages show the same moment.
type rest[T any] struct {
	objects []T
	version string
}

func newStore[T Object[T]](clock *atomic.Int64, resource string, empty T,
	admit func(op string, old, new T) error) *Store[T] {
	return &Store[T]{
		resource: schema.GroupResource{Resource: resource}, admit: admit, clock: clock,
		version: 1000, objects: map[Key]T{}, grown: make(chan struct{}), broken: make(chan struct{}), empty: empty,
		rests: map[string]rest[T]{},
	}
}

// KeyOf returns the key of an object.
func KeyOf(o metav1.Object) Key { return Key{Namespace: o.GetNamespace(), Name: o.GetName()} }

// put stores an object. The mutex is held.
func (s *Store[T]) put(o T, by Origin) T {
	s.version++
	o.SetResourceVersion(strconv.FormatInt(s.version, 10))
	c := Change[T]{version: s.version, New: &o, By: by}
	if old, ok := s.objects[KeyOf(o)]; ok {
		c.Old = &old
	}
	s.objects[KeyOf(o)] = o
	s.happened(c)
	return o.DeepCopy()
}

func (s *Store[T]) remove(o T, by Origin) {
	s.version++
	delete(s.objects, KeyOf(o))
	s.happened(Change[T]{version: s.version, Old: &o, By: by})
}

func (s *Store[T]) happened(c Change[T]) {
	c.At, c.Order = time.Now(), s.clock.Add(1)
	s.changes = append(s.changes, c)
	close(s.grown)
	s.grown = make(chan struct{})
}

func (s *Store[T]) create(o T, by Origin) (none T, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o = o.DeepCopy()
	if err := s.admit("create", none, o); err != nil {
		return none, err
	}
	if _, ok := s.objects[KeyOf(o)]; ok {
		return none, apierrors.NewAlreadyExists(s.resource, o.GetName())
	}
	o.SetUID(types.UID("uid-" + strconv.FormatInt(s.clock.Load(), 10))) // also after a restore
	o.SetCreationTimestamp(metav1.NewTime(time.Now().Truncate(time.Second)))
	return s.put(o, by), nil
}

func (s *Store[T]) update(o T, by Origin) (none T, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	old, ok := s.objects[KeyOf(o)]
	switch rv := o.GetResourceVersion(); {
	case !ok:
		return none, apierrors.NewNotFound(s.resource, o.GetName())
	case o.GetUID() != "" && o.GetUID() != old.GetUID(), rv != "" && rv != old.GetResourceVersion():
		return none, apierrors.NewConflict(s.resource, o.GetName(), fmt.Errorf("the object is another one"))
	}
	o = o.DeepCopy()
	if err := s.admit("update", old, o); err != nil {
		return none, err
	}
	o.SetUID(old.GetUID())
	o.SetCreationTimestamp(old.GetCreationTimestamp())
	o.SetDeletionTimestamp(old.GetDeletionTimestamp())
	o.SetResourceVersion(old.GetResourceVersion())
	if equality.Semantic.DeepEqual(o, old) {
		return o, nil
	}
	if o.GetDeletionTimestamp() != nil && len(old.GetFinalizers()) > 0 && len(o.GetFinalizers()) == 0 {
		s.remove(old, by) // watches show it as it was before the last finalizer went
		return o, nil
	}
	return s.put(o, by), nil
}

func (s *Store[T]) delete(k Key, p *metav1.Preconditions, by Origin) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	old, ok := s.objects[k]
	switch {
	case !ok:
		return apierrors.NewNotFound(s.resource, k.Name)
	case p != nil && (p.UID != nil && *p.UID != old.GetUID() || p.ResourceVersion != nil &&
		*p.ResourceVersion != old.GetResourceVersion()):
		return apierrors.NewConflict(s.resource, k.Name, fmt.Errorf("precondition failed"))
	case len(old.GetFinalizers()) == 0:
		s.remove(old, by)
	case old.GetDeletionTimestamp() == nil:
		o, now := old.DeepCopy(), metav1.NewTime(time.Now().Truncate(time.Second))
		o.SetDeletionTimestamp(&now)
		s.put(o, by)
	}
	return nil
}

// Put stores an object as it is. It is for what no request can do.
func (s *Store[T]) Put(o T) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.put(o.DeepCopy(), Origin{})
}

// Get returns an object.
func (s *Store[T]) Get(k Key) (T, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o, ok := s.objects[k]
	if !ok {
		return o, apierrors.NewNotFound(s.resource, k.Name)
	}
	return o.DeepCopy(), nil
}

// All returns all objects as they are stored. Nobody may modify them.
func (s *Store[T]) All() []T {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Values(s.objects))
}

// list returns a page of the objects that the selector matches, all of them without a limit.
func (s *Store[T]) list(selector labels.Selector, o metav1.ListOptions) (page []T, list metav1.ListMeta) {
	s.mu.Lock()
	defer s.mu.Unlock()
	left, goesOn := s.rests[o.Continue]
	if !goesOn {
		left.version = strconv.FormatInt(s.version, 10)
		for _, o := range s.objects {
			if selector.Matches(labels.Set(o.GetLabels())) {
				left.objects = append(left.objects, o)
			}
		}
	}
	list.ResourceVersion = left.version
	if n := int(o.Limit); n > 0 && n < len(left.objects) {
		list.Continue = strconv.Itoa(len(s.rests) + 1)
		s.rests[list.Continue] = rest[T]{left.objects[n:], left.version}
		left.objects = left.objects[:n]
	}
	for _, o := range left.objects {
		page = append(page, o.DeepCopy())
	}
	return page, list
}

// Changes returns every change since the server was made, or since the last
// Forget, in order.
func (s *Store[T]) Changes() []Change[T] {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.changes[:len(s.changes):len(s.changes)]
}

// Forget forgets all changes, so that a test can measure memory. Call it when all
// watches have shown them. No watch can begin before them then, and Restore does
// not know them.
func (s *Store[T]) Forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forgotten += len(s.changes)
	s.changes = nil
}

// Expire ends all watches with 410: their clients list again.
func (s *Store[T]) Expire() { s.end(true) }

// Break ends all watches as a broken connection does: their clients watch from where they were.
func (s *Store[T]) Break() { s.end(false) }

func (s *Store[T]) end(expired bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.broken)
	s.broken, s.expired = make(chan struct{}), expired
}

// Rewind sets the resourceVersion back, as a restore of etcd does.
func (s *Store[T]) Rewind(version int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version = version
}

// Restore sets the store back to what it held at a time, with the resourceVersions of then, as a restore of etcd from a
// backup does, and ends all watches with 410. Versions that were given since then come again.
func (s *Store[T]) Restore(at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	was := map[Key]T{}
	for _, c := range s.changes {
		if c.At.After(at) {
			break
		}
		s.version = c.version
		delete(was, c.Key())
		if c.New != nil {
			was[c.Key()] = *c.New
		}
	}
	for k, old := range s.objects {
		o, stays := was[k]
		switch {
		case !stays:
			s.happened(Change[T]{version: s.version, Old: &old})
		case old.GetResourceVersion() != o.GetResourceVersion() || old.GetUID() != o.GetUID():
			s.happened(Change[T]{version: s.version, Old: &old, New: &o})
		}
	}
	for k, o := range was {
		if _, there := s.objects[k]; !there {
			s.happened(Change[T]{version: s.version, New: &o})
		}
	}
	s.objects = was
	close(s.broken)
	s.broken, s.expired = make(chan struct{}), true
}
