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

// by returns the world as package plan reads it, by rules.
func (w world) by(rules *plan.Rules) *scratch {
	sources := map[string][]*plan.Source{}
	for key, cm := range w.ConfigMaps {
		if rules.AsksToBeMirrored(cm) {
			sources[key.Name] = append(sources[key.Name], rules.ParseSource(cm))
		}
	}
	p := &scratch{w, rules, map[string]*plan.View{}}
	for key := range w.ConfigMaps {
		p.views[key.Name] = plan.NewView(sources[key.Name])
	}
	return p
}

// scratch is a world by rules. It is a [plan.Cluster].
type scratch struct {
	world
	rules *plan.Rules
	views map[string]*plan.View // by names, also of those without a source
}

// Views returns the sources of each name.
func (p *scratch) Views() iter.Seq[*plan.View] { return maps.Values(p.views) }

// Namespaces returns all namespaces.
func (p *scratch) Namespaces() iter.Seq[*corev1.Namespace] { return maps.Values(p.world.Namespaces) }

// Targets returns each ConfigMap with a mirror label.
func (p *scratch) Targets() iter.Seq2[*plan.View, plan.Target] {
	return func(yield func(*plan.View, plan.Target) bool) {
		for v, t := range p.Places() {
			if t.Have != nil && p.rules.Visible(t.Have) && !yield(v, t) {
				return
			}
		}
	}
}

// Places returns each place about which there may be something to decide, in order: each name in each namespace.
func (p *scratch) Places() iter.Seq2[*plan.View, plan.Target] {
	return func(yield func(*plan.View, plan.Target) bool) {
		for _, name := range slices.Sorted(maps.Keys(p.views)) {
			for _, namespace := range slices.Sorted(maps.Keys(p.world.Namespaces)) {
				at := key{Namespace: namespace, Name: name}
				t := plan.Target{Key: at, Namespace: p.world.Namespaces[namespace], Have: p.ConfigMaps[at]}
				if !yield(p.views[name], t) {
					return
				}
			}
		}
	}
}
