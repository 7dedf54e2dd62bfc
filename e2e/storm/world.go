package outside

import (
	"context"
	"iter"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// World is all ConfigMaps and namespaces of a cluster at one moment, for a plan from scratch.
type World struct {
	ConfigMaps map[types.NamespacedName]*corev1.ConfigMap
	Namespaces map[string]*corev1.Namespace
}

// NewWorld returns a world in which nothing is.
func NewWorld() World {
	return World{map[types.NamespacedName]*corev1.ConfigMap{}, map[string]*corev1.Namespace{}}
}

// ReadWorld returns what the API server has.
func ReadWorld(ctx context.Context, client kubernetes.Interface) (World, error) {
	w := NewWorld()
	namespaces, err := client.CoreV1().Namespaces().List(ctx, metav1.ListOptions{})
	if err != nil {
		return w, err
	}
	for i := range namespaces.Items {
		w.Namespaces[namespaces.Items[i].Name] = &namespaces.Items[i]
	}
	configMaps, err := client.CoreV1().ConfigMaps(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	if err != nil {
		return w, err
	}
	for i := range configMaps.Items {
		w.ConfigMaps[plan.KeyOf(&configMaps.Items[i])] = &configMaps.Items[i]
	}
	return w, nil
}

// By returns the world as package plan reads it, by rules.
func (w World) By(rules *plan.Rules) *Planned {
	sources := map[string][]*plan.Source{}
	for key, cm := range w.ConfigMaps {
		if rules.AsksToBeMirrored(cm) {
			sources[key.Name] = append(sources[key.Name], rules.ParseSource(cm))
		}
	}
	p := &Planned{w, rules, map[string]*plan.View{}}
	for key := range w.ConfigMaps {
		p.views[key.Name] = plan.NewView(sources[key.Name])
	}
	return p
}

// Planned is a world by rules. It is a [plan.Cluster].
type Planned struct {
	World
	rules *plan.Rules
	views map[string]*plan.View // by names, also of those without a source
}

// Views returns the sources of each name.
func (p *Planned) Views() iter.Seq[*plan.View] { return maps.Values(p.views) }

// Namespaces returns all namespaces.
func (p *Planned) Namespaces() iter.Seq[*corev1.Namespace] { return maps.Values(p.World.Namespaces) }

// Targets returns each ConfigMap with a mirror label.
func (p *Planned) Targets() iter.Seq2[*plan.View, plan.Target] {
	return func(yield func(*plan.View, plan.Target) bool) {
		for v, t := range p.Places() {
			if t.Have != nil && p.rules.Visible(t.Have) && !yield(v, t) {
				return
			}
		}
	}
}

// Places returns each place about which there may be something to decide, in order: each name in each namespace.
func (p *Planned) Places() iter.Seq2[*plan.View, plan.Target] {
	return func(yield func(*plan.View, plan.Target) bool) {
		for _, name := range slices.Sorted(maps.Keys(p.views)) {
			for _, namespace := range slices.Sorted(maps.Keys(p.World.Namespaces)) {
				key := types.NamespacedName{Namespace: namespace, Name: name}
				t := plan.Target{Key: key, Namespace: p.World.Namespaces[namespace], Have: p.ConfigMaps[key]}
				if !yield(p.views[name], t) {
					return
				}
			}
		}
	}
}
