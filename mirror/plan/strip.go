package plan

import (
	"maps"
	"unique"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Marks are annotations that only objects in the cache have. No object from the API can have them: a key with nothing
// before its '/' is invalid.
const (
	digestMark    = "/payload"   // the digest of the payload
	selfMark      = "/self"      // the copy annotation named the object itself, and is left out
	truncatedMark = "/truncated" // the metadata is truncated
)

const (
	// maxMetadata bounds the metadata that the cache keeps of a namespace, and of a ConfigMap that is no source, in bytes:
	// anybody who may write such objects can make many, and give each 256 KiB of annotations and more of labels.
	maxMetadata = 8 << 10
	// maxValue bounds a value of ours in truncated metadata, in bytes. The longest true one is a key: 63 and 253 and a
	// '/'.
	maxValue = 600
)

// Strip prepares a ConfigMap for the cache. A source keeps its payload, which the controller writes. Everything else
// keeps the digest of its payload and at most maxMetadata of its metadata, so that neither its size nor its owner
// decides how much memory it takes.
//
// Strip changes cm, but no map of cm. It is idempotent: the cache applies it twice on a relist.
func (r *Rules) Strip(cm *corev1.ConfigMap) {
	cm.ManagedFields = nil
	if _, done := cm.Annotations[digestMark]; done || r.IsSource(cm) {
		return
	}
	marks := map[string]string{digestMark: string(payloadDigest(cm))}
	if metadataBytes(cm) > maxMetadata {
		marks[truncatedMark] = ""
		cm.ObjectMeta = r.truncatedMeta(cm)
	}
	annotations := maps.Clone(cm.Annotations)
	if NamesItself(cm) { // all copies of a source differ in this annotation
		marks[selfMark] = ""
		delete(annotations, CopyAnnotation)
	}
	cm.Annotations = merged(annotations, marks)
	cm.Data, cm.BinaryData = nil, nil
	cm.Name, cm.Namespace = Intern(cm.Name), Intern(cm.Namespace)
}

// entryBytes is what an entry of a map or list takes in memory, besides its text.
const entryBytes = 64

// metadataBytes estimates what the metadata of cm takes in memory.
func metadataBytes(cm *corev1.ConfigMap) int {
	return cm.ObjectMeta.Size() +
		entryBytes*(len(cm.Labels)+len(cm.Annotations)+len(cm.Finalizers)+len(cm.OwnerReferences))
}

// mapBytes estimates what a map takes in memory.
func mapBytes(m map[string]string) (n int) {
	for k, v := range m {
		n += entryBytes + len(k) + len(v)
	}
	return n
}

// truncatedMeta returns the metadata of cm on which decisions depend.
func (r *Rules) truncatedMeta(cm *corev1.ConfigMap) metav1.ObjectMeta {
	meta := metav1.ObjectMeta{
		Namespace: cm.Namespace, Name: cm.Name, UID: cm.UID, ResourceVersion: cm.ResourceVersion,
		CreationTimestamp: cm.CreationTimestamp, DeletionTimestamp: cm.DeletionTimestamp,
		Labels: only(cm.Labels, r.label, ManagedByLabel),
		Annotations: only(cm.Annotations,
			SourceAnnotation, CopyAnnotation, ChecksumAnnotation, InstanceAnnotation, AdoptAnnotation),
	}
	maps.DeleteFunc(meta.Annotations, func(_, v string) bool { return len(v) > maxValue }) // no true value is that long
	for _, f := range cm.Finalizers {                                                      // an update keeps them
		if meta.Size() > maxMetadata {
			break
		}
		meta.Finalizers = append(meta.Finalizers, f)
	}
	return meta
}

// isTruncated reports whether the cache holds only a part of the metadata of cm.
func isTruncated(cm *corev1.ConfigMap) bool {
	_, truncated := cm.Annotations[truncatedMark]
	return truncated
}

// StripNamespace prepares a namespace for the cache, which keeps its labels and its phase. Of labels that take more
// than maxMetadata it keeps none: see [LabelsTruncated].
//
// It is idempotent, as Strip is, and changes no map.
func StripNamespace(ns *corev1.Namespace) {
	if LabelsTruncated(ns) {
		return
	}
	ns.ObjectMeta = metav1.ObjectMeta{
		Name: Intern(ns.Name), UID: ns.UID, ResourceVersion: ns.ResourceVersion,
		CreationTimestamp: ns.CreationTimestamp, DeletionTimestamp: ns.DeletionTimestamp, Labels: ns.Labels,
	}
	ns.Spec, ns.Status.Conditions = corev1.NamespaceSpec{}, nil
	if mapBytes(ns.Labels) > maxMetadata {
		ns.Labels, ns.Annotations = nil, map[string]string{truncatedMark: ""}
	}
}

// LabelsTruncated reports whether the cache does not hold the labels of the namespace. No rule can be applied to such a
// namespace, so nothing is changed there.
func LabelsTruncated(ns *corev1.Namespace) bool {
	_, truncated := ns.Annotations[truncatedMark]
	return truncated
}

// only returns the entries of m with these keys.
func only(m map[string]string, keys ...string) map[string]string {
	out := map[string]string{}
	for _, k := range keys {
		if v, ok := m[k]; ok {
			out[k] = v
		}
	}
	return out
}

// Intern returns s, sharing its memory with all equal strings.
func Intern(s string) string { return unique.Make(s).Value() }
