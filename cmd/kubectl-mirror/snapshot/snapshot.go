// Package snapshot reads the sources and copies of one controller, and has package plan decide about each target.
package snapshot

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/pager"

	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// Reader reads clusters.
type Reader struct {
	Client kubernetes.Interface
	Rules  *plan.Rules // of the controller
}

// Read returns what the cluster holds, with the decision about each target. With a name it leaves out all that has
// another.
func (r *Reader) Read(ctx context.Context, name string) (s *Snapshot, err error) {
	s = &Snapshot{Rules: r.Rules, names: map[string]*group{}, shared: map[string]*corev1.ConfigMap{}}
	o := metav1.ListOptions{LabelSelector: fmt.Sprintf("%s in (%s,%s)", r.Rules.Label(), plan.SourceValue, plan.CopyValue)}
	if name != "" {
		o.FieldSelector = "metadata.name=" + name
	}
	if err = each(ctx, r.Client.CoreV1().ConfigMaps("").List, o, s.add); err != nil {
		return nil, err
	}
	s.Namespaces, err = r.Namespaces(ctx) // last, so that the namespace of every ConfigMap is there
	for _, g := range s.names {
		if err == nil {
			err = r.decide(ctx, s, g)
		}
	}
	return s, err
}

// decide decides about every target of a name. Where a copy is to be created, it asks for the objects without a label
// of ours, which no watch shows.
func (r *Reader) decide(ctx context.Context, s *Snapshot, g *group) error {
	s.decide(g)
	creates := func(d *Decision) bool { return d.Op == plan.OpCreate }
	if !slices.ContainsFunc(slices.Collect(maps.Values(g.decisions)), creates) {
		return nil
	}
	o := metav1.ListOptions{FieldSelector: "metadata.name=" + g.name}
	err := each(ctx, r.Client.CoreV1().ConfigMaps("").List, o, func(cm *corev1.ConfigMap) {
		if g.objects[cm.Namespace] == nil {
			r.Rules.Strip(cm)
			g.objects[cm.Namespace] = cm
		}
	})
	s.decide(g)
	return err
}

// Get returns a ConfigMap with its payload; nil if there is none.
func (r *Reader) Get(ctx context.Context, key types.NamespacedName) (*corev1.ConfigMap, error) {
	cm, err := r.Client.CoreV1().ConfigMaps(key.Namespace).Get(ctx, key.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return cm, err
}

// SourcesIn returns the sources in a namespace, or the one with the name, with their payloads.
func (r *Reader) SourcesIn(ctx context.Context, asked types.NamespacedName) (all []*corev1.ConfigMap, err error) {
	o := metav1.ListOptions{LabelSelector: r.Rules.Label() + "=" + plan.SourceValue}
	if asked.Name != "" {
		o.FieldSelector = "metadata.name=" + asked.Name
	}
	err = each(ctx, r.Client.CoreV1().ConfigMaps(asked.Namespace).List, o, func(cm *corev1.ConfigMap) {
		if r.Rules.AsksToBeMirrored(cm) {
			all = append(all, cm)
		}
	})
	return all, err
}

// Namespace returns a namespace; nil if there is none.
func (r *Reader) Namespace(ctx context.Context, name string) (*corev1.Namespace, error) {
	ns, err := r.Client.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	plan.StripNamespace(ns)
	return ns, err
}

// A ConfigMap has up to a megabyte, so the first page of a list is small, and the next ones have as many objects as fit
// into pageBytes by the size of the last.
const (
	firstPage, largestPage = 25, 5000
	pageBytes              = 8 << 20
)

// each calls f for every object of a list, which it does not keep. It reads the next page meanwhile.
func each[L runtime.Object, T interface{ Size() int }](ctx context.Context,
	list func(context.Context, metav1.ListOptions) (L, error), o metav1.ListOptions, f func(T)) error {
	limit := firstPage
	pages := pager.New(func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
		o.Limit = int64(limit)
		page, err := list(ctx, o)
		if err != nil {
			return nil, err
		}
		n, bytes := 0, 1
		err = meta.EachListItem(page, func(object runtime.Object) error {
			n, bytes = n+1, bytes+object.(T).Size()
			return nil
		})
		limit = max(firstPage, min(largestPage, n*pageBytes/bytes))
		return page, err
	})
	pages.PageBufferSize = 1
	return pages.EachListItemWithAlloc(ctx, o, func(object runtime.Object) error {
		f(object.(T))
		return nil
	})
}

// Namespaces lists the namespaces, by name.
func (r *Reader) Namespaces(ctx context.Context) (map[string]*corev1.Namespace, error) {
	out := map[string]*corev1.Namespace{}
	err := each(ctx, r.Client.CoreV1().Namespaces().List, metav1.ListOptions{}, func(ns *corev1.Namespace) {
		plan.StripNamespace(ns)
		out[ns.Name] = ns
	})
	return out, err
}

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
