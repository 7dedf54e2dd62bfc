package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/mirror-controller/mirror-controller/e2e/outside"
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
	ctx  context.Context // ends with a cause when the watch cannot go on
	stop func()

	mu      sync.Mutex
	waiting map[*expectation]bool
}

// watch begins a watch at what is there now. It shares no connection with what sets the scene.
func (b *bench) watch(selector string) *watcher {
	ctx, end := context.WithCancelCause(b.ctx)
	events := get(outside.Watch(ctx, b.watching, selector))
	w := &watcher{ctx: ctx, stop: func() { end(nil) }, waiting: map[*expectation]bool{}}
	go func() { end(fmt.Errorf("the outside watch: %w", w.follow(events))) }()
	return w
}

// follow tells all who wait of each event, until the watch cannot go on.
func (w *watcher) follow(events watch.Interface) error {
	for e := range events.ResultChan() {
		now := time.Now()
		cm, ok := e.Object.(*corev1.ConfigMap)
		if !ok {
			return apierrors.FromObject(e.Object)
		}
		w.mu.Lock()
		for x := range w.waiting {
			if x.see(e.Type, cm) {
				x.shown <- now
				delete(w.waiting, x)
			}
		}
		w.mu.Unlock()
	}
	return errors.New("it ended")
}

// matcher reports whether an event is one that is looked for.
type matcher func(watch.EventType, *corev1.ConfigMap) bool

// expectation is a number of different objects that events are expected of.
type expectation struct {
	watcher *watcher
	match   matcher
	n       int
	seen    map[cache.ObjectName]bool
	shown   chan time.Time // has the time when the last was seen
}

// expect begins to look for events of n different objects for which match holds.
func (w *watcher) expect(n int, match matcher) *expectation {
	x := &expectation{w, match, n, make(map[cache.ObjectName]bool, n), make(chan time.Time, 1)}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.waiting[x] = true
	return x
}

// see reports whether the event was the last that was expected.
func (x *expectation) see(event watch.EventType, cm *corev1.ConfigMap) bool {
	if x.match(event, cm) {
		x.seen[cache.MetaObjectToName(cm)] = true
	}
	return len(x.seen) == x.n
}

// slowest is what one of many copies may take before it counts as not happening: five times as long as usual.
const slowest = 5 * time.Millisecond

// wait returns when the last of the events was shown.
func (x *expectation) wait() (at time.Time) {
	select {
	case at = <-x.shown:
	case <-x.watcher.ctx.Done():
		check(context.Cause(x.watcher.ctx))
	case <-time.After(patience + time.Duration(x.n)*slowest):
		x.watcher.mu.Lock()
		defer x.watcher.mu.Unlock()
		check(fmt.Errorf("the outside watch has shown %d of %d", len(x.seen), x.n))
	}
	return at
}

// timed returns how long it takes from just before act until the watch has shown what is expected.
func (w *watcher) timed(n int, match matcher, act func()) time.Duration {
	x := w.expect(n, match)
	start := time.Now()
	act()
	return x.wait().Sub(start)
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

// in narrows what is looked for to the namespaces with a prefix.
func in(prefix string, match matcher) matcher {
	return func(event watch.EventType, cm *corev1.ConfigMap) bool {
		return strings.HasPrefix(cm.Namespace, prefix) && match(event, cm)
	}
}
