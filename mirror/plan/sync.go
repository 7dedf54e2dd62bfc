package plan

import (
	"bytes"
	"maps"

	corev1 "k8s.io/api/core/v1"
)

// inSync reports whether have, a stripped copy of ours, matches s. It compares
// the content itself: the checksum annotation survives an edit of the data.
func (r *Rules) inSync(s *Source, have *corev1.ConfigMap) bool {
	content, listsCopied := have.Annotations[contentMark]
	return payloadDigest(have) == s.payload &&
		r.marksDiffer(s, have) == "" &&
		listsCopied == (s.copied != "") &&
		(!listsCopied || content == s.Checksum)
}

// Differs returns what of made, the API server's answer to a write, differs
// from a copy of s, in words; empty if nothing does. The answer has its
// payload, and comparing that is cheaper than hashing it.
func (r *Rules) Differs(s *Source, made *corev1.ConfigMap) (what string) {
	if difference := r.marksDiffer(s, made); difference != "" {
		return difference
	}
	switch {
	case !maps.Equal(made.Data, s.ConfigMap.Data):
		return "data"
	case !maps.EqualFunc(made.BinaryData, s.ConfigMap.BinaryData, bytes.Equal):
		return "binaryData"
	case isImmutable(made) != isImmutable(s.ConfigMap):
		return "immutable"
	case made.Annotations[CopiedAnnotation] != s.copied:
		return "annotation " + CopiedAnnotation
	case !containsAll(made.Labels, s.labels):
		return "labels"
	case !containsAll(made.Annotations, s.annotations):
		return "annotations"
	}
	return ""
}

// marksDiffer returns the first label or annotation by which have is no copy of
// s in sync; empty if have has all of them. Both kinds of ConfigMaps will do: as
// the API server has them, and stripped.
func (r *Rules) marksDiffer(s *Source, have *corev1.ConfigMap) (what string) {
	m := MarksOf(have)
	_, adopting := valueOf(have, AdoptAnnotation)
	switch {
	case have.Labels[r.label] != CopyValue:
		return "label " + r.label
	case have.Labels[ManagedByLabel] != ManagedByValue:
		return "label " + ManagedByLabel
	case !m.Itself:
		return "annotation " + CopyAnnotation
	case m.Instance != r.opts.Instance:
		return "annotation " + InstanceAnnotation
	case m.Source != s.Key:
		return "annotation " + SourceAnnotation
	case m.Checksum != s.Checksum:
		return "annotation " + ChecksumAnnotation
	case adopting:
		return "annotation " + AdoptAnnotation
	}
	return ""
}

// MatchesChecksum reports whether a copy, stripped or not, holds the content that
// its checksum annotation names.
func (r *Rules) MatchesChecksum(cm *corev1.ConfigMap) bool {
	content, listsCopied := cm.Annotations[contentMark]
	if !listsCopied {
		content = contentChecksum(cm, r.label)
	}
	return content != "" && MarksOf(cm).Checksum == content
}
