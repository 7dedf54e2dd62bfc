package snapshot

import (
	"cmp"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// Snapshot is what a cluster holds, and the decision about each target.
type Snapshot struct {
	Rules      *plan.Rules
	Namespaces map[string]*corev1.Namespace

	names  map[string]*group
	shared map[string]*corev1.ConfigMap // whose labels and annotations others share
}

// group is all that has one name: the sources, and the ConfigMaps, by namespace.
type group struct {
	name      string
	sources   []*plan.Source
	view      *plan.View
	objects   map[string]*corev1.ConfigMap // by namespace
	decisions map[string]*Decision         // by namespace
}

// Decision is the decision about one target.
type Decision struct {
	plan.Change
	Have       *corev1.ConfigMap // nil: nothing is there
	Superseded []*plan.Source    // those that select the target and do not win it
}

// add adds a ConfigMap with a mirror label, without its payload.
func (s *Snapshot) add(cm *corev1.ConfigMap) {
	g := s.names[cm.Name]
	if g == nil {
		g = &group{name: cm.Name, objects: map[string]*corev1.ConfigMap{}}
		s.names[cm.Name] = g
	}
	g.objects[cm.Namespace] = cm
	s.Rules.Strip(cm)
	if s.Rules.AsksToBeMirrored(cm) {
		g.sources = append(g.sources, s.Rules.ParseSource(cm))
		cm.Data, cm.BinaryData = nil, nil
	}
	// All copies of a source that are in sync have equal labels and annotations.
	k := cm.Name + cm.Annotations[plan.ChecksumAnnotation]
	switch same := s.shared[k]; {
	case same == nil:
		s.shared[k] = cm
	case maps.Equal(same.Labels, cm.Labels) && maps.Equal(same.Annotations, cm.Annotations):
		cm.Labels, cm.Annotations = same.Labels, same.Annotations
	}
}

// group returns all of a name; an empty group if there is nothing.
func (s *Snapshot) group(name string) *group {
	return cmp.Or(s.names[name], &group{view: plan.NewView(nil)})
}

// View returns the sources of a name.
func (s *Snapshot) View(name string) *plan.View { return s.group(name).view }

// Decision returns the decision about one target; an empty one if there is nothing to decide.
func (s *Snapshot) Decision(key types.NamespacedName) *Decision {
	return cmp.Or(s.group(key.Name).decisions[key.Namespace], &Decision{Change: plan.Change{Key: key}})
}

// All returns the decisions about all targets, sorted.
func (s *Snapshot) All() (out []*Decision) {
	for _, g := range s.names {
		out = slices.AppendSeq(out, maps.Values(g.decisions))
	}
	slices.SortFunc(out, func(a, b *Decision) int { return compareKeys(a.Key, b.Key) })
	return out
}

// Copies returns the decisions about the copies of the controller, sorted, each with its source.
func (s *Snapshot) Copies() (out []*Decision) {
	for _, d := range s.All() {
		if d.Have == nil || !s.Rules.Visible(d.Have) {
			continue
		}
		if source, ours := s.Rules.SourceOf(d.Have); ours {
			d.CopyOf = source
			out = append(out, d)
		}
	}
	return out
}

// Reason returns why a target is in its state, in words; empty if it is in sync.
func (s *Snapshot) Reason(d *Decision) string {
	return s.Rules.Reason(s.View(d.Key.Name), d.Change)
}

// decide decides about every target of a name.
func (s *Snapshot) decide(g *group) {
	g.view, g.decisions = plan.NewView(g.sources), map[string]*Decision{}
	for namespace := range s.Rules.TargetNamespaces(g.view, maps.Keys(s.Namespaces), maps.Keys(g.objects)) {
		key := types.NamespacedName{Namespace: namespace, Name: g.name}
		t := plan.Target{Key: key, Namespace: s.Namespaces[namespace], Have: g.objects[namespace]}
		d := &Decision{Change: s.Rules.Decide(g.view, t), Have: t.Have}
		if t.Namespace != nil {
			d.Superseded = s.Rules.Superseded(g.view, t, d.Change)
		}
		g.decisions[namespace] = d
	}
}
