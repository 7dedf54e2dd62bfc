package mirror

// What an API server keeps of one resource: it refuses what a real one refuses, and watches see every change in order.

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
)

// object is a pointer to an API type.
type object[T any] interface {
	runtime.Object
	metav1.Object
	DeepCopy() T
}

// store holds the objects of one resource. It checks resourceVersions, UIDs and preconditions, and keeps objects with
// finalizers until those are gone.
type store[T object[T]] struct {
	resource schema.GroupResource
	admit    func(op string, old, new T) error

	mu      sync.Mutex
	version int64
	objects map[key]T
	changes []change[T]
	grown   chan struct{} // closed at the next change
	expired chan struct{} // closed when all watches end with 410
	empty   T             // for bookmarks
}

// change is one event. old is the object before it; there is none after a create, and no new one after a deletion.
type change[T any] struct {
	version  int64
	at       time.Time
	old, new *T
}

func newStore[T object[T]](resource string, empty T, admit func(op string, old, new T) error) *store[T] {
	return &store[T]{
		resource: schema.GroupResource{Resource: resource}, admit: admit, version: 1000, objects: map[key]T{},
		grown: make(chan struct{}), expired: make(chan struct{}), empty: empty,
	}
}

func keyOf(o metav1.Object) key { return key{Namespace: o.GetNamespace(), Name: o.GetName()} }

// put stores an object. The mutex is held.
func (s *store[T]) put(o T) T {
	s.version++
	o.SetResourceVersion(strconv.FormatInt(s.version, 10))
	c := change[T]{version: s.version, new: &o}
	if old, ok := s.objects[keyOf(o)]; ok {
		c.old = &old
	}
	s.objects[keyOf(o)] = o
	s.happened(c)
	return o.DeepCopy()
}

func (s *store[T]) remove(o T) {
	s.version++
	delete(s.objects, keyOf(o))
	s.happened(change[T]{version: s.version, old: &o})
}

func (s *store[T]) happened(c change[T]) {
	c.at = time.Now()
	s.changes = append(s.changes, c)
	close(s.grown)
	s.grown = make(chan struct{})
}

func (s *store[T]) create(o T) (none T, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.objects[keyOf(o)]; ok {
		return none, apierrors.NewAlreadyExists(s.resource, o.GetName())
	}
	o = o.DeepCopy()
	if err := s.admit("create", none, o); err != nil {
		return none, err
	}
	o.SetUID(types.UID("uid-" + strconv.FormatInt(s.version, 10)))
	o.SetCreationTimestamp(metav1.Now())
	return s.put(o), nil
}

func (s *store[T]) update(o T) (none T, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	old, ok := s.objects[keyOf(o)]
	switch rv := o.GetResourceVersion(); {
	case !ok:
		return none, apierrors.NewNotFound(s.resource, o.GetName())
	case rv != "" && rv != old.GetResourceVersion(), o.GetUID() != "" && o.GetUID() != old.GetUID():
		return none, apierrors.NewConflict(s.resource, o.GetName(), fmt.Errorf("%s is not %s", rv, old.GetResourceVersion()))
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
	stored := s.put(o)
	if o.GetDeletionTimestamp() != nil && len(o.GetFinalizers()) == 0 {
		s.remove(o)
	}
	return stored, nil
}

func (s *store[T]) delete(k key, p *metav1.Preconditions) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	old, ok := s.objects[k]
	switch {
	case !ok:
		return apierrors.NewNotFound(s.resource, k.Name)
	case p != nil && (p.UID != nil && *p.UID != old.GetUID() || p.ResourceVersion != nil && *p.ResourceVersion != old.GetResourceVersion()):
		return apierrors.NewConflict(s.resource, k.Name, fmt.Errorf("precondition failed"))
	case len(old.GetFinalizers()) == 0:
		s.remove(old)
	case old.GetDeletionTimestamp() == nil:
		o, now := old.DeepCopy(), metav1.Now()
		o.SetDeletionTimestamp(&now)
		s.put(o)
	}
	return nil
}

func (s *store[T]) get(k key) (T, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o, ok := s.objects[k]
	if !ok {
		return o, apierrors.NewNotFound(s.resource, k.Name)
	}
	return o.DeepCopy(), nil
}

