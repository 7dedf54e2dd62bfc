package plan

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

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

// maxValue is how many bytes the value of an annotation of ours can have. The
// longest one that the controller writes is a key: 63 and 253 bytes and a '/'.
const maxValue = 600

// valueOf returns an annotation of ours. One above maxValue counts as absent:
// somebody else has written it.
func valueOf(cm *corev1.ConfigMap, key string) (value string, found bool) {
	if value, found = cm.Annotations[key]; len(value) > maxValue {
		return "", false
	}
	return value, found
}

// sameKey reports whether key is namespace/name, without building that string.
func sameKey(key, namespace, name string) bool {
	return len(key) == len(namespace)+1+len(name) &&
		key[:len(namespace)] == namespace && key[len(namespace)] == '/' && key[len(namespace)+1:] == name
}

// SourceOf returns the key of the source whose copy cm is, or false if cm is not a copy of ours. No label matters.
func (r *Rules) SourceOf(cm *corev1.ConfigMap) (types.NamespacedName, bool) {
	if m := MarksOf(cm); m.Itself && m.Instance == r.opts.Instance && m.Source.Name != "" {
		return m.Source, true
	}
	return types.NamespacedName{}, false
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
