package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/mirror-controller/mirror-controller/e2e/storm/model"
)

// transition is the step of one ConfigMap from one state to the next. before is nil where it appeared, after where it
// went. They have the digest of their payload in its place.
type transition struct {
	key           model.Key
	before, after *corev1.ConfigMap
	rv            string    // of the write that made it
	seen          time.Time // when we were told of it
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

// The resources of which there is a history.
const (
	ofConfigMaps = "configmaps"
	ofNamespaces = "namespaces"
)

// history is what watches from outside show of all ConfigMaps and namespaces: every state, in order. Of who was
// written to even for a moment, each counts.
type history struct {
	mu      sync.Mutex
	changed chan struct{} // closed and replaced at each change
	seen    map[string]string
	round   []transition

	configMaps map[model.Key]record[corev1.ConfigMap]
	namespaces map[string]record[corev1.Namespace]
	// By UID: what an object has been. An object that is gone is forgotten.
	pristine map[types.UID]bool
	// By key: the last object there was immutable, and not pristine. Its successor has its metadata.
	worn map[model.Key]bool
}

func newHistory() *history {
	return &history{
		changed: make(chan struct{}), seen: map[string]string{},
		configMaps: map[model.Key]record[corev1.ConfigMap]{}, namespaces: map[string]record[corev1.Namespace]{},
		pristine: map[types.UID]bool{}, worn: map[model.Key]bool{},
	}
}

// follow watches until ctx ends.
func (h *history) follow(ctx context.Context, client kubernetes.Interface) {
	var following sync.WaitGroup
	configMaps, namespaces := client.CoreV1().ConfigMaps(""), client.CoreV1().Namespaces()
	for _, t := range []*tape{
		{
			list: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
				return configMaps.List(ctx, o)
			},
			watch: configMaps.Watch, take: h.takeConfigMap, reached: h.reached(ofConfigMaps),
			known: func() []model.Key { return slices.Collect(maps.Keys(h.present())) },
		},
		{
			list: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
				return namespaces.List(ctx, o)
			},
			watch: namespaces.Watch, take: h.takeNamespace, reached: h.reached(ofNamespaces), known: h.knownNamespaces,
		},
	} {
		following.Go(func() { t.follow(ctx) })
	}
	following.Wait()
}

// reached returns what notes how far the history of a resource goes.
func (h *history) reached(resource string) func(rv string) {
	return func(rv string) {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.seen[resource] = rv
		close(h.changed)
		h.changed = make(chan struct{})
	}
}

// takeConfigMap takes in the next state of a ConfigMap.
func (h *history) takeConfigMap(key model.Key, object metav1.Object, rv string, gap bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	cm, _ := object.(*corev1.ConfigMap)
	before := h.configMaps[key].last()
	if before != nil && cm != nil && before.UID != cm.UID {
		h.step(transition{key: key, before: before, rv: rv, gap: gap})
		before = nil
	}
	if before == nil && cm == nil || before != nil && cm != nil && stateOf(before) == stateOf(cm) {
		return
	}
	if cm != nil {
		cm = cm.DeepCopy()
		cm.Data, cm.BinaryData = map[string]string{digestKey: digest(cm)}, nil
		cm.ManagedFields = slices.Clone(cm.ManagedFields[:min(1, len(cm.ManagedFields))])
		h.describe(before, cm)
	}
	h.step(transition{key: key, before: before, after: cm, rv: rv, gap: gap})
}

// step takes down a transition. The mutex is held.
func (h *history) step(t transition) {
	t.seen = time.Now()
	if t.after == nil {
		h.worn[t.key] = immutable(t.before) && !h.pristine[t.before.UID]
		delete(h.pristine, t.before.UID)
	}
	h.configMaps[t.key] = h.configMaps[t.key].add(spell[corev1.ConfigMap]{t.after, t.rv, t.seen, t.gap})
	h.round = append(h.round, t)
}

// digestKey is where a ConfigMap of the history has the digest of its payload.
const digestKey = ""

