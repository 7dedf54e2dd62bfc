package main

// Every state of every ConfigMap and namespace, from etcd: no watch of an API server shows what happens while that is away.

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/mirror-controller/mirror-controller/e2e/cluster"
)

// state is what an object is from a revision on.
type state[T any] struct {
	revision int64
	object   T // nil: it is gone
}

// states are those of one object, in order.
type states[T any] []state[T]

// at returns the state at a revision.
func (s states[T]) at(revision int64) (object T) {
	for _, one := range s {
		if one.revision > revision {
			break
		}
		object = one.object
	}
	return object
}

// history is all that has been.
type history struct {
	mu         sync.Mutex
	changed    chan struct{} // closed and replaced at each change
	revision   int64         // the last one
	configMaps map[key]states[*corev1.ConfigMap]
	namespaces map[string]states[*corev1.Namespace]
	err        error // of the way to etcd
}

func newHistory() *history {
	return &history{
		changed:    make(chan struct{}),
		configMaps: map[key]states[*corev1.ConfigMap]{},
		namespaces: map[string]states[*corev1.Namespace]{},
	}
}

// follow takes in what etcd gets until ctx ends.
func (h *history) follow(ctx context.Context, c *cluster.Cluster) {
	err := c.Follow(ctx, "/registry/", h.take)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.err = err
	h.wake()
}

// take takes in a revision of etcd.
func (h *history) take(s cluster.Stored) {
	h.mu.Lock()
	defer h.mu.Unlock()
	parts := strings.Split(strings.TrimPrefix(s.Key, "/registry/"), "/")
	var err error
	switch {
	case parts[0] == "configmaps":
		var cm *corev1.ConfigMap
		if s.Value != nil {
			cm = &corev1.ConfigMap{}
			err = decode(s, cm)
		}
		h.addConfigMap(key{Namespace: parts[1], Name: parts[2]}, s.Revision, cm)
	case parts[0] == "namespaces":
		var ns *corev1.Namespace
		if s.Value != nil {
			ns = &corev1.Namespace{}
			err = decode(s, ns)
		}
		h.addNamespace(parts[1], s.Revision, ns)
	}
	if err != nil {
		h.err = err
	}
	h.revision = s.Revision
	h.wake()
}

func (h *history) addConfigMap(k key, revision int64, cm *corev1.ConfigMap) {
	h.configMaps[k] = append(h.configMaps[k], state[*corev1.ConfigMap]{revision, cm})
}

func (h *history) addNamespace(name string, revision int64, ns *corev1.Namespace) {
	h.namespaces[name] = append(h.namespaces[name], state[*corev1.Namespace]{revision, ns})
}

// decode reads an object as the API server stores it: it gets its resourceVersion only when it is read.
func decode[T interface {
	metav1.Object
	runtime.Object
}](s cluster.Stored, into T) error {
	if _, _, err := protobuf.NewSerializer(scheme.Scheme, scheme.Scheme).Decode(s.Value, nil, into); err != nil {
		return fmt.Errorf("%s in etcd: %w", s.Key, err)
	}
	into.SetResourceVersion(strconv.FormatInt(s.Revision, 10))
	return nil
}

// wake has everybody look again. The mutex is held.
func (h *history) wake() {
	close(h.changed)
	h.changed = make(chan struct{})
}

// eventually waits until the condition returns nil, and asks it again when something has changed.
func (h *history) eventually(ctx context.Context, condition func() error) error {
	timeout := time.NewTimer(patience)
	defer timeout.Stop()
	for {
		h.mu.Lock()
		changed, broken := h.changed, h.err
		h.mu.Unlock()
		err := condition()
		if err == nil || broken != nil {
			return broken
		}
		select {
		case <-changed:
		case <-timeout.C:
			return fmt.Errorf("not within %s: %w", patience, err)
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", context.Cause(ctx), err)
		}
	}
}

// now returns what there is, and its revision.
func (h *history) now() (world, int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	w := newWorld()
	for k, s := range h.configMaps {
		if cm := s.at(h.revision); cm != nil {
			w.ConfigMaps[k] = cm
		}
	}
	for name, s := range h.namespaces {
		if ns := s.at(h.revision); ns != nil {
			w.Namespaces[name] = ns
		}
	}
	return w, h.revision
}

// revisionsOf returns the revisions behind since, up to another one, at which something changed that decides about copies
// of a name in a namespace: a ConfigMap of the name, or the namespace. The first is since.
func (h *history) revisionsOf(at key, since, until int64) []int64 {
	out := []int64{since}
	add := func(revision int64) {
		if revision > since && revision <= until {
			out = append(out, revision)
		}
	}
	for k, list := range h.configMaps {
		for _, s := range list {
			if k.Name == at.Name {
				add(s.revision)
			}
		}
	}
	for _, s := range h.namespaces[at.Namespace] {
		add(s.revision)
	}
	slices.Sort(out)
	return out
}

// sourcesAt returns the sources of a name at a revision.
func (h *history) sourcesAt(name string, revision int64) (out []*corev1.ConfigMap) {
	for k, list := range h.configMaps {
		if cm := list.at(revision); k.Name == name && isSource(cm) {
			out = append(out, cm)
		}
	}
	return out
}
