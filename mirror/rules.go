package mirror

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"
)

// rules are the options as the pure decisions need them.
type rules struct {
	label, instance  string
	prefixes         []string // of target namespaces; one empty prefix for --all-namespaces
	excluded         keyPatterns
	sourceNamespaces []string // nil: all
	copyLabels       keyPatterns
	copyAnnotations  keyPatterns
}

func newRules(o *Options) *rules {
	prefixes := o.NamespacePrefixes
	if o.AllNamespaces {
		prefixes = []string{""}
	}
	return &rules{
		label:            o.Label,
		instance:         o.Instance,
		prefixes:         prefixes,
		excluded:         o.ExcludeNamespaces,
		sourceNamespaces: o.SourceNamespaces,
		copyLabels:       o.CopyLabels,
		copyAnnotations:  o.CopyAnnotations,
	}
}

// allowsTarget reports whether the flags allow a namespace of this name to hold copies.
func (r *rules) allowsTarget(namespace string) bool {
	return hasAnyPrefix(namespace, r.prefixes) && !r.excluded.match(namespace)
}

// allowsSource reports whether the flags allow ConfigMaps of this namespace to be sources.
func (r *rules) allowsSource(namespace string) bool {
	return len(r.sourceNamespaces) == 0 || slices.Contains(r.sourceNamespaces, namespace)
}

// accepts reports whether the namespace itself accepts copies: it is not going away, and its owner has not
// opted out.
func (r *rules) accepts(ns *corev1.Namespace) bool {
	return !terminating(ns) && ns.Labels[r.label] != OptOutValue
}

func terminating(ns *corev1.Namespace) bool {
	return ns.DeletionTimestamp != nil || ns.Status.Phase == corev1.NamespaceTerminating
}

// asksToBeMirrored reports whether cm carries the label of a source and is neither a copy, of whichever
// instance, nor being deleted. Whether the flags let it be a source is another question: see isSource.
func (r *rules) asksToBeMirrored(cm *corev1.ConfigMap) bool {
	return cm.Labels[r.label] == SourceValue && !namesItself(cm) && cm.DeletionTimestamp == nil
}

// isSource reports whether cm is a source under the flags.
func (r *rules) isSource(cm *corev1.ConfigMap) bool {
	return r.asksToBeMirrored(cm) && r.allowsSource(cm.Namespace)
}

// seen reports whether the watch shows the object: it carries a label of ours.
func (r *rules) seen(cm *corev1.ConfigMap) bool {
	value := cm.Labels[r.label]
	return value == SourceValue || value == CopyValue
}

// namesItself reports whether the copy annotation of cm says that cm is a copy, by naming cm itself.
func namesItself(cm *corev1.ConfigMap) bool {
	named, ok := cm.Annotations[CopyAnnotation]
	return ok && sameKey(named, cm.Namespace, cm.Name)
}

// sourceOf returns the key of the source of which cm is a copy of ours, or false if cm is not ours. The
// label plays no part in it: a copy that lost it is still ours, and an object that merely carries it is not.
func (r *rules) sourceOf(cm *corev1.ConfigMap) (cache.ObjectName, bool) {
	if !namesItself(cm) || cm.Annotations[InstanceAnnotation] != r.instance {
		return cache.ObjectName{}, false
	}
	namespace, name, ok := strings.Cut(cm.Annotations[SourceAnnotation], "/")
	if !ok || name != cm.Name || namespace == "" || namespace == cm.Namespace {
		return cache.ObjectName{}, false
	}
	return cache.ObjectName{Namespace: namespace, Name: name}, true
}

// adoptable reports whether cm, which is not a copy of ours, was handed over to us by its owner. A copy of another
// instance cannot be, nor can a source: what names itself as a copy is none, whatever its label says.
func (r *rules) adoptable(cm *corev1.ConfigMap) bool {
	if cm.Annotations[AdoptAnnotation] != AdoptValue {
		return false
	}
	if namesItself(cm) {
		return cm.Annotations[InstanceAnnotation] == r.instance
	}
	return cm.Labels[r.label] != SourceValue
}

// sameKey reports whether key is namespace/name, without building that string.
func sameKey(key, namespace, name string) bool {
	return len(key) == len(namespace)+1+len(name) &&
		key[:len(namespace)] == namespace && key[len(namespace)] == '/' && key[len(namespace)+1:] == name
}

func hasAnyPrefix(s string, prefixes []string) bool {
	return slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(s, p) })
}
