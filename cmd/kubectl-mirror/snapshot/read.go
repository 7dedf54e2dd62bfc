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
	"slices"

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

func (r *Reader) read(ctx context.Context, name string) (s *Snapshot, err error) {
	s = &Snapshot{Rules: r.Rules, names: map[string]*group{}, shared: map[string]*corev1.ConfigMap{}}
	labelled := fmt.Sprintf("%s in (%s,%s)", r.Rules.Label(), plan.SourceValue, plan.CopyValue)
	if err = r.eachConfigMap(ctx, labelled, name, s.add); err != nil {
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
	if !slices.ContainsFunc(g.decisions, func(d *Decision) bool { return d.Op == plan.OpCreate }) {
		return nil
	}
	err := r.eachConfigMap(ctx, "", g.name, func(cm *corev1.ConfigMap) {
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
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("get ConfigMap %s: %w", key, err)
	}
	return cm, nil
}

// A ConfigMap has up to a megabyte, so the first page of a list is small, and the next ones have as many as fit into
// pageBytes by the size of the last.
const (
	firstPage, largestPage = 25, 500
	pageBytes              = 16 << 20
)

// eachConfigMap calls f for every ConfigMap with these labels and, if it is not empty, this name.
func (r *Reader) eachConfigMap(ctx context.Context, labels, name string, f func(*corev1.ConfigMap)) error {
	o := metav1.ListOptions{LabelSelector: labels, Limit: firstPage}
	if name != "" {
		o.FieldSelector = "metadata.name=" + name
	}
	for {
		page, err := r.Client.CoreV1().ConfigMaps(metav1.NamespaceAll).List(ctx, o)
		if err != nil {
			return fmt.Errorf("list ConfigMaps: %w", err)
		}
		bytes := 1
		for i := range page.Items {
			cm := page.Items[i] // the page is not kept
			bytes += cm.Size()
			f(&cm)
		}
		if o.Continue = page.Continue; o.Continue == "" {
			return nil
		}
		o.Limit = int64(max(firstPage, min(largestPage, len(page.Items)*pageBytes/bytes)))
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
