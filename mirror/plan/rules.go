package plan

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
)

// Rules decide by a fixed set of options. All methods are pure and safe for concurrent use.
type Rules struct {
	label, instance  string
	prefixes         []string        // of target namespaces; one empty prefix for --all-namespaces
	selector         labels.Selector // of the labels of target namespaces
	excluded         keyPatterns
	sourceNamespaces []string // nil: all
	copyLabels       keyPatterns
	copyAnnotations  keyPatterns
	prune            bool
}

// NewRules returns the rules of the options, which must be valid.
func NewRules(o *Options) *Rules {
	selector, err := labels.Parse(o.NamespaceSelector)
	if err != nil {
		selector = labels.Nothing()
	}
	prefixes := o.NamespacePrefixes
	if o.AllNamespaces {
		prefixes = []string{""}
	}
	return &Rules{
		label:            o.Label,
		instance:         o.Instance,
		prefixes:         prefixes,
		selector:         selector,
		excluded:         o.ExcludeNamespaces,
		sourceNamespaces: o.SourceNamespaces,
		copyLabels:       o.CopyLabels,
		copyAnnotations:  o.CopyAnnotations,
		prune:            o.Prune,
	}
}

// Label returns the key of the mirror label.
func (r *Rules) Label() string { return r.label }

// Instance returns the instance of the controller.
func (r *Rules) Instance() string { return r.instance }

// AllowsTarget reports whether the flags allow a namespace of this name to hold copies. Its labels do not count, see
// [Rules.Selects].
func (r *Rules) AllowsTarget(namespace string) bool { return r.nameExclusion(namespace) == NotExcluded }

// nameExclusion returns the flag that rules out copies in a namespace of this name.
func (r *Rules) nameExclusion(namespace string) Exclusion {
	switch {
	case !hasAnyPrefix(namespace, r.prefixes):
		return ExcludedName
	case r.excluded.match(namespace):
		return ExcludedExplicitly
	}
	return NotExcluded
}

// Selects reports whether the labels of the namespace match --namespace-selector.
func (r *Rules) Selects(ns *corev1.Namespace) bool { return r.selector.Matches(labels.Set(ns.Labels)) }

// AllowsSource reports whether the flags allow ConfigMaps of this namespace to be sources.
func (r *Rules) AllowsSource(namespace string) bool {
	return len(r.sourceNamespaces) == 0 || slices.Contains(r.sourceNamespaces, namespace)
}

// Scope returns the flag that rules out copies of this source in the namespace: [ExcludedSource], [ExcludedName],
// [ExcludedExplicitly] or [ExcludedByNamespaceSelector]; [NotExcluded] if they are in scope. It does not depend on
// whether the source is there.
func (r *Rules) Scope(source types.NamespacedName, ns *corev1.Namespace) Exclusion {
	switch {
	case !r.AllowsSource(source.Namespace):
		return ExcludedSource
	case !r.AllowsTarget(ns.Name):
		return r.nameExclusion(ns.Name)
	case !r.Selects(ns):
		return ExcludedByNamespaceSelector
	}
	return NotExcluded
}

// Terminating reports whether the namespace is being deleted.
func Terminating(ns *corev1.Namespace) bool {
	return ns.DeletionTimestamp != nil || ns.Status.Phase == corev1.NamespaceTerminating
}

// AsksToBeMirrored reports whether cm has the label of a source, is not a copy of any instance, and is not being
// deleted. The flags may still rule it out, see [Rules.IsSource].
func (r *Rules) AsksToBeMirrored(cm *corev1.ConfigMap) bool {
	return cm.Labels[r.label] == SourceValue && !NamesItself(cm) && cm.DeletionTimestamp == nil
}

// IsSource reports whether cm is a source that the flags allow.
func (r *Rules) IsSource(cm *corev1.ConfigMap) bool {
	return r.AsksToBeMirrored(cm) && r.AllowsSource(cm.Namespace)
}

// Visible reports whether the watch of the controller shows the object: it has a mirror label with one of our values.
func (r *Rules) Visible(cm *corev1.ConfigMap) bool {
	value := cm.Labels[r.label]
	return value == SourceValue || value == CopyValue
}

// NamesItself reports whether the copy annotation of cm names cm itself. Such an object is never a source, for any
// instance.
func NamesItself(cm *corev1.ConfigMap) bool {
	if _, marked := cm.Annotations[selfMark]; marked {
		return true
	}
	named, ok := cm.Annotations[CopyAnnotation]
	return ok && sameKey(named, cm.Namespace, cm.Name)
}

// SourceOf returns the key of the source whose copy cm is, or false if cm is not a copy of ours. The label does not
// matter: a copy that lost it is still ours, and an object that merely has it is not.
func (r *Rules) SourceOf(cm *corev1.ConfigMap) (types.NamespacedName, bool) {
	if !NamesItself(cm) || cm.Annotations[InstanceAnnotation] != r.instance {
		return types.NamespacedName{}, false
	}
	return NamedSource(cm)
}

// Lacks returns which of the marks of a copy cm lacks: those by which it is recognized, and the label by which the
// watch shows it; empty if it has all.
func (r *Rules) Lacks(cm *corev1.ConfigMap) string {
	_, named := NamedSource(cm)
	switch {
	case cm.Labels[r.label] != CopyValue:
		return "label " + r.label
	case !NamesItself(cm):
		return "annotation " + CopyAnnotation
	case cm.Annotations[InstanceAnnotation] != r.instance:
		return "annotation " + InstanceAnnotation
	case !named:
		return "annotation " + SourceAnnotation
	}
	return ""
}

// NamedSource returns the source that the annotation of cm names, or false if it names no ConfigMap of the name of cm
// in another namespace.
func NamedSource(cm *corev1.ConfigMap) (types.NamespacedName, bool) {
	namespace, name, ok := strings.Cut(cm.Annotations[SourceAnnotation], "/")
	if !ok || name != cm.Name || namespace == cm.Namespace || !validNamespace(namespace) {
		return types.NamespacedName{}, false
	}
	return types.NamespacedName{Namespace: namespace, Name: name}, true
}

// adoptable reports whether the owner of cm, a foreign object, handed it over. A source and a copy of another instance
// cannot be adopted. Neither can an object with finalizers: a copy that replaces it could be held terminating.
func (r *Rules) adoptable(cm *corev1.ConfigMap) bool {
	if cm.Annotations[AdoptAnnotation] != AdoptValue || len(cm.Finalizers) > 0 {
		return false
	}
	if NamesItself(cm) { // never a source, whatever its label says
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
