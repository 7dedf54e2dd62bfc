package main

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

const (
	// mirrorSelector is the selector of the controller's watch.
	mirrorSelector = plan.DefaultLabel + " in (" + plan.SourceValue + "," + plan.CopyValue + ")"
	// plainSelector is its like for what the plain program writes.
	plainSelector = plainLabel + " in (" + plan.SourceValue + "," + plan.CopyValue + ")"
	// everything selects all ConfigMaps.
	everything = ""
)

// watcher is a watch on the ConfigMaps of all namespaces, from outside. It notes when what is expected is shown.
type watcher struct {
	stop context.CancelFunc

	mu      sync.Mutex
	waiting map[*expectation]bool
	failed  chan struct{} // closed when the watch cannot go on
	err     error
}

// watch begins a watch at what is there now. It shares no connection with what sets the scene.
func (b *bench) watch(ctx context.Context, selector string) (*watcher, error) {
	maps := b.watching.CoreV1().ConfigMaps(metav1.NamespaceAll)
	list, err := maps.List(ctx, metav1.ListOptions{LabelSelector: selector, Limit: 1})
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(ctx)
	w := &watcher{stop: stop, waiting: map[*expectation]bool{}, failed: make(chan struct{})}
	options := metav1.ListOptions{LabelSelector: selector, ResourceVersion: list.ResourceVersion, AllowWatchBookmarks: true}
	first, err := maps.Watch(ctx, options)
	if err != nil {
		stop()
		return nil, err
	}
	go func() {
		defer close(w.failed)
		w.err = w.follow(ctx, first, options, maps.Watch)
	}()
	return w, nil
}

// begin begins a watch.
type begin func(context.Context, metav1.ListOptions) (watch.Interface, error)

// follow reads events, from one watch after the other, each from where the one before ended: under load the API server ends
// those that do not keep up.
func (w *watcher) follow(ctx context.Context, events watch.Interface, from metav1.ListOptions, again begin) error {
	for {
		for e := range events.ResultChan() {
			now := time.Now()
			cm, ok := e.Object.(*corev1.ConfigMap)
			if !ok || e.Type == watch.Error {
				return fmt.Errorf("the outside watch: %w", apierrors.FromObject(e.Object))
			}
			from.ResourceVersion = cm.ResourceVersion
			if e.Type != watch.Bookmark {
				w.show(now, e.Type, cm)
			}
		}
		var err error
		if events, err = again(ctx, from); err != nil || ctx.Err() != nil {
			return fmt.Errorf("the outside watch: %w", err)
		}
	}
}

// show tells all who wait of an event.
func (w *watcher) show(now time.Time, event watch.EventType, cm *corev1.ConfigMap) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for x := range w.waiting {
		if x.see(now, event, cm) {
			delete(w.waiting, x)
		}
	}
}

// matcher reports whether an event is one that is looked for.
type matcher func(watch.EventType, *corev1.ConfigMap) bool

// expectation is a number of different objects that events are expected of.
type expectation struct {
	watcher *watcher
	match   matcher
	n       int
	seen    map[cache.ObjectName]bool
	at      time.Time // when the last was seen
	done    chan struct{}
}

// expect begins to look for events of n different objects for which match holds.
func (w *watcher) expect(n int, match matcher) *expectation {
	x := &expectation{watcher: w, match: match, n: n, seen: make(map[cache.ObjectName]bool, n), done: make(chan struct{})}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.waiting[x] = true
	return x
}

// see reports whether the event was the last that was expected.
func (x *expectation) see(now time.Time, event watch.EventType, cm *corev1.ConfigMap) bool {
	if !x.match(event, cm) {
		return false
	}
	x.seen[cache.MetaObjectToName(cm)] = true
	if len(x.seen) < x.n {
		return false
	}
	x.at = now
	close(x.done)
	return true
}

// wait returns when the last of the events was shown. It fails when none is for a time of patience.
func (x *expectation) wait(ctx context.Context) (time.Time, error) {
	timeout := time.NewTimer(patience)
	defer timeout.Stop()
	for seen := 0; ; {
		select {
		case <-x.done:
			return x.at, nil
		case <-x.watcher.failed:
			return time.Time{}, x.watcher.err
		case <-ctx.Done():
			return time.Time{}, ctx.Err()
		case <-timeout.C:
		}
		now := x.count()
		if now == seen {
			return time.Time{}, fmt.Errorf("the outside watch has shown %d of %d, and nothing more in %s", seen, x.n, patience)
		}
		seen = now
		timeout.Reset(patience)
	}
}

// count returns how many of the objects were seen so far.
func (x *expectation) count() int {
	x.watcher.mu.Lock()
	defer x.watcher.mu.Unlock()
	return len(x.seen)
}

// timed returns how long it takes from just before act until the watch has shown what is expected.
func (w *watcher) timed(ctx context.Context, n int, match matcher, act func() error) (time.Duration, error) {
	x := w.expect(n, match)
	start := time.Now()
	if err := act(); err != nil {
		return 0, err
	}
	at, err := x.wait(ctx)
	return at.Sub(start), err
}

// holds looks for copies of the name (empty: of any), whose data begins with the version.
func holds(name, version string) matcher {
	return func(event watch.EventType, cm *corev1.ConfigMap) bool {
		return event != watch.Deleted && isCopyOf(name, cm) && strings.HasPrefix(cm.Data[dataKey], version)
	}
}

// gone looks for copies of the name that disappear.
func gone(name string) matcher {
	return func(event watch.EventType, cm *corev1.ConfigMap) bool {
		return event == watch.Deleted && isCopyOf(name, cm)
	}
}

func isCopyOf(name string, cm *corev1.ConfigMap) bool {
	return cm.Namespace != home && (name == "" || cm.Name == name)
}

// in narrows what is looked for to one namespace.
func in(namespace string, match matcher) matcher {
	return func(event watch.EventType, cm *corev1.ConfigMap) bool {
		return cm.Namespace == namespace && match(event, cm)
	}
}

// inPool narrows what is looked for to the namespaces of the pool.
func inPool(match matcher) matcher {
	return func(event watch.EventType, cm *corev1.ConfigMap) bool {
		return strings.HasPrefix(cm.Namespace, poolPrefix) && match(event, cm)
	}
}

// objectName is the key of an object.
func objectName(namespace, name string) cache.ObjectName {
	return cache.ObjectName{Namespace: namespace, Name: name}
}
