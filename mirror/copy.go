package mirror

import (
	"bytes"
	"maps"
	"unique"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// inLine reports whether have, a copy of ours, is what s wants in the namespace of have. It looks at
// the content itself and not only at the checksum annotation, which survives an edit of the data.
func (r *rules) inLine(s *source, have *corev1.ConfigMap) bool {
	return payloadDigest(have) == s.payload && r.marked(s, have)
}

// asWritten is inLine for what the API server answers to a write. It has the payload, and to compare that costs less than
// to hash it.
func (r *rules) asWritten(s *source, made *corev1.ConfigMap) bool {
	return maps.Equal(made.Data, s.cm.Data) && maps.EqualFunc(made.BinaryData, s.cm.BinaryData, bytes.Equal) &&
		isImmutable(made) == isImmutable(s.cm) && r.marked(s, made)
}

// marked reports whether have carries the metadata of a copy of s.
//
// Metadata that was copied earlier and is no longer wanted needs no look of its own: it stands in the
// copied annotation, which then differs.
func (r *rules) marked(s *source, have *corev1.ConfigMap) bool {
	_, adopting := have.Annotations[AdoptAnnotation]
	return have.Labels[r.label] == CopyValue &&
		have.Labels[ManagedByLabel] == ManagedByValue &&
		sameKey(have.Annotations[SourceAnnotation], s.key.Namespace, s.key.Name) &&
		namesItself(have) &&
		have.Annotations[InstanceAnnotation] == r.instance &&
		have.Annotations[ChecksumAnnotation] == s.checksum &&
		have.Annotations[CopiedAnnotation] == s.copied &&
		!adopting &&
		containsAll(have.Labels, s.labels) &&
		containsAll(have.Annotations, s.annotations)
}

func containsAll(have, want map[string]string) bool {
	for k, v := range want {
		if got, ok := have[k]; !ok || got != v {
			return false
		}
	}
	return true
}

// desired returns the copy of s in namespace. have is what is there now, or nil: its resourceVersion and UID
// are kept, so that the write is refused if it has changed since, and so is the metadata that is not ours.
// The payload is shared with the source: the result is for sending, not for changing.
func (r *rules) desired(s *source, namespace string, have *corev1.ConfigMap) *corev1.ConfigMap {
	want := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: s.key.Name},
		Data:       s.cm.Data,
		BinaryData: s.cm.BinaryData,
		Immutable:  s.cm.Immutable,
	}
	if have != nil {
		have.ObjectMeta.DeepCopyInto(&want.ObjectMeta)
		delete(want.Annotations, digestMark)
		delete(want.Annotations, AdoptAnnotation)
		r.removeCopied(&want.ObjectMeta)
	}
	want.Labels = merged(want.Labels, s.labels, map[string]string{
		r.label:        CopyValue,
		ManagedByLabel: ManagedByValue,
	})
	want.Annotations = merged(want.Annotations, s.annotations, map[string]string{
		SourceAnnotation:   s.key.String(),
		CopyAnnotation:     namespace + "/" + s.key.Name,
		ChecksumAnnotation: s.checksum,
		InstanceAnnotation: r.instance,
	})
	if s.copied != "" {
		want.Annotations[CopiedAnnotation] = s.copied
	}
	return want
}

// removeCopied removes from the metadata of a copy all that an earlier write copied from a source.
func (r *rules) removeCopied(meta *metav1.ObjectMeta) {
	labels, annotations := copiedKeys(meta.Annotations[CopiedAnnotation], r.label)
	for _, k := range labels {
		delete(meta.Labels, k)
	}
	for _, k := range annotations {
		delete(meta.Annotations, k)
	}
	delete(meta.Annotations, CopiedAnnotation)
}

// merged adds the entries of the later maps to base, which may be nil and is changed, and returns it.
func merged(base map[string]string, more ...map[string]string) map[string]string {
	if base == nil {
		base = map[string]string{}
	}
	for _, m := range more {
		maps.Copy(base, m)
	}
	return base
}

// digestMark is the annotation under which the cache keeps the digest of a payload that it does not keep.
// No object from the API can carry it: a key with nothing before its '/' does not pass validation.
const digestMark = "/payload"

// strip prepares a ConfigMap for the cache, in place: a source stays whole, for its content is to be written;
// of everything else only the digest of the payload stays, so that the memory for a copy does not depend on
// its size. It is a [cache.TransformFunc] in substance, and idempotent, as the cache applies it twice on a
// relist.
func (r *rules) strip(cm *corev1.ConfigMap) {
	cm.ManagedFields = nil
	if _, done := cm.Annotations[digestMark]; done || r.isSource(cm) {
		return
	}
	sum := payloadDigest(cm)
	cm.Data, cm.BinaryData = nil, nil
	cm.Name, cm.Namespace = intern(cm.Name), intern(cm.Namespace)
	cm.Labels = interned(cm.Labels, len(cm.Labels))
	cm.Annotations = interned(cm.Annotations, len(cm.Annotations)+1)
	cm.Annotations[digestMark] = intern(string(sum))
}

// interned returns a copy of m, with room for size entries, whose strings are shared with all equal ones: a
// thousand copies of one source differ in little. What names the copy itself has no equal, and to look for one would be a
// third of the work.
func interned(m map[string]string, size int) map[string]string {
	out := make(map[string]string, size)
	for k, v := range m {
		if k != CopyAnnotation {
			v = intern(v)
		}
		out[intern(k)] = v
	}
	return out
}

func intern(s string) string { return unique.Make(s).Value() }
