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
	// Pruning is the verdict of the prune limit, as of a controller that takes over.
	Pruning plan.Pruning

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

func newSnapshot(rules *plan.Rules, namespaces []*corev1.Namespace, found []*object) *Snapshot {
	s := &Snapshot{Rules: rules, namespaces: map[string]*corev1.Namespace{}, names: map[string]*group{}}
	for _, ns := range namespaces {
		s.namespaces[ns.Name] = ns
	}
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

// Of returns the snapshot of a cluster that has these objects. It takes copies of them without their payload.
func Of(o *plan.Options, namespaces []*corev1.Namespace, objects []*corev1.ConfigMap, takeover bool) (*Snapshot, error) {
	rules, visible := plan.NewRules(o), []*object(nil)
	hidden := map[string]map[string]*corev1.ConfigMap{}
	for _, o := range objects {
		switch stripped := strip(rules, o.DeepCopy()); {
		case rules.Visible(o):
			visible = append(visible, stripped)
		case hidden[o.Name] == nil:
			hidden[o.Name] = map[string]*corev1.ConfigMap{o.Namespace: stripped.ConfigMap}
		default:
			hidden[o.Name][o.Namespace] = stripped.ConfigMap
		}
	}
	s := newSnapshot(rules, namespaces, visible)
	s.Pruning = rules.JudgePruning(s, o.PruneLimit)
	return s, s.decideAll(takeover, func(name string) (map[string]*corev1.ConfigMap, error) { return hidden[name], nil })
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

// Targets returns each ConfigMap with a mirror label, with the sources of its name.
func (s *Snapshot) Targets() iter.Seq2[*plan.View, plan.Target] {
	return func(yield func(*plan.View, plan.Target) bool) {
		for _, g := range s.names {
			for namespace, have := range g.objects {
				if !yield(g.view, s.target(types.NamespacedName{Namespace: namespace, Name: g.name}, have)) {
					return
				}
			}
		}
	}
}

func (s *Snapshot) target(key types.NamespacedName, have *corev1.ConfigMap) plan.Target {
	return plan.Target{Key: key, Namespace: s.namespaces[key.Namespace], Have: have}
}

// Decisions returns the decisions about the targets of a name, by namespace.
func (s *Snapshot) Decisions(name string) []*Decision {
	if g := s.names[name]; g != nil {
		return g.decisions
	}
	return nil
}

// All returns the decisions about all targets.
func (s *Snapshot) All() iter.Seq[*Decision] {
	return func(yield func(*Decision) bool) {
		for _, g := range s.names {
			for _, d := range g.decisions {
				if !yield(d) {
					return
				}
			}
		}
	}
}

// Decision returns the decision about one target; nil if there is nothing to decide.
func (s *Snapshot) Decision(key types.NamespacedName) *Decision {
	for _, d := range s.Decisions(key.Name) {
		if d.Key == key {
			return d
		}
	}
	return nil
}

// Reason returns why a target is in its state, in words; empty if it is in sync.
func (s *Snapshot) Reason(d *Decision) string {
	return s.Rules.Reason(s.View(d.Key.Name), s.target(d.Key, d.Have), d.Change)
}

// HandedOver returns the decision about a ConfigMap if its owner hands it over.
func (s *Snapshot) HandedOver(have *corev1.ConfigMap) *Decision {
	probe := have.DeepCopy()
	if probe.Annotations == nil {
		probe.Annotations = map[string]string{}
	}
	probe.Annotations[plan.AdoptAnnotation] = plan.AdoptValue
	return s.decide(s.View(have.Name), s.target(plan.KeyOf(have), probe))
}

func (s *Snapshot) decide(v *plan.View, t plan.Target) *Decision {
	d := &Decision{Change: s.Rules.Decide(v, t), Have: t.Have}
	if t.Namespace != nil {
		d.Losers = s.Rules.Superseded(v, t, d.Change)
	}
	return d
}

// decideAll decides about every target. Where a copy is to be created, it asks named for the objects without a label of ours, which no watch
// shows. A controller that takes over deletes the copies that only the flags rule out, unless the limit blocks that; one that runs did so.
func (s *Snapshot) decideAll(takeover bool, named func(name string) (map[string]*corev1.ConfigMap, error)) error {
	for name, g := range s.names {
		s.decideGroup(g, nil, takeover)
		if !slices.ContainsFunc(g.decisions, func(d *Decision) bool { return d.Op == plan.OpCreate }) {
			continue
		}
		unlabelled, err := named(name)
		if err != nil {
			return err
		}
		s.decideGroup(g, unlabelled, takeover)
	}
	return nil
}

func (s *Snapshot) decideGroup(g *group, unlabelled map[string]*corev1.ConfigMap, takeover bool) {
	g.decisions = nil
	for _, namespace := range slices.Sorted(maps.Keys(s.Rules.Places(g.view, maps.Keys(s.namespaces), maps.Keys(g.objects)))) {
		have := g.objects[namespace]
		if have == nil {
			have = unlabelled[namespace]
		}
		t := s.target(types.NamespacedName{Namespace: namespace, Name: g.name}, have)
		t.Prunable, t.Spared = takeover && !s.Pruning.Blocked, s.Rules.Spares(s.Pruning, t.Namespace)
		g.decisions = append(g.decisions, s.decide(g.view, t))
	}
}
