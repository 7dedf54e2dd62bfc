package plan

import (
	"bytes"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
func (r *Rules) Differs(s *Source, made *corev1.ConfigMap) string {
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
func (r *Rules) marksDiffer(s *Source, have *corev1.ConfigMap) string {
	m := MarksOf(have)
	sum, _ := valueOf(have, ChecksumAnnotation)
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
	case sum != s.Checksum:
		return "annotation " + ChecksumAnnotation
	case adopting:
		return "annotation " + AdoptAnnotation
	}
	return ""
}

// contentOf returns the checksum of everything that a ConfigMap of the API holds
// of a source: its payload, and the metadata that its copied annotation lists.
// It is empty if the annotation is not as the controller writes it, so that no
// copy with such an annotation counts as in sync.
func (r *Rules) contentOf(cm *corev1.ConfigMap) string {
	list := cm.Annotations[CopiedAnnotation]
	labelKeys, annotationKeys := copiedKeys(list, r.label)
	labels := only(cm.Labels, labelKeys...)
	annotations := only(cm.Annotations, annotationKeys...)
	if list != copiedList(labels, annotations) {
		return ""
	}
	return checksum(payloadDigest(cm), labels, annotations)
}

// MatchesChecksum reports whether a copy, stripped or not, holds the content that
// its checksum annotation names.
func (r *Rules) MatchesChecksum(cm *corev1.ConfigMap) bool {
	content, listsCopied := cm.Annotations[contentMark]
	if !listsCopied {
		content = r.contentOf(cm)
	}
	return cm.Annotations[ChecksumAnnotation] == content
}

// DiffersInOthersAlone reports whether live, as the API server has it, differs
// from have, a stripped object of the cache, in nothing but metadata of other
// people.
func (r *Rules) DiffersInOthersAlone(live, have *corev1.ConfigMap) bool {
	return equality.Semantic.DeepEqual(r.withoutOthers(live), r.withoutOthers(have))
}

// withoutOthers returns what decisions depend on of an object: its stripped form
// without the marks of other people's metadata. Finalizers forbid an adoption,
// so those of a foreign object count.
func (r *Rules) withoutOthers(cm *corev1.ConfigMap) *corev1.ConfigMap {
	own := *cm
	r.Strip(&own)
	own.ResourceVersion = ""
	own.Annotations = maps.Clone(own.Annotations)
	delete(own.Annotations, othersMark)
	if _, ours := r.SourceOf(cm); ours {
		own.Finalizers = nil
	}
	return &own
}

func containsAll(have, want map[string]string) bool {
	return maps.Equal(only(have, slices.Collect(maps.Keys(want))...), want)
}

// Desired returns the copy of s in namespace. have is nil, or the object there
// as the API server has it: the copy keeps the UID and the resourceVersion of
// have, and the metadata of other people on it. The result shares its payload
// with the source and must not be changed.
func (r *Rules) Desired(s *Source, namespace string, have *corev1.ConfigMap) *corev1.ConfigMap {
	want := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: s.Key.Name},
		Data:       s.ConfigMap.Data,
		BinaryData: s.ConfigMap.BinaryData,
		Immutable:  s.ConfigMap.Immutable,
	}
	if have != nil {
		have.ObjectMeta.DeepCopyInto(&want.ObjectMeta)
		// An earlier write has copied these labels and annotations. The ones
		// that are still wanted are set below.
		copiedLabels, copiedAnnotations := copiedKeys(have.Annotations[CopiedAnnotation], r.label)
		without(want.Labels, copiedLabels)
		without(want.Annotations, copiedAnnotations)
		without(want.Annotations, []string{CopiedAnnotation, AdoptAnnotation})
		want.ManagedFields = nil
	}
	labels, annotations := r.metadata(s, namespace)
	want.Labels, want.Annotations = merged(want.Labels, labels), merged(want.Annotations, annotations)
	return want
}

// metadata returns the labels and annotations of a copy of s in namespace.
func (r *Rules) metadata(s *Source, namespace string) (labels, annotations map[string]string) {
	labels = merged(maps.Clone(s.labels), map[string]string{r.label: CopyValue, ManagedByLabel: ManagedByValue})
	annotations = merged(maps.Clone(s.annotations), map[string]string{
		SourceAnnotation:   s.Key.String(),
		CopyAnnotation:     namespace + "/" + s.Key.Name,
		ChecksumAnnotation: s.Checksum,
		InstanceAnnotation: r.opts.Instance,
	})
	if s.copied != "" {
		annotations[CopiedAnnotation] = s.copied
	}
	return labels, annotations
}

// without removes the entries of m with these keys.
func without(m map[string]string, keys []string) {
	maps.DeleteFunc(m, func(key, _ string) bool { return slices.Contains(keys, key) })
}

// merged adds the entries of more to base, which may be nil, and returns base.
func merged(base, more map[string]string) map[string]string {
	if base == nil {
		base = map[string]string{}
	}
	maps.Copy(base, more)
	return base
}
