package cache

import (
	"hash/maphash"
	"maps"
	"runtime"
	"sync"
	"weak"

	corev1 "k8s.io/api/core/v1"
)

// metadata are the labels and annotations that equal stripped objects share: all copies of a source that are in sync,
// for example. Nobody changes these maps.
type metadata struct {
	labels, annotations map[string]string
}

// shared finds the metadata that is in memory. Like package unique, it keeps none alive.
var shared = struct {
	seed maphash.Seed
	mu   sync.Mutex
	all  map[uint64]weak.Pointer[metadata] // by hash
}{seed: maphash.MakeSeed(), all: map[uint64]weak.Pointer[metadata]{}}

// share returns a copy of cm whose labels and annotations are those of every object with equal ones.
func share(cm *corev1.ConfigMap) *corev1.ConfigMap {
	m := sharedMetadata(cm.Labels, cm.Annotations)
	// The pointer beside the object keeps the metadata in memory as long as the object.
	holder := &struct {
		corev1.ConfigMap
		metadata *metadata
	}{*cm, m}
	holder.Labels, holder.Annotations = m.labels, m.annotations
	return &holder.ConfigMap
}

func sharedMetadata(labels, annotations map[string]string) *metadata {
	hash := maphash.Comparable(shared.seed, [2]uint64{hashOf(labels), hashOf(annotations)})
	shared.mu.Lock()
	defer shared.mu.Unlock()
	if m := shared.all[hash].Value(); m != nil && maps.Equal(m.labels, labels) && maps.Equal(m.annotations, annotations) {
		return m
	}
	m := &metadata{labels, annotations}
	shared.all[hash] = weak.Make(m)
	runtime.AddCleanup(m, forgetShared, hash)
	return m
}

// forgetShared removes metadata that is no longer in memory.
func forgetShared(hash uint64) {
	shared.mu.Lock()
	defer shared.mu.Unlock()
	if shared.all[hash].Value() == nil {
		delete(shared.all, hash)
	}
}

// hashOf returns a hash of m that does not depend on the order of its entries.
func hashOf(m map[string]string) (sum uint64) {
	for k, v := range m {
		sum += maphash.Comparable(shared.seed, [2]string{k, v})
	}
	return sum
}
