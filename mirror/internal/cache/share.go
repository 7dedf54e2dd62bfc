package cache

import (
	"hash/maphash"
	"maps"
	"runtime"
	"sync"
	"weak"

	corev1 "k8s.io/api/core/v1"
)

// metadata are the labels and annotations that equal stripped objects share: a
// thousand copies of a source in sync have one in memory, and not a thousand.
type metadata struct{ labels, annotations map[string]string }

// shared finds the metadata that is in memory. Like package unique, it keeps
// none alive.
var shared = struct {
	seed maphash.Seed
	mu   sync.Mutex
	all  map[uint64]weak.Pointer[metadata] // by hash
}{seed: maphash.MakeSeed(), all: map[uint64]weak.Pointer[metadata]{}}

// share returns a copy of cm whose labels and annotations are those of every
// object with equal ones.
func share(cm *corev1.ConfigMap) *corev1.ConfigMap {
	m := sharedMetadata(metadata{cm.Labels, cm.Annotations})
	holder := &struct {
		corev1.ConfigMap
		metadata *metadata // in memory as long as the object
	}{*cm, m}
	holder.Labels = m.labels
	holder.Annotations = m.annotations
	return &holder.ConfigMap
}

// sharedMetadata returns the metadata in memory that equals m.
func sharedMetadata(m metadata) *metadata {
	hash := m.hash()
	shared.mu.Lock()
	defer shared.mu.Unlock()
	known := shared.all[hash].Value()
	if known == nil || !maps.Equal(known.labels, m.labels) ||
		!maps.Equal(known.annotations, m.annotations) {
		known = &m
		shared.all[hash] = weak.Make(known)
		runtime.AddCleanup(known, forgetShared, hash)
	}
	return known
}

// hash returns a hash that does not depend on the order of the entries.
func (m metadata) hash() (sum uint64) {
	for k, v := range m.labels {
		sum += maphash.Comparable(shared.seed, [3]string{"label", k, v})
	}
	for k, v := range m.annotations {
		sum += maphash.Comparable(shared.seed, [3]string{"annotation", k, v})
	}
	return sum
}

// forgetShared removes metadata that is no longer in memory.
func forgetShared(hash uint64) {
	shared.mu.Lock()
	defer shared.mu.Unlock()
	if shared.all[hash].Value() == nil {
		delete(shared.all, hash)
	}
}
