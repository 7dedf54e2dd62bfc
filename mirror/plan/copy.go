package plan

import (
	"bytes"
	"maps"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// inSync reports whether have, a copy of ours, matches s. It compares the content itself: the checksum annotation
// survives an edit of the data.
func (r *Rules) inSync(s *Source, have *corev1.ConfigMap) bool {
	return payloadDigest(have) == s.payload && r.hasMetadata(s, have)
}

// InSync reports whether made, the API server's answer to a write, matches s. The answer has its payload, and comparing
// that is cheaper than hashing it.
func (r *Rules) InSync(s *Source, made *corev1.ConfigMap) bool {
	return maps.Equal(made.Data, s.ConfigMap.Data) &&
		maps.EqualFunc(made.BinaryData, s.ConfigMap.BinaryData, bytes.Equal) &&
		isImmutable(made) == isImmutable(s.ConfigMap) && r.hasMetadata(s, made)
}

// hasMetadata reports whether have has the metadata of a copy of s. Metadata that was copied earlier and is no longer
// wanted needs no check: the copied annotation lists it, and so differs.
func (r *Rules) hasMetadata(s *Source, have *corev1.ConfigMap) bool {
	_, adopting := have.Annotations[AdoptAnnotation]
	return have.Labels[r.label] == CopyValue &&
		have.Labels[ManagedByLabel] == ManagedByValue &&
		sameKey(have.Annotations[SourceAnnotation], s.Key.Namespace, s.Key.Name) &&
		NamesItself(have) &&
		have.Annotations[InstanceAnnotation] == r.instance &&
		have.Annotations[ChecksumAnnotation] == s.Checksum &&
		!adopting && r.hasCopied(s, have)
}

// hasCopied reports whether have has the metadata that is copied from s. Where that is truncated, the checksum
// annotation stands for it.
func (r *Rules) hasCopied(s *Source, have *corev1.ConfigMap) bool {
	if isTruncated(have) {
		return true
	}
	return have.Annotations[CopiedAnnotation] == s.copied &&
		containsAll(have.Labels, s.labels) && containsAll(have.Annotations, s.annotations)
}

// MatchesChecksum reports whether a copy holds what its checksum annotation says. label is the key of the mirror label.
func MatchesChecksum(cm *corev1.ConfigMap, label string) bool {
	labels, annotations := copiedKeys(cm.Annotations[CopiedAnnotation], label)
	return cm.Annotations[ChecksumAnnotation] ==
		checksum(payloadDigest(cm), only(cm.Labels, labels...), only(cm.Annotations, annotations...))
}

func containsAll(have, want map[string]string) bool {
	for k, v := range want {
		if got, ok := have[k]; !ok || got != v {
			return false
		}
	}
	return true
}

// Desired returns the copy of s in namespace. have is the present object there, or nil. Desired keeps its
// resourceVersion and UID, so that the API server refuses the write if it changed, and its metadata that is not ours.
// The result shares its payload with the source and must not be changed.
func (r *Rules) Desired(s *Source, namespace string, have *corev1.ConfigMap) *corev1.ConfigMap {
	want := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: s.Key.Name},
		Data:       s.ConfigMap.Data,
		BinaryData: s.ConfigMap.BinaryData,
		Immutable:  s.ConfigMap.Immutable,
	}
	if have != nil {
		have.ObjectMeta.DeepCopyInto(&want.ObjectMeta)
		maps.DeleteFunc(want.Annotations, func(k, _ string) bool { return strings.HasPrefix(k, "/") }) // marks
		delete(want.Annotations, AdoptAnnotation)
		r.removeCopied(&want.ObjectMeta)
	}
	want.Labels = merged(want.Labels, s.labels, map[string]string{
		r.label:        CopyValue,
		ManagedByLabel: ManagedByValue,
	})
	want.Annotations = merged(want.Annotations, s.annotations, map[string]string{
		SourceAnnotation:   s.Key.String(),
		CopyAnnotation:     namespace + "/" + s.Key.Name,
		ChecksumAnnotation: s.Checksum,
		InstanceAnnotation: r.instance,
	})
	if s.copied != "" {
		want.Annotations[CopiedAnnotation] = s.copied
	}
	return want
}

// removeCopied removes the metadata that an earlier write copied from a source.
func (r *Rules) removeCopied(meta *metav1.ObjectMeta) {
	labels, annotations := copiedKeys(meta.Annotations[CopiedAnnotation], r.label)
	for _, k := range labels {
		delete(meta.Labels, k)
	}
	for _, k := range annotations {
		delete(meta.Annotations, k)
	}
	delete(meta.Annotations, CopiedAnnotation)
}

// merged adds the entries of the other maps to base, which may be nil, and returns base.
func merged(base map[string]string, more ...map[string]string) map[string]string {
	if base == nil {
		base = map[string]string{}
	}
	for _, m := range more {
		maps.Copy(base, m)
	}
	return base
}
