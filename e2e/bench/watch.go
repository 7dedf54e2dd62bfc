package main

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/watch"

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
	// slowest is what one of many copies may take before it counts as not happening: five times as long as usual.
	slowest = 5 * time.Millisecond
)

// watcher is a watch on the ConfigMaps of all namespaces, from outside.
type watcher struct{ watch.Interface }

// watch begins a watch at what is there now. It shares no connection with what sets the scene.
func (b *bench) watch(selector string) watcher {
	return watcher{get(outside.Watch(b.ctx, b.watching, selector))}
}

// matcher reports whether an event is one that is looked for.
type matcher func(watch.EventType, *corev1.ConfigMap) bool

// copies looks for copies of the name (empty: of any), in namespaces with the prefix, whose data begins with the
// version; without a version, for those that disappear.
func copies(prefix, name, version string) matcher {
	return func(event watch.EventType, cm *corev1.ConfigMap) bool {
		return cm.Namespace != home && strings.HasPrefix(cm.Namespace, prefix) && (name == "" || cm.Name == name) &&
			(event == watch.Deleted) == (version == "") && strings.HasPrefix(cm.Data[dataKey], version)
	}
}

// shown runs act and returns, for each matcher, when the watch has shown the last of n namespaces and names.
func (w watcher) shown(act func(), n int, matchers ...matcher) []time.Time {
	acted := make(chan error, 1)
	go func() { acted <- attempt(act) }()
	late := time.After(patience + time.Duration(n)*slowest)
	seen, last := sets.New[seenKey](), make([]time.Time, len(matchers))
	for running := true; running || seen.Len() < n*len(matchers); {
		select {
		case err := <-acted:
			check(err)
			running = false
		case e := <-w.ResultChan():
			now := time.Now()
			cm, ok := e.Object.(*corev1.ConfigMap)
			if !ok { // also of a watch that has ended
				check(fmt.Errorf("the outside watch: %w", apierrors.FromObject(e.Object)))
			}
			for i, matches := range matchers {
				key := seenKey{i, cm.Namespace, cm.Name}
				if matches(e.Type, cm) && !seen.Has(key) {
					seen.Insert(key)
					last[i] = now
				}
			}
		case <-late:
			check(fmt.Errorf("the outside watch has shown %d of %d", seen.Len(), n*len(matchers)))
		}
	}
	return last
}

// seenKey is a ConfigMap that was shown, and which matcher it is for.
type seenKey struct {
	matcher         int
	namespace, name string
}

// timed returns how long it takes from just before act until the watch has shown n namespaces and names.
func (w watcher) timed(n int, matches matcher, act func()) time.Duration {
	start := time.Now()
	return w.shown(act, n, matches)[0].Sub(start)
}
