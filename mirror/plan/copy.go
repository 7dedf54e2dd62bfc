package plan

import (
	"maps"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

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
		want.ManagedFields = nil
		// An earlier write has copied these labels and annotations. The ones
		// that are still wanted are set below.
		labelKeys, annotationKeys := copiedKeys(have.Annotations[CopiedAnnotation], r.label)
		without(want.Labels, labelKeys)
		without(want.Annotations, annotationKeys)
		without(want.Annotations, []string{CopiedAnnotation, AdoptAnnotation})
	}
	want.Labels = labels.Merge(want.Labels, s.labels)
	want.Labels[r.label] = CopyValue
	want.Labels[ManagedByLabel] = ManagedByValue

	want.Annotations = labels.Merge(want.Annotations, s.annotations)
	want.Annotations[SourceAnnotation] = s.Key.String()
	want.Annotations[CopyAnnotation] = namespace + "/" + s.Key.Name
	want.Annotations[ChecksumAnnotation] = s.Checksum
	want.Annotations[InstanceAnnotation] = r.opts.Instance
	if s.copied != "" {
		want.Annotations[CopiedAnnotation] = s.copied
	}
	return want
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