// list returns the objects that the selector matches, and the resourceVersion of the list.
func (s *store[T]) list(selector labels.Selector) (found []T, version string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, o := range s.objects {
		if selector.Matches(labels.Set(o.GetLabels())) {
			found = append(found, o.DeepCopy())
		}
	}
	return found, strconv.FormatInt(s.version, 10)
}

// expire ends all watches with 410.
func (s *store[T]) expire() {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.expired)
	s.expired = make(chan struct{})
}

// rewind sets the resourceVersion back, as a restore of etcd does.
func (s *store[T]) rewind(version int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version = version
}

// stream is one watch.
type stream struct {
	events chan watch.Event
	ctx    context.Context
	stop   context.CancelFunc
}

func (w *stream) ResultChan() <-chan watch.Event { return w.events }
func (w *stream) Stop()                          { w.stop() }

// watch streams changes as a watch with a selector shows them: an object that it no longer matches is deleted there, and
// shown as it was before. lost says which changes it loses, as a broken watch does, and lag how long after it happened it shows
// one.
func (s *store[T]) watch(ctx context.Context, o metav1.ListOptions, lost func(T) bool, lag func() time.Duration) (watch.Interface, error) {
	selector, err := labels.Parse(o.LabelSelector)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	w := &stream{events: make(chan watch.Event)}
	w.ctx, w.stop = context.WithCancel(ctx)
	next := len(s.changes)
	var initial []watch.Event
	switch {
	case o.SendInitialEvents != nil && *o.SendInitialEvents:
		for _, obj := range s.objects {
			if selector.Matches(labels.Set(obj.GetLabels())) {
				initial = append(initial, watch.Event{Type: watch.Added, Object: obj.DeepCopy()})
			}
		}
		bookmark := s.empty.DeepCopy()
		bookmark.SetResourceVersion(strconv.FormatInt(s.version, 10))
		bookmark.SetAnnotations(map[string]string{metav1.InitialEventsAnnotationKey: "true"})
		initial = append(initial, watch.Event{Type: watch.Bookmark, Object: bookmark})
	default:
		for next > 0 && s.changes[next-1].version > number(o.ResourceVersion) {
			next--
		}
	}
	go s.stream(w, initial, next, s.expired, func(c change[T]) (watch.Event, bool) {
		time.Sleep(time.Until(c.at.Add(lag())))
		e, shows := shown(selector, c)
		return e, shows && !lost(e.Object.(T))
	})
	return w, nil
}

func number(version string) int64 {
	n, _ := strconv.ParseInt(version, 10, 64)
	return n
}

func shown[T object[T]](selector labels.Selector, c change[T]) (e watch.Event, shows bool) {
	matches := func(o *T) bool { return o != nil && selector.Matches(labels.Set((*o).GetLabels())) }
	switch {
	case matches(c.new) && matches(c.old):
		return watch.Event{Type: watch.Modified, Object: (*c.new).DeepCopy()}, true
	case matches(c.new):
		return watch.Event{Type: watch.Added, Object: (*c.new).DeepCopy()}, true
	case matches(c.old):
		gone := (*c.old).DeepCopy()
		gone.SetResourceVersion(strconv.FormatInt(c.version, 10))
		return watch.Event{Type: watch.Deleted, Object: gone}, true
	}
	return e, false
}

func (s *store[T]) stream(w *stream, initial []watch.Event, next int, expired chan struct{}, show func(change[T]) (watch.Event, bool)) {
	defer close(w.events)
	send := func(e watch.Event) {
		select {
		case w.events <- e:
		case <-w.ctx.Done():
		}
	}
	for _, e := range initial {
		send(e)
	}
	for {
		s.mu.Lock()
		changes, grown := s.changes[next:], s.grown
		s.mu.Unlock()
		for _, c := range changes {
			if e, shows := show(c); shows {
				send(e)
			}
		}
		next += len(changes)
		select {
		case <-w.ctx.Done():
			return
		case <-expired:
			send(watch.Event{Type: watch.Error, Object: &metav1.Status{Status: metav1.StatusFailure, Code: 410, Reason: metav1.StatusReasonExpired}})
			return
		case <-grown:
		}
	}
}
