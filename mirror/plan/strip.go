package plan

import (
	"slices"
	"unique"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Marks of the cache are annotations. No object from the API can have them: a
// key that begins with '/' is invalid.
const (
	// payloadMark is the digest of the payload.
	payloadMark = "/payload"
	// contentMark, on an object with a copied annotation, stands for that
	// annotation and the metadata that it lists. Its value is that of contentOf.
	contentMark = "/content"
	// selfMark stands for a copy annotation that names the object itself.
	selfMark = "/self"
	// othersMark stands for metadata of other people.
	othersMark = "/others"
)

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

// Strip prepares a ConfigMap for the cache. A source keeps its payload. Anything
// else keeps digests in place of its payload and of the copied metadata, our own
// keys, and a mark if there is metadata of other people. So nothing that a
// tenant writes into a ConfigMap makes the cache larger. Strip changes cm, but no
// map of cm. It is idempotent: the cache applies it twice on a relist.
func (r *Rules) Strip(cm *corev1.ConfigMap) {
	cm.ManagedFields = nil
	if _, done := cm.Annotations[payloadMark]; done || r.IsSource(cm) {
		return
	}
	kept := make(map[string]string, 8)
	for _, key := range [...]string{SourceAnnotation, InstanceAnnotation, ChecksumAnnotation, AdoptAnnotation} {
		if value, found := valueOf(cm, key); found {
			kept[key] = value
		}
	}
	kept[payloadMark] = string(payloadDigest(cm))
	if _, listsCopied := cm.Annotations[CopiedAnnotation]; listsCopied {
		kept[contentMark] = r.contentOf(cm)
	}
	if namesItself(cm) { // all copies of a source differ in this annotation
		kept[selfMark] = ""
	}
	if r.hasOthers(cm) {
		kept[othersMark] = ""
	}
	labels := cm.Labels
	if len(labels) > count(labels, r.label, ManagedByLabel) {
		labels = only(labels, r.label, ManagedByLabel)
	}
	*cm = corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: Intern(cm.Namespace), Name: Intern(cm.Name), UID: cm.UID, ResourceVersion: cm.ResourceVersion,
			CreationTimestamp: cm.CreationTimestamp, DeletionTimestamp: cm.DeletionTimestamp,
			Labels: labels, Annotations: kept,
			Finalizers: slices.Clone(cm.Finalizers[:min(1, len(cm.Finalizers))]),
		},
		Immutable: cm.Immutable,
	}
}

// hasOthers reports whether an object of the API has metadata of other people:
// labels, annotations, finalizers or ownerReferences.
func (r *Rules) hasOthers(cm *corev1.ConfigMap) bool {
	labels, annotations := copiedKeys(cm.Annotations[CopiedAnnotation], r.label)
	ourLabels := count(cm.Labels, r.label, ManagedByLabel) + count(cm.Labels, labels...)
	ours := count(cm.Annotations, ourAnnotations...) + count(cm.Annotations, annotations...)
	return len(cm.Finalizers) > 0 || len(cm.OwnerReferences) > 0 ||
		len(cm.Labels) > ourLabels || len(cm.Annotations) > ours
}

// count returns how many of these keys, which differ, m has.
func count(m map[string]string, keys ...string) (n int) {
	for _, k := range keys {
		if _, ok := m[k]; ok {
			n++
		}
	}
	return n
}

// HasOthers reports whether have, as the cache holds it, has metadata of other people.
func HasOthers(have *corev1.ConfigMap) bool {
	_, others := have.Annotations[othersMark]
	return others
}

// StripNamespace prepares a namespace for the cache, which keeps its labels and
// its phase. It is idempotent.
func StripNamespace(ns *corev1.Namespace) {
	ns.ObjectMeta = metav1.ObjectMeta{
		Name: Intern(ns.Name), UID: ns.UID, ResourceVersion: ns.ResourceVersion,
		CreationTimestamp: ns.CreationTimestamp, DeletionTimestamp: ns.DeletionTimestamp, Labels: ns.Labels,
	}
	ns.Spec = corev1.NamespaceSpec{}
	ns.Status.Conditions = nil
}

// only returns the entries of m with these keys; nil if there are none.
func only(m map[string]string, keys ...string) (out map[string]string) {
	for _, k := range keys {
		if v, ok := m[k]; ok {
			if out == nil {
				out = map[string]string{}
			}
			out[k] = v
		}
	}
	return out
}

// Intern returns s, sharing its memory with all equal strings.
func Intern(s string) string { return unique.Make(s).Value() }