// digest returns what is the same for equal payloads and differs for others.
func digest(cm *corev1.ConfigMap) string {
	sum := sha256.New()
	fmt.Fprintf(sum, "%q %q", cm.Data, cm.BinaryData) // in the order of the keys
	return hex.EncodeToString(sum.Sum(nil))
}

// describe takes down what the object has been.
func (h *history) describe(before, cm *corev1.ConfigMap) {
	if before == nil {
		h.pristine[cm.UID] = madeBy(cm, model.Controller) && !h.worn[model.KeyOf(cm)]
	}
	if !ours(cm) {
		delete(h.pristine, cm.UID)
	}
}

// takeNamespace takes in the next state of a namespace.
func (h *history) takeNamespace(key model.Key, object metav1.Object, rv string, gap bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	ns, _ := object.(*corev1.Namespace)
	before := h.namespaces[key.Name].last()
	if before == nil && ns == nil || before != nil && ns != nil && sameToAll(before, ns) {
		return
	}
	h.namespaces[key.Name] = h.namespaces[key.Name].add(spell[corev1.Namespace]{ns, rv, time.Now(), gap})
}

// sameToAll reports whether a namespace is what it was before, as far as copies depend on it.
func sameToAll(before, ns *corev1.Namespace) bool {
	return before.UID == ns.UID && maps.Equal(before.Labels, ns.Labels) && model.Terminating(before) == model.Terminating(ns)
}

func (h *history) knownNamespaces() []model.Key {
	h.mu.Lock()
	defer h.mu.Unlock()
	var out []model.Key
	for name := range h.namespaces {
		out = append(out, model.Key{Name: name})
	}
	return out
}

// await waits until the history of a resource goes as far as the object.
func (h *history) await(ctx context.Context, resource string, object metav1.Object) error {
	for {
		h.mu.Lock()
		changed, seen := h.changed, h.seen[resource]
		h.mu.Unlock()
		if seen != "" && !later(object.GetResourceVersion(), seen) {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("the watch of the history of %s is at %s, not at %s: %w", resource, seen, object.GetResourceVersion(), ctx.Err())
		}
	}
}

// takeRound returns what happened since it was called last, and what there is now, without payload, at which time.
func (h *history) takeRound() (happened []transition, now map[model.Key]*corev1.ConfigMap, at time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	happened, h.round = h.round, nil
	return happened, h.there(), time.Now()
}

// forget forgets what had ended by then.
func (h *history) forget(then time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for key, r := range h.configMaps {
		if h.configMaps[key] = r.since(then); len(h.configMaps[key]) == 1 && h.configMaps[key].last() == nil && r[0].seen.Before(then) {
			delete(h.configMaps, key)
		}
	}
	for name, r := range h.namespaces {
		h.namespaces[name] = r.since(then)
	}
}

// of returns what a ConfigMap has been, from a time on.
func (h *history) of(key model.Key, from time.Time) record[corev1.ConfigMap] {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.configMaps[key].since(from)
}

// ofNamespace returns what a namespace has been, from a time on.
func (h *history) ofNamespace(name string, from time.Time) record[corev1.Namespace] {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.namespaces[name].since(from)
}

// named returns the keys of a name of which anything is known.
func (h *history) named(name string) []model.Key {
	h.mu.Lock()
	defer h.mu.Unlock()
	var out []model.Key
	for key := range h.configMaps {
		if key.Name == name {
			out = append(out, key)
		}
	}
	return out
}

// lastAt returns when something happened to a ConfigMap last.
func (h *history) lastAt(key model.Key) time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	if r := h.configMaps[key]; len(r) > 0 {
		return r[len(r)-1].seen
	}
	return time.Time{}
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
	return h.there()
}

// there is present. The mutex is held.
func (h *history) there() map[model.Key]*corev1.ConfigMap {
	out := map[model.Key]*corev1.ConfigMap{}
	for key, r := range h.configMaps {
		if cm := r.last(); cm != nil {
			out[key] = cm
		}
	}
	return out
}

// madeBy reports whether a new object was made by somebody of that name in the managed fields.
func madeBy(cm *corev1.ConfigMap, manager string) bool {
	return len(cm.ManagedFields) == 1 && cm.ManagedFields[0].Manager == manager
}
