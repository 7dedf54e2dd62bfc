package main

import (
	"iter"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// world is all ConfigMaps and namespaces of a cluster at one moment, for a plan from scratch.
type world struct {
	ConfigMaps map[key]*corev1.ConfigMap
	Namespaces map[string]*corev1.Namespace
}

// newWorld returns a world in which nothing is.
func newWorld() world {
	return world{map[key]*corev1.ConfigMap{}, map[string]*corev1.Namespace{}}
}

// by returns the world as package plan reads it, by rules: as a cache of the controller holds it.
func (w world) by(rules *plan.Rules) *scratch {
	sources, stripped := map[string][]*plan.Source{}, map[key]*corev1.ConfigMap{}
	for key, live := range w.ConfigMaps {
		cm := new(*live) // Strip changes none of its maps
		rules.Strip(cm)
		stripped[key] = cm
		if rules.AsksToBeMirrored(cm) {
			sources[key.Name] = append(sources[key.Name], rules.ParseSource(cm))
		}
	}
	p := &scratch{world{stripped, w.Namespaces}, map[string]*plan.View{}}
	for key := range w.ConfigMaps {
		p.views[key.Name] = plan.NewView(sources[key.Name])
	}
	return p
}

// scratch is a world by rules.
type scratch struct {
	world
	views map[string]*plan.View // by names, also of those without a source
}

// Places returns each place about which there may be something to decide, in order: each name in each namespace.
func (p *scratch) Places() iter.Seq2[*plan.View, plan.Target] {
	return func(yield func(*plan.View, plan.Target) bool) {
		for _, name := range slices.Sorted(maps.Keys(p.views)) {
			for _, namespace := range slices.Sorted(maps.Keys(p.Namespaces)) {
				at := key{Namespace: namespace, Name: name}
				t := plan.Target{Key: at, Namespace: p.Namespaces[namespace], Have: p.ConfigMaps[at]}
				if !yield(p.views[name], t) {
					return
				}
			}
		}
	}
}
