package plan

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// maxValue is how many bytes the value of an annotation of ours can have. The
// longest one that the controller writes is a key: 63 and 253 bytes and a '/'.
const maxValue = 600

// valueOf returns an annotation of ours. One above maxValue counts as absent:
// somebody else has written it.
func valueOf(cm *corev1.ConfigMap, key string) (value string, found bool) {
	value, found = cm.Annotations[key]
	if len(value) > maxValue {
		return "", false
	}
	return value, found
}

// Marks are the annotations of a copy, by which a ConfigMap names its source.
// Anybody may have written them.
type Marks struct {
	// Itself is set if the copy annotation names the ConfigMap itself. It is never
	// a source then, for any instance.
	Itself bool
	// Instance is the value of the instance annotation; empty if there is none.
	Instance string
	// Source is the ConfigMap that the source annotation names; empty if it has
	// another name than this one, or if its namespace is the same or malformed.
	Source types.NamespacedName
	// Checksum is the value of the checksum annotation; empty if there is none.
	Checksum string
}

// MarksOf reads the marks of a ConfigMap, from the API or from the cache.
func MarksOf(cm *corev1.ConfigMap) (m Marks) {
	m.Itself = namesItself(cm)
	m.Instance, _ = valueOf(cm, InstanceAnnotation)
	m.Checksum, _ = valueOf(cm, ChecksumAnnotation)
	value, _ := valueOf(cm, SourceAnnotation)
	namespace, name, ok := strings.Cut(value, "/")
	if ok && name == cm.Name && namespace != cm.Namespace && validNamespace(namespace) {
		m.Source = types.NamespacedName{Namespace: namespace, Name: name}
	}
	return m
}

// namesItself reports whether the copy annotation names the ConfigMap itself. Of
// a stripped ConfigMap a mark stands for that annotation.
func namesItself(cm *corev1.ConfigMap) bool {
	if _, marked := cm.Annotations[selfMark]; marked {
		return true
	}
	named, _ := valueOf(cm, CopyAnnotation)
	namespace, name, _ := strings.Cut(named, "/")
	return namespace == cm.Namespace && name == cm.Name
}

// SourceOf returns the key of the source whose copy cm is, or false if cm is not
// a copy of ours. No label matters: a copy without one is still ours, and an
// object that merely has one is not.
func (r *Rules) SourceOf(cm *corev1.ConfigMap) (source types.NamespacedName, ours bool) {
	m := MarksOf(cm)
	if m.Itself && m.Instance == r.opts.Instance && m.Source.Name != "" {
		return m.Source, true
	}
	return types.NamespacedName{}, false
}

// AsksToBeMirrored reports whether cm has the label of a source, is not a copy of
// any instance, and is not being deleted. The flags may still rule it out, see
// [Rules.IsSource].
func (r *Rules) AsksToBeMirrored(cm *corev1.ConfigMap) bool {
	return cm.Labels[r.label] == SourceValue && !namesItself(cm) && cm.DeletionTimestamp == nil
}

// IsSource reports whether cm is a source that the flags allow.
func (r *Rules) IsSource(cm *corev1.ConfigMap) bool {
	return r.AsksToBeMirrored(cm) && r.AllowsSource(cm.Namespace)
}

// Visible reports whether the watch of the controller shows the object: it has a
// mirror label with one of our values.
func (r *Rules) Visible(cm *corev1.ConfigMap) bool {
	return cm.Labels[r.label] == SourceValue || cm.Labels[r.label] == CopyValue
}

// Foreign returns why have, a foreign object or one that is being deleted, is in
// the way of a copy, in words, and whether its owner can hand it over. A source
// and a copy of another instance cannot be. Neither can an object with
// finalizers: a copy that replaces it could be held terminating.
func (r *Rules) Foreign(have *corev1.ConfigMap) (why string, adoptable bool) {
	m := MarksOf(have)
	_, ours := r.SourceOf(have)
	const foreign = "a foreign ConfigMap of this name is there"
	switch {
	case have.DeletionTimestamp != nil && ours:
		return "a copy is there that is being deleted" + keptBy(have), false
	case have.DeletionTimestamp != nil:
		return foreign + " that is being deleted" + keptBy(have), false
	case r.AsksToBeMirrored(have):
		return "another source of this name is there", false
	case m.Itself && m.Instance == "":
		return "a copy of no instance is there", false
	case m.Itself && m.Instance != r.opts.Instance:
		return "a copy of instance " + Clip(m.Instance, maxQuoted) + " is there", false
	case len(have.Finalizers) > 0:
		return foreign + keptBy(have) + " from being handed over", false
	}
	return foreign, true
}

// isHandedOver reports whether the owner of have, a foreign object, handed it over
// and can do so.
func (r *Rules) isHandedOver(have *corev1.ConfigMap) bool {
	adopt, _ := valueOf(have, AdoptAnnotation)
	_, adoptable := r.Foreign(have)
	return adoptable && adopt == AdoptValue
}

// keptBy names the finalizer that keeps have, if it has one.
func keptBy(have *corev1.ConfigMap) string {
	if len(have.Finalizers) == 0 {
		return ""
	}
	return ", and its finalizer " + Clip(have.Finalizers[0], maxQuoted) + " keeps it"
}
