package plan

import (
	"iter"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
)

// Rules decide by a fixed set of options. All methods are pure and safe for concurrent use.
type Rules struct {
	opts     Options
	prefixes []string        // of target namespaces; one empty prefix for --all-namespaces
	selector labels.Selector // of the labels of target namespaces
	label    string          // the key of the mirror label
}

// NewRules returns the rules of the options, which must be valid.
func NewRules(o *Options) *Rules {
	selector, err := labels.Parse(o.NamespaceSelector)
	if err != nil {
		selector = labels.Nothing()
	}
	r := &Rules{opts: *o, prefixes: o.NamespacePrefixes, selector: selector, label: o.Label}
	if o.AllNamespaces {
		r.prefixes = []string{""}
	}
	return r
}

// Label returns the key of the mirror label.
func (r *Rules) Label() string { return r.label }

// Instance returns the instance of the controller.
func (r *Rules) Instance() string { return r.opts.Instance }

// AllowsTarget reports whether the flags allow a namespace of this name to hold copies. Its labels do not count.
func (r *Rules) AllowsTarget(namespace string) bool {
	return hasAnyPrefix(namespace, r.prefixes) && !matchKey(r.opts.ExcludeNamespaces, namespace)
}

// AllowsSource reports whether the flags allow ConfigMaps of this namespace to be sources.
func (r *Rules) AllowsSource(namespace string) bool {
	return len(r.opts.SourceNamespaces) == 0 || slices.Contains(r.opts.SourceNamespaces, namespace)
}

// Scope returns the flag that rules out copies of this source, which may be gone, in the namespace: [ExcludedSource],
// [ExcludedName], [ExcludedExplicitly] or [ExcludedByNamespaceSelector]; [NotExcluded] if they are in scope.
func (r *Rules) Scope(source types.NamespacedName, ns *corev1.Namespace) Exclusion {
	if !r.AllowsSource(source.Namespace) {
		return ExcludedSource
	}
	for _, e := range [...]Exclusion{ExcludedName, ExcludedExplicitly, ExcludedByNamespaceSelector} {
		if !exclusions[e].holds(at{r, nil, ns}) {
			return e
		}
	}
	return NotExcluded
}

// TargetNamespaces returns the namespaces in which there may be something to decide about a name: those that the flags
// allow, if the name has a source, and those that have an object of the name.
func (r *Rules) TargetNamespaces(v *View, namespaces, objects iter.Seq[string]) map[string]bool {
	targets := map[string]bool{}
	for namespace := range objects {
		targets[namespace] = true
	}
	if len(v.Sources) > 0 {
		for namespace := range namespaces {
			if r.AllowsTarget(namespace) {
				targets[namespace] = true
			}
		}
	}
	return targets
}

// Terminating reports whether the namespace is being deleted.
func Terminating(ns *corev1.Namespace) bool {
	return ns.DeletionTimestamp != nil || ns.Status.Phase == corev1.NamespaceTerminating
}

// AsksToBeMirrored reports whether cm has the label of a source, is not a copy of any instance, and is not being
// deleted. The flags may still rule it out, see [Rules.IsSource].
func (r *Rules) AsksToBeMirrored(cm *corev1.ConfigMap) bool {
	return cm.Labels[r.label] == SourceValue && !namesItself(cm) && cm.DeletionTimestamp == nil
}

// IsSource reports whether cm is a source that the flags allow.
func (r *Rules) IsSource(cm *corev1.ConfigMap) bool {
	return r.AsksToBeMirrored(cm) && r.AllowsSource(cm.Namespace)
}

// Visible reports whether the watch of the controller shows the object: it has a mirror label with one of our values.
func (r *Rules) Visible(cm *corev1.ConfigMap) bool {
	return cm.Labels[r.label] == SourceValue || cm.Labels[r.label] == CopyValue
}

// Marks are what a ConfigMap says of itself in the annotations of a copy.
type Marks struct {
	Itself   bool                 // the copy annotation names the ConfigMap itself: it is never a source, for any instance
	Instance string               // the value of the instance annotation; empty if there is none
	Source   types.NamespacedName // of its name, in another namespace, by the source annotation; empty if that has none
}

// MarksOf reads the marks of a ConfigMap, from the API or from the cache.
func MarksOf(cm *corev1.ConfigMap) (m Marks) {
	m.Itself = namesItself(cm)
	m.Instance, _ = valueOf(cm, InstanceAnnotation)
	value, _ := valueOf(cm, SourceAnnotation)
	namespace, name, ok := strings.Cut(value, "/")
	if ok && name == cm.Name && namespace != cm.Namespace && validNamespace(namespace) {
		m.Source = types.NamespacedName{Namespace: namespace, Name: name}
	}
	return m
}

func namesItself(cm *corev1.ConfigMap) bool {
	if _, marked := cm.Annotations[selfMark]; marked {
		return true
	}
	named, _ := valueOf(cm, CopyAnnotation)
	return sameKey(named, cm.Namespace, cm.Name)
}

