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
func (r *Reader) Read(ctx context.Context, name string) (*Snapshot, error) {
	s := &Snapshot{Rules: r.Rules, names: map[string]*group{}, shared: map[string]*corev1.ConfigMap{}}
	o := listOptions(fmt.Sprintf("%s in (%s,%s)", r.Rules.Label(), plan.SourceValue, plan.CopyValue), name)
	err := each(ctx, r.Client.CoreV1().ConfigMaps("").List, o, s.add)
	if err == nil {
		s.Namespaces, err = r.Namespaces(ctx) // last, so that the namespace of every ConfigMap is there
	}
	for _, g := range s.names {
		if err == nil {
			err = r.decide(ctx, s, g)
		}
	}
	if err != nil {
		return nil, err
	}
	return s, nil
}

// decide decides about every target of a name. Where a copy is to be created, it asks for the objects without a label
// of ours, which no watch shows.
func (r *Reader) decide(ctx context.Context, s *Snapshot, g *group) error {
	if !s.decide(g) {
		return nil
	}
	err := each(ctx, r.Client.CoreV1().ConfigMaps("").List, listOptions("", g.name), func(cm *corev1.ConfigMap) {
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

// listOptions selects objects by their labels and, unless it is empty, by a name.
func listOptions(selector, name string) metav1.ListOptions {
	o := metav1.ListOptions{LabelSelector: selector}
	if name != "" {
		o.FieldSelector = "metadata.name=" + name
	}
	return o
}

// A ConfigMap has up to a megabyte, so the first page of a list is small, and the next ones have as many objects as fit
// into pageBytes by the size of the last.
const (
	firstPage, largestPage = 25, 5000
	pageBytes              = 8 << 20
)

// each calls f for every object of a list, which it does not keep. It reads the next page meanwhile.
func each[L, T runtime.Object](ctx context.Context, read func(context.Context, metav1.ListOptions) (L, error),
	o metav1.ListOptions, f func(T)) error {
	limit := firstPage
	pages := pager.New(func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
		o.Limit = int64(limit)
		page, err := read(ctx, o)
		if err != nil {
			return nil, err
		}
		size := max(1, any(page).(interface{ Size() int }).Size()) // in bytes
		limit = max(firstPage, min(largestPage, meta.LenList(page)*pageBytes/size))
		return page, nil
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
	decisions map[string]*plan.Change      // by namespace
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
func (s *Snapshot) Decision(key types.NamespacedName) *plan.Change {
	return cmp.Or(s.group(key.Name).decisions[key.Namespace], &plan.Change{Key: key})
}

// All returns the decisions about all targets, sorted.
func (s *Snapshot) All() (out []*plan.Change) {
	for _, g := range s.names {
		out = slices.AppendSeq(out, maps.Values(g.decisions))
	}
	slices.SortFunc(out, func(a, b *plan.Change) int { return compareKeys(a.Key, b.Key) })
	return out
}

// Copies returns the deletions of all copies of the controller, sorted, each with the state of the target.
func (s *Snapshot) Copies() (out []*plan.Change) {
	for _, c := range s.All() {
		if have := s.names[c.Key.Name].objects[c.Key.Namespace]; have != nil && s.Rules.Visible(have) {
			if source, ours := s.Rules.SourceOf(have); ours {
				c.Op, c.Owner, c.Have = plan.OpDelete, source, have
				out = append(out, c)
			}
		}
	}
	return out
}

// Reason returns why a target is in its state, in words; empty if it is in sync.
func (s *Snapshot) Reason(c *plan.Change) string { return s.Rules.Reason(s.View(c.Key.Name), *c) }

// decide decides about every target of a name, and reports whether a copy is to be created.
func (s *Snapshot) decide(g *group) (creates bool) {
	g.view, g.decisions = plan.NewView(g.sources), map[string]*plan.Change{}
	for namespace := range s.Rules.TargetNamespaces(g.view, maps.Keys(s.Namespaces), maps.Keys(g.objects)) {
		key := types.NamespacedName{Namespace: namespace, Name: g.name}
		c := s.Rules.Decide(g.view, plan.Target{Key: key, Namespace: s.Namespaces[namespace], Have: g.objects[namespace]})
		g.decisions[namespace] = &c
		creates = creates || c.Op == plan.OpCreate
	}
	return creates
}
