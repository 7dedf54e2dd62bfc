package snapshot

import (
	"iter"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// Snapshot is what a cluster holds, and the decision about each target.
type Snapshot struct {
	Rules *plan.Rules

	namespaces map[string]*corev1.Namespace
	names      map[string]*group
}

// group is all that has one name: the sources, and the ConfigMaps with a mirror label, by namespace.
type group struct {
	name      string
	view      *plan.View
	objects   map[string]*corev1.ConfigMap
	changed   map[types.UID]time.Time // when the sources were changed
	decisions []*Decision
}

// Decision is the decision about one target.
type Decision struct {
	plan.Change
	Have   *corev1.ConfigMap // nil: nothing is there
	Losers []*plan.Source    // those that claim the target and do not have it
}

func newSnapshot(rules *plan.Rules, namespaces map[string]*corev1.Namespace, found []*object) *Snapshot {
	s := &Snapshot{Rules: rules, namespaces: namespaces, names: map[string]*group{}}
	sources := map[string][]*plan.Source{}
	for _, o := range found {
		g := s.names[o.Name]
		if g == nil {
			g = &group{name: o.Name, objects: map[string]*corev1.ConfigMap{}, changed: map[types.UID]time.Time{}}
			s.names[o.Name] = g
		}
		g.objects[o.Namespace] = o.ConfigMap
		if o.source != nil {
			sources[o.Name] = append(sources[o.Name], o.source)
			g.changed[o.UID] = o.changed
		}
	}
	for name, g := range s.names {
		g.view = plan.NewView(sources[name])
	}
	return s
}

// Namespace returns a namespace; nil if there is none.
func (s *Snapshot) Namespace(name string) *corev1.Namespace { return s.namespaces[name] }

// View returns the sources of a name.
func (s *Snapshot) View(name string) *plan.View {
	if g := s.names[name]; g != nil {
		return g.view
	}
	return plan.NewView(nil)
}

// Views returns the sources of each name that has any.
func (s *Snapshot) Views() iter.Seq[*plan.View] {
	return func(yield func(*plan.View) bool) {
		for _, g := range s.names {
			if len(g.view.All()) > 0 && !yield(g.view) {
				return
			}
		}
	}
}

// Namespaces returns all namespaces.
func (s *Snapshot) Namespaces() iter.Seq[*corev1.Namespace] { return maps.Values(s.namespaces) }

func (s *Snapshot) target(key types.NamespacedName, have *corev1.ConfigMap) plan.Target {
	return plan.Target{Key: key, Namespace: s.namespaces[key.Namespace], Have: have}
}

// All returns the decisions about all targets.
func (s *Snapshot) All() (out []*Decision) {
	for _, g := range s.names {
		out = append(out, g.decisions...)
	}
	return out
}

// Decision returns the decision about one target; nil if there is nothing to decide.
func (s *Snapshot) Decision(key types.NamespacedName) *Decision {
	if g := s.names[key.Name]; g != nil {
		for _, d := range g.decisions {
			if d.Key == key {
				return d
			}
		}
	}
	return nil
}

// Reason returns why a target is in its state, in words; empty if it is in sync.
func (s *Snapshot) Reason(d *Decision) string {
	return s.Rules.Reason(s.View(d.Key.Name), s.target(d.Key, d.Have), d.Change)
}

// HandedOver returns the decision about a ConfigMap, as the API server returns it, if its owner hands it over.
func (s *Snapshot) HandedOver(have *corev1.ConfigMap) *Decision {
	probe := have.DeepCopy()
	if probe.Annotations == nil {
		probe.Annotations = map[string]string{}
	}
	probe.Annotations[plan.AdoptAnnotation] = plan.AdoptValue
	s.Rules.Strip(probe)
	return s.decide(s.View(have.Name), s.target(plan.KeyOf(have), probe))
}

func (s *Snapshot) decide(v *plan.View, t plan.Target) *Decision {
	d := &Decision{Change: s.Rules.Decide(v, t), Have: t.Have}
	if t.Namespace != nil {
		d.Losers = s.Rules.Superseded(v, t, d.Change)
	}
	return d
}

// decideGroup decides about every target of a name.
func (s *Snapshot) decideGroup(g *group, unlabelled map[string]*corev1.ConfigMap) {
	g.decisions = nil
	for _, namespace := range slices.Sorted(maps.Keys(s.Rules.Places(g.view, maps.Keys(s.namespaces), maps.Keys(g.objects)))) {
		have := g.objects[namespace]
		if have == nil {
			have = unlabelled[namespace]
		}
		t := s.target(types.NamespacedName{Namespace: namespace, Name: g.name}, have)
		g.decisions = append(g.decisions, s.decide(g.view, t))
	}
}
