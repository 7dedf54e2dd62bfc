package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"

	"github.com/mirror-controller/mirror-controller/e2e/storm/model"
)

// transition is the step of one ConfigMap from one state to the next. before is nil where it appeared, after where it
// went. They are without payload.
type transition struct {
	key           model.Key
	before, after *corev1.ConfigMap
	// gap is set if there may have been states between these that nobody saw.
	gap bool
}

// appeared reports whether there was nothing before.
func (t transition) appeared() bool { return t.before == nil }

// ended reports whether the object was deleted, be it that a finalizer holds it.
func (t transition) ended() bool {
	return t.before != nil && (t.after == nil || t.after.DeletionTimestamp != nil && t.before.DeletionTimestamp == nil)
}

// isSource reports whether the object was a source before or after.
func (t transition) isSource() bool {
	return t.before != nil && source(t.before) || t.after != nil && source(t.after)
}

// history is what a watch from outside shows of all ConfigMaps: every state, in order. An informer shows only the
// last ones; of who was written to even for a moment, each counts.
type history struct {
	client kubernetes.Interface

	mu      sync.Mutex
	changed chan struct{} // closed and replaced at each change
	now     map[model.Key]*corev1.ConfigMap
	seen    string // resourceVersion
	round   []transition
	last    map[model.Key]time.Time // when something happened there last
	// By UID: what an object has been. An object that is gone is forgotten.
	lostLabel, pristine map[types.UID]bool
}

func newHistory(client kubernetes.Interface) *history {
	return &history{
		client: client, changed: make(chan struct{}), now: map[model.Key]*corev1.ConfigMap{},
		last: map[model.Key]time.Time{}, lostLabel: map[types.UID]bool{}, pristine: map[types.UID]bool{},
	}
}

// historyRetry is the time between two tries to watch, while there is no API server.
const historyRetry = 100 * time.Millisecond

// follow watches until ctx ends.
func (h *history) follow(ctx context.Context) {
	for ctx.Err() == nil {
		var err error
		if h.seen == "" {
			err = h.list(ctx)
		} else {
			err = h.watch(ctx)
		}
		if apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
			h.mu.Lock()
			h.seen = ""
			h.mu.Unlock()
		} else if err != nil {
			_ = sleep(ctx, historyRetry)
		}
	}
}

// list takes in what is there, with what came to pass since the last watch as a gap.
func (h *history) list(ctx context.Context) error {
	list, err := h.client.CoreV1().ConfigMaps("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	there := map[model.Key]bool{}
	for i := range list.Items {
		cm := &list.Items[i]
		there[model.KeyOf(cm)] = true
		h.take(model.KeyOf(cm), cm, true)
	}
	for key := range h.now {
		if !there[key] {
			h.take(key, nil, true)
		}
	}
	h.advance(list.ResourceVersion)
	return nil
}

func (h *history) watch(ctx context.Context) error {
	w, err := h.client.CoreV1().ConfigMaps("").Watch(ctx, metav1.ListOptions{ResourceVersion: h.seen, AllowWatchBookmarks: true})
	if err != nil {
		return err
	}
	defer w.Stop()
	for e := range w.ResultChan() {
		cm, ok := e.Object.(*corev1.ConfigMap)
		if !ok {
			return apierrors.FromObject(e.Object)
		}
		h.mu.Lock()
		switch e.Type {
		case watch.Added, watch.Modified:
			h.take(model.KeyOf(cm), cm, false)
		case watch.Deleted:
			h.take(model.KeyOf(cm), nil, false)
		}
		h.advance(cm.ResourceVersion)
		h.mu.Unlock()
	}
	return errors.New("the watch has ended")
}

// advance notes how far the history goes. The mutex is held.
func (h *history) advance(rv string) {
	h.seen = rv
	close(h.changed)
	h.changed = make(chan struct{})
}

// take takes in the next state of a ConfigMap. The mutex is held.
func (h *history) take(key model.Key, cm *corev1.ConfigMap, gap bool) {
	before := h.now[key]
	switch {
	case before == nil && cm == nil, before != nil && cm != nil && stateOf(before) == stateOf(cm):
		return
	case before != nil && cm != nil && before.UID != cm.UID:
		h.take(key, nil, gap)
		before = nil
	}
	h.last[key] = time.Now()
	if cm == nil {
		delete(h.now, key)
		delete(h.lostLabel, before.UID)
		delete(h.pristine, before.UID)
		h.round = append(h.round, transition{key, before, nil, gap})
		return
	}
	cm = cm.DeepCopy()
	cm.Data, cm.BinaryData, cm.ManagedFields = nil, nil, slices.Clone(cm.ManagedFields[:min(1, len(cm.ManagedFields))])
	h.now[key] = cm
	h.describe(before, cm)
	h.round = append(h.round, transition{key, before, cm, gap})
}

// describe takes down what the object has been.
func (h *history) describe(before, cm *corev1.ConfigMap) {
	if before == nil {
		h.pristine[cm.UID] = madeBy(cm, model.Controller)
	}
	switch {
	case !ours(cm):
		delete(h.pristine, cm.UID)
		delete(h.lostLabel, cm.UID)
	case model.Labelled(cm):
		delete(h.lostLabel, cm.UID)
	case before != nil && ours(before) && model.Labelled(before):
		h.lostLabel[cm.UID] = true
	}
}

// await waits until the history goes as far as the ConfigMap.
func (h *history) await(ctx context.Context, cm *corev1.ConfigMap) error {
	for {
		h.mu.Lock()
		order, err := resourceversion.CompareResourceVersion(h.seen, cm.ResourceVersion)
		changed, seen := h.changed, h.seen
		h.mu.Unlock()
		if err == nil && order >= 0 {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("the watch of the history is at %s, not at %s: %w", seen, cm.ResourceVersion, ctx.Err())
		}
	}
}

// takeRound returns what happened since it was called last.
func (h *history) takeRound() []transition {
	h.mu.Lock()
	defer h.mu.Unlock()
	out := h.round
	h.round = nil
	return out
}

// lastAt returns when something happened to a ConfigMap last.
func (h *history) lastAt(key model.Key) time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.last[key]
}

func (h *history) has(facts map[types.UID]bool) func(types.UID) bool {
	return func(uid types.UID) bool {
		h.mu.Lock()
		defer h.mu.Unlock()
		return facts[uid]
	}
}

// present returns what is there now, without payload.
func (h *history) present() map[model.Key]*corev1.ConfigMap {
	h.mu.Lock()
	defer h.mu.Unlock()
	return maps.Clone(h.now)
}

// madeBy reports whether a new object was made by somebody of that name in the managed fields.
func madeBy(cm *corev1.ConfigMap, manager string) bool {
	return len(cm.ManagedFields) == 1 && cm.ManagedFields[0].Manager == manager
}