// SourceOf returns the key of the source whose copy cm is, or false if cm is not a copy of ours. No label matters.
func (r *Rules) SourceOf(cm *corev1.ConfigMap) (types.NamespacedName, bool) {
	if m := MarksOf(cm); m.Itself && m.Instance == r.opts.Instance && m.Source.Name != "" {
		return m.Source, true
	}
	return types.NamespacedName{}, false
}

// adoptable reports whether the owner of cm, a foreign object, handed it over. A source and a copy of another instance
// cannot be adopted. Neither can an object with finalizers: a copy that replaces it could be held terminating.
func (r *Rules) adoptable(cm *corev1.ConfigMap) bool {
	if adopt, _ := valueOf(cm, AdoptAnnotation); adopt != AdoptValue || len(cm.Finalizers) > 0 {
		return false
	}
	if m := MarksOf(cm); m.Itself { // never a source, whatever its label says
		return m.Instance == r.opts.Instance
	}
	return cm.Labels[r.label] != SourceValue
}

// Exclusion is the first rule that keeps a source from a namespace.
type Exclusion int

// The rules, in the order in which they are asked.
const (
	NotExcluded                 Exclusion = iota
	SourceGone                            // no ConfigMap of that key asks to be mirrored
	ExcludedSource                        // the source is out of scope of the flags, has a reserved name, or is frozen
	ExcludedName                          // --namespace-prefix does not allow the namespace
	ExcludedExplicitly                    // --exclude-namespace names the namespace
	ExcludedByPrefix                      // by the annotation of the source
	ExcludedTerminating                   // the namespace is being deleted
	ExcludedByOptOut                      // by the label of the namespace
	ExcludedBySelector                    // by the annotation of the source
	ExcludedByNamespaceSelector           // by the flag
	ExcludedOwn                           // the namespace is that of the source
)

// at is a source and a namespace, to be judged by the rules. The rules of flags need no source.
type at struct {
	r  *Rules
	s  *Source
	ns *corev1.Namespace
}

// exclusions has, of each rule by which a source has a copy in a namespace: whether it holds, why there is no copy
// where it does not hold, and what its owner can do about that.
var exclusions = [...]struct {
	holds       func(at) bool
	why, remedy string
}{
	SourceGone: {nil, "the source is deleted, or has lost its label {label}=true",
		"create the source again, or label it again"},
	ExcludedSource: {func(a at) bool { return !a.s.OutOfScope && !a.s.Reserved && a.s.Frozen == nil },
		"--source-namespace does not allow the source", "start the controller with other flags"},
	ExcludedName: {func(a at) bool { return hasAnyPrefix(a.ns.Name, a.r.prefixes) },
		"--namespace-prefix does not allow the namespace", "start the controller with other flags"},
	ExcludedExplicitly: {func(a at) bool { return !matchKey(a.r.opts.ExcludeNamespaces, a.ns.Name) },
		"--exclude-namespace names the namespace", "start the controller with other flags"},
	ExcludedByPrefix: {func(a at) bool { return a.s.prefixes == nil || hasAnyPrefix(a.ns.Name, a.s.prefixes) },
		"the source's annotation {annotation} rules the namespace out", "correct the annotation namespace-prefix"},
	ExcludedTerminating: {func(a at) bool { return !Terminating(a.ns) },
		"the namespace is being deleted", "create it again when it is gone"},
	ExcludedByOptOut: {func(a at) bool { return a.ns.Labels[a.r.label] != OptOutValue },
		"the namespace has the label {label}=false", "remove that label"},
	ExcludedBySelector: {func(a at) bool { return a.s.selector.Matches(labels.Set(a.ns.Labels)) },
		"the source's annotation {annotation} does not match the namespace",
		"correct the annotation namespace-selector, or the labels of the namespace"},
	ExcludedByNamespaceSelector: {func(a at) bool { return a.r.selector.Matches(labels.Set(a.ns.Labels)) },
		"the controller's --namespace-selector does not match the namespace", "correct the labels of the namespace"},
	ExcludedOwn: {func(a at) bool { return a.ns.Name != a.s.Key.Namespace },
		"the namespace is that of the source", "have the source select another namespace, or move it"},
}

// Exclusion returns what keeps the source from the namespace.
func (r *Rules) Exclusion(s *Source, ns *corev1.Namespace) Exclusion {
	for e := ExcludedSource; e <= ExcludedOwn; e++ {
		if !exclusions[e].holds(at{r, s, ns}) {
			return e
		}
	}
	return NotExcluded
}

// sameKey reports whether key is namespace/name, without building that string.
func sameKey(key, namespace, name string) bool {
	return len(key) == len(namespace)+1+len(name) &&
		key[:len(namespace)] == namespace && key[len(namespace)] == '/' && key[len(namespace)+1:] == name
}

func hasAnyPrefix(s string, prefixes []string) bool {
	return slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(s, p) })
}
