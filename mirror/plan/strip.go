package plan

import (
	"slices"
	"unique"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

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
	for _, key := range ourAnnotations {
		// All copies of a source differ in CopyAnnotation: a mark stands for it.
		// CopiedAnnotation has no bound: a checksum stands for it.
		value, found := valueOf(cm, key)
		if found && key != CopyAnnotation && key != CopiedAnnotation {
			kept[key] = value
		}
	}
	kept[payloadMark] = string(payloadDigest(cm))
	if _, listsCopied := cm.Annotations[CopiedAnnotation]; listsCopied {
		kept[contentMark] = contentChecksum(cm, r.label)
	}
	if namesItself(cm) {
		kept[selfMark] = ""
	}
	if r.hasOthers(cm) {
		kept[othersMark] = ""
	}
	*cm = corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:         Intern(cm.Namespace),
			Name:              Intern(cm.Name),
			UID:               cm.UID,
			ResourceVersion:   cm.ResourceVersion,
			CreationTimestamp: cm.CreationTimestamp,
			DeletionTimestamp: cm.DeletionTimestamp,
			Labels:            only(cm.Labels, r.label, ManagedByLabel),
			Annotations:       kept,
			Finalizers:        slices.Clone(cm.Finalizers[:min(1, len(cm.Finalizers))]),
		},
		Immutable: cm.Immutable,
	}
}

// hasOthers reports whether an object of the API has metadata of other people:
// labels, annotations, finalizers or ownerReferences.
func (r *Rules) hasOthers(cm *corev1.ConfigMap) bool {
	labels, annotations := copiedKeys(cm.Annotations[CopiedAnnotation], r.label)
	return len(cm.Finalizers) > 0 || len(cm.OwnerReferences) > 0 ||
		hasMore(cm.Labels, labels, r.label, ManagedByLabel) ||
		hasMore(cm.Annotations, annotations, ourAnnotations...)
}

// hasMore reports whether m has another key than those that were copied, and our
// own. A copied key is none of our own.
func hasMore(m map[string]string, copied []string, own ...string) bool {
	known := len(only(m, copied...)) // the list may name a key twice
	for _, key := range own {
		if _, ok := m[key]; ok {
			known++
		}
	}
	return len(m) > known
}

// HasOthers reports whether have, as the cache holds it, has metadata of other
// people.
func HasOthers(have *corev1.ConfigMap) bool {
	_, others := have.Annotations[othersMark]
	return others
}

// StripNamespace prepares a namespace for the cache, which keeps its labels and
// its phase. It is idempotent.
func StripNamespace(ns *corev1.Namespace) {
	ns.ObjectMeta = metav1.ObjectMeta{
		Name:              Intern(ns.Name),
		UID:               ns.UID,
		ResourceVersion:   ns.ResourceVersion,
		CreationTimestamp: ns.CreationTimestamp,
		DeletionTimestamp: ns.DeletionTimestamp,
		Labels:            ns.Labels,
	}
	ns.Spec = corev1.NamespaceSpec{}
	ns.Status.Conditions = nil
}

// Intern returns s, sharing its memory with all equal strings.
func Intern(s string) string { return unique.Make(s).Value() }
