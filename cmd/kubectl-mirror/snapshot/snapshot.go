// Package snapshot reads what a cluster shows of one controller: what it has
// reported about each [Source], and, as a [Snapshot], what is to be done.
//
// A [Snapshot] has the same objects as the cache of the controller, read once
// instead of watched, and package plan decides about each target. So its
// decisions are those of the controller. They leave out what no object shows,
// such as a write that the API server rejects: the controller reports that.
package snapshot

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
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
	// Flags are those that the user has given, each after a blank: a command that
	// a note advises needs them, too.
	Flags string
}

// Snapshot is what a cluster holds, and the decision about each target.
type Snapshot struct {
	Rules      *plan.Rules
	Namespaces map[string]*corev1.Namespace // by name

	groups map[string]*group // by name
	// metadata has, of the copies of each content, the one that has lent the
	// others its labels and annotations: see add.
	metadata map[string]*corev1.ConfigMap
}

// group is all that has one name, such as each ConfigMap that is called
// settings: the sources, which contend for the same targets, and what is there.
type group struct {
	name      string
	sources   []*plan.Source
	view      *plan.View                   // of sources
	objects   map[string]*corev1.ConfigMap // by namespace
	decisions map[string]*plan.Change      // by namespace
}

// Read returns what the cluster holds, with the decision about each target.
// With a name it leaves out all that has another.
func (r *Reader) Read(ctx context.Context, name string) (*Snapshot, error) {
	s := &Snapshot{
		Rules:    r.Rules,
		groups:   map[string]*group{},
		metadata: map[string]*corev1.ConfigMap{},
	}
	selector := fmt.Sprintf("%s in (%s,%s)", r.Rules.Label(), plan.SourceValue, plan.CopyValue)
	err := each(ctx, r.Client.CoreV1().ConfigMaps("").List, listOptions(selector, name), s.add)
	if err == nil {
		// After the ConfigMaps, so that the namespace of each of them is there.
		s.Namespaces, err = r.Namespaces(ctx)
	}
	if err != nil {
		return nil, err
	}
	for _, g := range s.groups {
		if err := r.decideWithForeign(ctx, s, g); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// decideWithForeign decides about every target of a name. Where a copy is to be
// created, a foreign ConfigMap without a mirror label may be in the way, which
// the first list does not show. Then it lists all of the name, and decides
// again.
func (r *Reader) decideWithForeign(ctx context.Context, s *Snapshot, g *group) error {
	if !s.decide(g) {
		return nil
	}
	addMissing := func(cm *corev1.ConfigMap) {
		if g.objects[cm.Namespace] == nil {
			r.Rules.Strip(cm)
			g.objects[cm.Namespace] = cm
		}
	}
	err := each(ctx, r.Client.CoreV1().ConfigMaps("").List, listOptions("", g.name), addMissing)
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

// Namespaces returns all namespaces, by name.
func (r *Reader) Namespaces(ctx context.Context) (map[string]*corev1.Namespace, error) {
	all := map[string]*corev1.Namespace{}
	return all, each(ctx, r.Client.CoreV1().Namespaces().List, metav1.ListOptions{},
		func(ns *corev1.Namespace) {
			plan.StripNamespace(ns)
			all[ns.Name] = ns
		})
}

// listOptions selects objects by their labels and, unless it is empty, by a
// name.
func listOptions(selector, name string) metav1.ListOptions {
	o := metav1.ListOptions{LabelSelector: selector}
	if name != "" {
		o.FieldSelector = "metadata.name=" + name
	}
	return o
}

// each calls f for every object of a list, which it does not keep. It reads
// pages of 500 objects, as kubectl does, the next one meanwhile.
func each[L, T runtime.Object](
	ctx context.Context,
	read func(context.Context, metav1.ListOptions) (L, error),
	o metav1.ListOptions,
	f func(T),
) error {
	pages := pager.New(func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
		return read(ctx, o)
	})
	pages.PageBufferSize = 1
	return pages.EachListItemWithAlloc(ctx, o, func(object runtime.Object) error {
		f(object.(T))
		return nil
	})
}

// add adds a ConfigMap with a mirror label, without its payload: a cluster may
// have more copies than fit into memory with theirs.
func (s *Snapshot) add(cm *corev1.ConfigMap) {
	g := s.groups[cm.Name]
	if g == nil {
		g = &group{name: cm.Name, objects: map[string]*corev1.ConfigMap{}}
		s.groups[cm.Name] = g
	}
	g.objects[cm.Namespace] = cm
	s.Rules.Strip(cm)
	if s.Rules.AsksToBeMirrored(cm) {
		g.sources = append(g.sources, s.Rules.ParseSource(cm))
		// Strip leaves the payload of a source, which has been parsed now.
		cm.Data = nil
		cm.BinaryData = nil
	}

	// All copies of a source that are in sync have equal labels and
	// annotations, so they can share those of the first one.
	content := cm.Name + cm.Annotations[plan.ChecksumAnnotation]
	first := s.metadata[content]
	switch {
	case first == nil:
		s.metadata[content] = cm
	case maps.Equal(first.Labels, cm.Labels) && maps.Equal(first.Annotations, cm.Annotations):
		cm.Labels = first.Labels
		cm.Annotations = first.Annotations
	}
}

// decide decides about every target of a name, and reports whether a copy is to
// be created.
func (s *Snapshot) decide(g *group) (creates bool) {
	g.view = plan.NewView(g.sources)
	g.decisions = map[string]*plan.Change{}
	targets := s.Rules.TargetNamespaces(g.view, maps.Keys(s.Namespaces), maps.Keys(g.objects))
	for namespace := range targets {
		c := s.Rules.Decide(g.view, plan.Target{
			Key:       types.NamespacedName{Namespace: namespace, Name: g.name},
			Namespace: s.Namespaces[namespace],
			Have:      g.objects[namespace],
		})
		g.decisions[namespace] = &c
		creates = creates || c.Op == plan.OpCreate
	}
	return creates
}

// group returns all of a name; an empty group if there is nothing.
func (s *Snapshot) group(name string) *group {
	return cmp.Or(s.groups[name], &group{view: plan.NewView(nil)})
}

// View returns the sources of a name.
func (s *Snapshot) View(name string) *plan.View { return s.group(name).view }

// Decision returns the decision about one target; an empty one if there is
// nothing to decide.
func (s *Snapshot) Decision(key types.NamespacedName) *plan.Change {
	return cmp.Or(s.group(key.Name).decisions[key.Namespace], &plan.Change{Key: key})
}

// All returns the decisions about all targets, sorted.
func (s *Snapshot) All() (all []*plan.Change) {
	for _, g := range s.groups {
		all = slices.AppendSeq(all, maps.Values(g.decisions))
	}
	slices.SortFunc(all, func(a, b *plan.Change) int { return compareKeys(a.Key, b.Key) })
	return all
}

// Copies returns the deletions of all copies of the controller, sorted, each
// with the state of the target. It changes the decisions to these deletions.
func (s *Snapshot) Copies() (deletions []*plan.Change) {
	for _, c := range s.All() {
		have := s.groups[c.Key.Name].objects[c.Key.Namespace]
		if have == nil || !s.Rules.Visible(have) {
			continue
		}
		source, ours := s.Rules.SourceOf(have)
		if ours {
			c.Op = plan.OpDelete
			c.Owner = source
			c.Have = have
			deletions = append(deletions, c)
		}
	}
	return deletions
}

// Reason returns why a target is in its state, in words; empty if it is in
// sync.
func (s *Snapshot) Reason(c *plan.Change) string {
	return s.Rules.Reason(s.View(c.Key.Name), *c)
}

// Superseded returns the sources that select a target which another source wins
// by the decision.
func (s *Snapshot) Superseded(c *plan.Change) []*plan.Source {
	place := plan.Target{Namespace: s.Namespaces[c.Key.Namespace]}
	return s.Rules.Superseded(s.View(c.Key.Name), place, *c)
}

// compareKeys orders by namespace first, as kubectl get -A does.
func compareKeys(a, b types.NamespacedName) int {
	return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
}
