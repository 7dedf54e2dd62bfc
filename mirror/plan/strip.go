package plan

import (
	"slices"
	"unique"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Marks of the cache are annotations. No object from the API can have them: a key that begins with '/' is invalid.
const (
	payloadMark   = "/payload"   // the digest of the payload
	contentMark   = "/content"   // the checksum of the payload and the metadata that the copied annotation lists, if any
	selfMark      = "/self"      // the copy annotation names the object itself
	othersMark    = "/others"    // there is metadata of other people; otherLabels if some of it are labels
	truncatedMark = "/truncated" // the labels of the namespace are left out
)

const (
	// Bounds in bytes: of the labels that the cache keeps of a namespace, of a value of ours (the longest true one is a
	// key: 63 and 253 and a '/'), and of the copied annotation, of which a longer one is replaced by a hash.
	maxLabels, maxValue, maxCopied = 8 << 10, 600, 4 << 10

	hashed      = "sha256:" // the beginning of a hash
	otherLabels = "labels"
)

// valueOf returns an annotation of ours. One above maxValue counts as absent: somebody else has written it.
func valueOf(cm *corev1.ConfigMap, key string) (value string, found bool) {
	if value, found = cm.Annotations[key]; len(value) > maxValue {
		return "", false
	}
	return value, found
}

// boundedCopied returns a value of the copied annotation, or the hash that stands for it.
func boundedCopied(list string) string {
	if len(list) <= maxCopied {
		return list
	}
	return checksum(digest(list), nil, nil)
}

// Strip prepares a ConfigMap for the cache. A source keeps its payload. Everything else keeps digests in place of its
// payload and of the copied metadata, our own keys, and a mark if there is anything else. Strip changes cm, but no map
// of cm. It is idempotent: the cache applies it twice on a relist.
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
	if list, found := cm.Annotations[CopiedAnnotation]; found {
		kept[CopiedAnnotation], kept[contentMark] = boundedCopied(list), r.contentOf(cm)
	}
	if namesItself(cm) { // all copies of a source differ in this annotation
		kept[selfMark] = ""
	}
	if hasLabels, hasAny := r.others(cm); hasLabels {
		kept[othersMark] = otherLabels
	} else if hasAny {
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

// others reports whether cm has labels of other people, and whether it has any metadata of theirs: labels, annotations,
// finalizers or ownerReferences.
func (r *Rules) others(cm *corev1.ConfigMap) (hasLabels, hasAny bool) {
	labels, annotations := copiedKeys(cm.Annotations[CopiedAnnotation], r.label)
	hasLabels = len(cm.Labels) > count(cm.Labels, r.label, ManagedByLabel)+count(cm.Labels, labels...)
	return hasLabels, hasLabels || len(cm.Finalizers)+len(cm.OwnerReferences) > 0 ||
		len(cm.Annotations) > count(cm.Annotations, ourAnnotations...)+count(cm.Annotations, annotations...)
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

// StripNamespace prepares a namespace for the cache, which keeps its labels and its phase. Of labels that take more
// than maxLabels it keeps none: see [LabelsTruncated]. It is idempotent, and changes no map.
func StripNamespace(ns *corev1.Namespace) {
	if LabelsTruncated(ns) {
		return
	}
	ns.ObjectMeta = metav1.ObjectMeta{
		Name: Intern(ns.Name), UID: ns.UID, ResourceVersion: ns.ResourceVersion,
		CreationTimestamp: ns.CreationTimestamp, DeletionTimestamp: ns.DeletionTimestamp, Labels: ns.Labels,
	}
	ns.Spec, ns.Status.Conditions = corev1.NamespaceSpec{}, nil
	if sizeOf(ns.Labels, 64) > maxLabels { // an entry takes some 64 bytes of memory besides its text
		ns.Labels, ns.Annotations = nil, map[string]string{truncatedMark: ""}
	}
}

// LabelsTruncated reports whether the cache does not hold the labels of the namespace. No rule can be applied to such a
// namespace, so nothing is changed there.
func LabelsTruncated(ns *corev1.Namespace) bool {
	_, truncated := ns.Annotations[truncatedMark]
	return truncated
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
