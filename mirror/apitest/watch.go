package apitest

import (
	"context"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/watch"
)

// stream is one watch.
type stream[T Object[T]] struct {
	store    *Store[T]
	selector labels.Selector
	watchHooks[T]
	broken chan struct{}

	events chan watch.Event
	ctx    context.Context //nolint:containedctx // of the request: watch.Interface has none
	stop   context.CancelFunc
}

// watchHooks say how a stream differs from what it should be.
type watchHooks[T any] struct {
	lost     func(T) bool         // which changes it does not show, as a half-open connection does
	lag      func() time.Duration // how long after a change it shows it
	cut      time.Duration        // after which the stream ends, without the end of its list; 0: never
	bookmark time.Duration        // between two bookmarks; 0: none
}

func (w *stream[T]) ResultChan() <-chan watch.Event { return w.events }
func (w *stream[T]) Stop()                          { w.stop() }

// watch streams changes as a watch with a selector shows them: an object that it
// no longer matches is deleted there, and shown as it was before.
func (s *Store[T]) watch(
	ctx context.Context, o metav1.ListOptions, hooks watchHooks[T]) (watch.Interface, error) {
	selector, err := labels.Parse(o.LabelSelector)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	w := &stream[T]{
		store: s, selector: selector, watchHooks: hooks, broken: s.broken, events: make(chan watch.Event),
	}
	w.ctx, w.stop = context.WithCancel(ctx)
	next := s.forgotten + len(s.changes)
	var initial []watch.Event
	switch {
	case o.SendInitialEvents != nil && *o.SendInitialEvents:
		for _, obj := range s.objects {
			if selector.Matches(labels.Set(obj.GetLabels())) {
				initial = append(initial, watch.Event{Type: watch.Added, Object: obj.DeepCopy()})
			}
		}
		if hooks.cut == 0 {
			end := s.bookmark()
			end.SetAnnotations(map[string]string{metav1.InitialEventsAnnotationKey: "true"})
			initial = append(initial, watch.Event{Type: watch.Bookmark, Object: end})
		}
	default:
		w.cut = 0
		from := number(o.ResourceVersion)
		for next > s.forgotten && s.changes[next-1-s.forgotten].version > from {
			next--
		}
	}
	go w.run(initial, next)
	return w, nil
}

// bookmark returns the object of a bookmark. The mutex is held.
func (s *Store[T]) bookmark() T {
	o := s.empty.DeepCopy()
	o.SetResourceVersion(strconv.FormatInt(s.version, 10))
	return o
}

func number(version string) int64 {
	n, _ := strconv.ParseInt(version, 10, 64)
	return n
}

func (w *stream[T]) run(initial []watch.Event, next int) {
	defer close(w.events)
	for _, e := range initial {
		w.send(e)
	}
	var cut, mark <-chan time.Time
	if w.cut > 0 {
		cut = time.After(w.cut)
	}
	if w.watchHooks.bookmark > 0 {
		ticker := time.NewTicker(w.watchHooks.bookmark)
		defer ticker.Stop()
		mark = ticker.C
	}
	for {
		w.store.mu.Lock()
		changes, grown := w.store.changes[next-w.store.forgotten:], w.store.grown
		w.store.mu.Unlock()
		for _, c := range changes {
			if e, shows := shown(w.selector, c); shows && !w.lost(e.Object.(T)) && w.wait(c) {
				w.send(e)
			}
		}
		next += len(changes)
		select {
		case <-w.ctx.Done():
			return
		case <-w.broken:
			w.end()
			return
		case <-cut:
			return
		case <-mark:
			w.store.mu.Lock()
			o := w.store.bookmark()
			w.store.mu.Unlock()
			w.send(watch.Event{Type: watch.Bookmark, Object: o})
		case <-grown:
		}
	}
}

// wait waits until a change is to be shown, and reports whether the watch still goes on then.
func (w *stream[T]) wait(c Change[T]) bool {
	select {
	case <-time.After(time.Until(c.At.Add(w.lag()))):
	case <-w.ctx.Done():
	case <-w.broken:
	}
	select {
	case <-w.broken:
		return false
	default:
		return w.ctx.Err() == nil
	}
}

func (w *stream[T]) send(e watch.Event) {
	select {
	case w.events <- e:
	case <-w.ctx.Done():
	}
}

// end tells the client why the watch ends. A connection that breaks says nothing.
func (w *stream[T]) end() {
	w.store.mu.Lock()
	expired := w.store.expired
	w.store.mu.Unlock()
	if expired {
		w.send(watch.Event{Type: watch.Error, Object: &metav1.Status{Status: metav1.StatusFailure, Code: 410,
			Reason: metav1.StatusReasonExpired}})
	}
}

// shown returns the event by which a watch with this selector shows a change, if it does.
func shown[T Object[T]](selector labels.Selector, c Change[T]) (e watch.Event, shows bool) {
	matches := func(o *T) bool { return o != nil && selector.Matches(labels.Set((*o).GetLabels())) }
	switch {
	case matches(c.New) && matches(c.Old):
		return watch.Event{Type: watch.Modified, Object: (*c.New).DeepCopy()}, true
	case matches(c.New):
		return watch.Event{Type: watch.Added, Object: (*c.New).DeepCopy()}, true
	case matches(c.Old):
		gone := (*c.Old).DeepCopy()
		gone.SetResourceVersion(strconv.FormatInt(c.version, 10))
		return watch.Event{Type: watch.Deleted, Object: gone}, true
	}
	return e, false
}
