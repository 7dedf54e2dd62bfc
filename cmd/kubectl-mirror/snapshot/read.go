// Package snapshot reads the sources and copies of one controller, and has package plan decide about each target.
//
//	read.go      what the cluster holds, read page by page and kept without payloads
//	snapshot.go  the decision about each target
//	report.go    the state of each source, counted
//	events.go    what the controller has reported, by its events
package snapshot

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
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

// object is a ConfigMap without its payload, and what it asks for if it asks to be mirrored.
type object struct {
	*corev1.ConfigMap
	source  *plan.Source
	changed time.Time // when somebody changed the source last; zero: not known
}

// Read returns what the cluster holds, with the decision about each target. With a name it leaves out all that has
// another. It reads at most three times: a list expires if it takes longer than the API server keeps what it lists.
func (r *Reader) Read(ctx context.Context, name string) (s *Snapshot, err error) {
	for range 3 {
		if s, err = r.read(ctx, name); !apierrors.IsResourceExpired(err) {
			break
		}
	}
	return s, err
}

func (r *Reader) read(ctx context.Context, name string) (*Snapshot, error) {
	var found []*object
	shared := sharing{}
	err := r.eachConfigMap(ctx, r.labelled(name), func(cm *corev1.ConfigMap) {
		found = append(found, strip(r.Rules, cm))
		shared.share(cm)
	})
	if err != nil {
		return nil, err
	}
	namespaces, err := r.Namespaces(ctx) // last, so that the namespace of every ConfigMap is there
	if err != nil {
		return nil, err
	}
	s := newSnapshot(r.Rules, namespaces, found)
	for _, g := range s.names {
		if err := r.decide(ctx, s, g); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// decide decides about every target of a name. Where a copy is to be created, it asks for the objects without a label of ours,
// which no watch shows.
func (r *Reader) decide(ctx context.Context, s *Snapshot, g *group) error {
	s.decideGroup(g, nil)
	if !slices.ContainsFunc(g.decisions, func(d *Decision) bool { return d.Op == plan.OpCreate }) {
		return nil
	}
	unlabelled, err := r.listNamed(ctx, g.name)
	s.decideGroup(g, unlabelled)
	return err
}

// Get returns a ConfigMap with its payload; nil if there is none.
func (r *Reader) Get(ctx context.Context, key types.NamespacedName) (*corev1.ConfigMap, error) {
	cm, err := r.Client.CoreV1().ConfigMaps(key.Namespace).Get(ctx, key.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("get ConfigMap %s: %w", key, err)
	}
	return cm, nil
}

// Sources returns NAMESPACE/NAME of all ConfigMaps that have the label of a source.
func (r *Reader) Sources(ctx context.Context) (keys []string, err error) {
	o := metav1.ListOptions{LabelSelector: r.Rules.Label() + "=" + plan.SourceValue}
	err = r.eachConfigMap(ctx, o, func(cm *corev1.ConfigMap) { keys = append(keys, plan.KeyOf(cm).String()) })
	return keys, err
}

// labelled returns the options of a list of the ConfigMaps with a mirror label, or of those that have the name, too.
func (r *Reader) labelled(name string) metav1.ListOptions {
	o := metav1.ListOptions{LabelSelector: fmt.Sprintf("%s in (%s,%s)", r.Rules.Label(), plan.SourceValue, plan.CopyValue)}
	if name != "" {
		o.FieldSelector = named(name)
	}
	return o
}

// listNamed lists all ConfigMaps of a name, by namespace, also those without a label of ours.
func (r *Reader) listNamed(ctx context.Context, name string) (map[string]*corev1.ConfigMap, error) {
	out := map[string]*corev1.ConfigMap{}
	err := r.eachConfigMap(ctx, metav1.ListOptions{FieldSelector: named(name)}, func(cm *corev1.ConfigMap) {
		out[cm.Namespace] = strip(r.Rules, cm).ConfigMap
	})
	return out, err
}

func named(name string) string { return fields.OneTermEqualSelector("metadata.name", name).String() }

// strip removes the payload of cm, after its digest is kept.
func strip(rules *plan.Rules, cm *corev1.ConfigMap) *object {
	o := &object{ConfigMap: cm}
	for _, f := range cm.ManagedFields {
		if f.Time != nil && f.Time.After(o.changed) {
			o.changed = f.Time.Time
		}
	}
	rules.Strip(cm)
	if rules.AsksToBeMirrored(cm) {
		o.source = rules.ParseSource(cm)
		cm.Data, cm.BinaryData = nil, nil
	}
	return o
}

// Sizes of a page of ConfigMaps. A ConfigMap has up to a megabyte, so the first page is small, and the next ones have as many
// as fit into pageBytes by the size of the last.
const (
	firstPage, largestPage = 25, 500
	pageBytes              = 16 << 20
)

// nextPage returns the limit of the page after one with n ConfigMaps of so many bytes.
func nextPage(n, bytes int) int64 {
	if n == 0 {
		return firstPage
	}
	return int64(max(firstPage, min(largestPage, pageBytes/max(1, bytes/n))))
}

// eachConfigMap calls f for every ConfigMap of a list that is read page by page.
func (r *Reader) eachConfigMap(ctx context.Context, o metav1.ListOptions, f func(*corev1.ConfigMap)) error {
	o.Limit = firstPage
	for {
		page, err := r.Client.CoreV1().ConfigMaps(metav1.NamespaceAll).List(ctx, o)
		if err != nil {
			return fmt.Errorf("list ConfigMaps: %w", err)
		}
		bytes := 0
		for i := range page.Items {
			cm := page.Items[i] // the page is not kept
			bytes += cm.Size()
			f(&cm)
		}
		if page.Continue == "" {
			return nil
		}
		o.Continue, o.Limit = page.Continue, nextPage(len(page.Items), bytes)
	}
}

// each calls f for every small object of a list that is read page by page.
func each[L, T runtime.Object](ctx context.Context, list func(context.Context, metav1.ListOptions) (L, error),
	o metav1.ListOptions, f func(T)) error {
	page := func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return list(ctx, o) }
	return pager.New(page).EachListItem(ctx, o, func(object runtime.Object) error {
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
	if err != nil {
		return nil, fmt.Errorf("list namespaces: %w", err)
	}
	return out, nil
}

// sharing has objects with equal labels and annotations share the maps: all copies of a source that are in sync are such.
type sharing map[string]*corev1.ConfigMap

func (s sharing) share(cm *corev1.ConfigMap) {
	k := cm.Name + cm.Annotations[plan.ChecksumAnnotation]
	same := s[k]
	switch {
	case same == nil:
		s[k] = cm
	case maps.Equal(same.Labels, cm.Labels) && maps.Equal(same.Annotations, cm.Annotations):
		cm.Labels, cm.Annotations = same.Labels, same.Annotations
	}
}
