// Package snapshot reads the sources and copies of one controller, and has package plan decide about each target.
//
//	read.go      what the cluster holds, read page by page and kept without payloads
//	snapshot.go  the decision about each target
//	report.go    the state of each source, counted
//	warnings.go  what the controller has last warned of, by its events
package snapshot

import (
	"context"
	"fmt"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// Reader reads clusters.
type Reader struct {
	Client  kubernetes.Interface
	Options *plan.Options // of the controller
	Rules   *plan.Rules   // of these options
}

// object is a ConfigMap without its payload, and what it asks for if it asks to be mirrored.
type object struct {
	*corev1.ConfigMap
	source  *plan.Source
	changed time.Time // when somebody changed the source last; zero: not known
}

// List returns what the cluster holds, without decisions. With a name it leaves out all that has another.
func (r *Reader) List(ctx context.Context, name string) (*Snapshot, error) {
	found, err := r.listLabelled(ctx, name)
	if err != nil {
		return nil, err
	}
	namespaces, err := r.Namespaces(ctx) // last, so that the namespace of every ConfigMap is there
	if err != nil {
		return nil, err
	}
	return newSnapshot(r.Rules, namespaces, found), nil
}

// Read returns what the cluster holds, with the decision about each target: that of a running controller, or, if takeover is set, that of
// one which takes over. With a name it leaves out all that has another, unless the verdict of the prune limit takes the copies of all names.
func (r *Reader) Read(ctx context.Context, name string, takeover bool) (*Snapshot, error) {
	s, err := r.List(ctx, name)
	if err != nil {
		return nil, err
	}
	s.Pruning = r.Rules.JudgePruning(s, r.Options.PruneLimit)
	if name != "" && len(s.Pruning.OutOfScope) > 0 {
		all, err := r.List(ctx, "")
		if err != nil {
			return nil, err
		}
		s.Pruning = r.Rules.JudgePruning(all, r.Options.PruneLimit)
	}
	return s, s.decideAll(takeover, func(name string) (map[string]*corev1.ConfigMap, error) { return r.listNamed(ctx, name) })
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

// Sources returns the keys of all ConfigMaps that have the label of a source.
func (r *Reader) Sources(ctx context.Context) (keys []types.NamespacedName, err error) {
	o := metav1.ListOptions{LabelSelector: r.Rules.Label() + "=" + plan.SourceValue}
	err = r.eachConfigMap(ctx, o, func() { keys = nil }, func(cm *corev1.ConfigMap) { keys = append(keys, plan.KeyOf(cm)) })
	return keys, err
}

// listLabelled lists the ConfigMaps with a mirror label, or those of a name.
func (r *Reader) listLabelled(ctx context.Context, name string) (out []*object, err error) {
	o := metav1.ListOptions{LabelSelector: fmt.Sprintf("%s in (%s,%s)", r.Rules.Label(), plan.SourceValue, plan.CopyValue)}
	if name != "" {
		o.FieldSelector = named(name)
	}
	shared := sharing{}
	err = r.eachConfigMap(ctx, o, func() { out = nil }, func(cm *corev1.ConfigMap) {
		out = append(out, strip(r.Rules, cm))
		shared.share(cm)
	})
	return out, err
}

// listNamed lists all ConfigMaps of a name, by namespace, also those without a label of ours.
func (r *Reader) listNamed(ctx context.Context, name string) (map[string]*corev1.ConfigMap, error) {
	out := map[string]*corev1.ConfigMap{}
	err := r.eachConfigMap(ctx, metav1.ListOptions{FieldSelector: named(name)}, func() { clear(out) }, func(cm *corev1.ConfigMap) {
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

// expired is how often a list is begun anew because it took longer than the API server keeps its state.
const expired = 3

// eachConfigMap calls each for every ConfigMap of a list that is read page by page. If the list has to begin anew it calls
// anew first.
func (r *Reader) eachConfigMap(ctx context.Context, o metav1.ListOptions, anew func(), each func(*corev1.ConfigMap)) error {
	o.Limit = firstPage
	for tries := 0; ; {
		page, err := r.Client.CoreV1().ConfigMaps(metav1.NamespaceAll).List(ctx, o)
		switch {
		case apierrors.IsResourceExpired(err) && o.Continue != "" && tries < expired:
			tries++
			o.Continue = ""
			anew()
			continue
		case err != nil:
			return fmt.Errorf("list ConfigMaps: %w", err)
		}
		bytes := 0
		for i := range page.Items {
			cm := page.Items[i] // the page is not kept
			bytes += cm.Size()
			each(&cm)
		}
		if page.Continue == "" {
			return nil
		}
		o.Continue, o.Limit = page.Continue, nextPage(len(page.Items), bytes)
	}
}

// Namespaces lists the namespaces.
func (r *Reader) Namespaces(ctx context.Context) ([]*corev1.Namespace, error) {
	var out []*corev1.Namespace
	o := metav1.ListOptions{Limit: largestPage}
	for {
		page, err := r.Client.CoreV1().Namespaces().List(ctx, o)
		if err != nil {
			return nil, fmt.Errorf("list namespaces: %w", err)
		}
		for i := range page.Items {
			ns := page.Items[i]
			plan.StripNamespace(&ns)
			out = append(out, &ns)
		}
		if page.Continue == "" {
			return out, nil
		}
		o.Continue = page.Continue
	}
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
