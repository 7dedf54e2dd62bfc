package plan

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// inSync reports whether have, a copy of ours, matches s. It compares the content itself: the checksum annotation
// survives an edit of the data.
func (r *Rules) inSync(s *Source, have *corev1.ConfigMap) bool {
	return payloadDigest(have) == s.payload && r.marksDiffer(s, have) == "" &&
		(s.copied == "" || r.contentOf(have) == s.Checksum)
}

// Differs returns what of made, the API server's answer to a write, differs from a copy of s, in words; empty if
// nothing does. The answer has its payload, and comparing that is cheaper than hashing it.
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
	case !containsAll(made.Labels, s.labels):
		return "labels"
	case !containsAll(made.Annotations, s.annotations):
		return "annotations"
	}
	return ""
}

// marksDiffer returns the first label or annotation by which have is no copy of s in sync; empty if it has all of them.
// Metadata that was copied earlier and is no longer wanted is listed by the copied annotation, which differs then.
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
	case boundedCopied(have.Annotations[CopiedAnnotation]) != boundedCopied(s.copied):
		return "annotation " + CopiedAnnotation
	}
	return ""
}

// contentOf returns the checksum of the payload of cm, and of the metadata that its copied annotation lists.
func (r *Rules) contentOf(cm *corev1.ConfigMap) string {
	if sum, ok := cm.Annotations[contentMark]; ok {
		return sum
	}
	labels, annotations := copiedKeys(cm.Annotations[CopiedAnnotation], r.label)
	return checksum(payloadDigest(cm), only(cm.Labels, labels...), only(cm.Annotations, annotations...))
}

// MatchesChecksum reports whether a copy holds what its checksum annotation says.
func (r *Rules) MatchesChecksum(cm *corev1.ConfigMap) bool {
	return cm.Annotations[ChecksumAnnotation] == r.contentOf(cm)
}

func containsAll(have, want map[string]string) bool {
	return maps.Equal(only(have, slices.Collect(maps.Keys(want))...), want)
}

// Desired returns the copy of s in namespace. have is the present object there, or nil. Desired keeps its
// resourceVersion and UID, and what have holds of other people's metadata. The result shares its payload with the
// source and must not be changed.
func (r *Rules) Desired(s *Source, namespace string, have *corev1.ConfigMap) *corev1.ConfigMap {
	want := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: s.Key.Name},
		Data:       s.ConfigMap.Data,
		BinaryData: s.ConfigMap.BinaryData,
		Immutable:  s.ConfigMap.Immutable,
	}
	if have != nil {
		have.ObjectMeta.DeepCopyInto(&want.ObjectMeta)
		labels, annotations := r.outdated(s, have)
		maps.DeleteFunc(want.Labels, func(k, _ string) bool { return slices.Contains(labels, k) })
		maps.DeleteFunc(want.Annotations, func(k, _ string) bool { // nor marks of the cache
			return strings.HasPrefix(k, "/") || slices.Contains(annotations, k)
		})
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

// outdated returns the labels and annotations that an update of have to a copy of s removes: those that an earlier
// write copied, and ours, as far as a copy of s does not have them. have may lack what the copied annotation lists.
func (r *Rules) outdated(s *Source, have *corev1.ConfigMap) (labels, annotations []string) {
	list, listed := have.Annotations[CopiedAnnotation]
	labels, annotations = copiedKeys(list, r.label)
	if listed && s.copied == "" {
		annotations = append(annotations, CopiedAnnotation)
	}
	if _, adopting := have.Annotations[AdoptAnnotation]; adopting {
		annotations = append(annotations, AdoptAnnotation)
	}
	labels = slices.DeleteFunc(labels, func(k string) bool { _, wanted := s.labels[k]; return wanted })
	annotations = slices.DeleteFunc(annotations, func(k string) bool { _, wanted := s.annotations[k]; return wanted })
	return labels, annotations
}

// operation is an operation of a JSON patch, RFC 6902.
type operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value,omitempty"`
}

// Patch returns the JSON patch by which have, as the cache holds it, becomes a copy of s and keeps other people's
// metadata. If the resourceVersion is not that of have, the API server answers a conflict.
func (r *Rules) Patch(s *Source, have *corev1.ConfigMap) ([]byte, error) {
	p := []operation{{"replace", "/metadata/resourceVersion", have.ResourceVersion}}
	p = setOrRemove(p, "/data", s.ConfigMap.Data, len(s.ConfigMap.Data) > 0)
	p = setOrRemove(p, "/binaryData", s.ConfigMap.BinaryData, len(s.ConfigMap.BinaryData) > 0)
	p = setOrRemove(p, "/immutable", isImmutable(s.ConfigMap), s.ConfigMap.Immutable != nil)
	labels, annotations := r.metadata(s, have.Namespace)
	oldLabels, oldAnnotations := r.outdated(s, have)
	// Without the list of what was copied, all labels and annotations are replaced. Else there is an annotation of ours.
	listed := !strings.HasPrefix(have.Annotations[CopiedAnnotation], hashed)
	labelled := len(have.Labels) > 0 || have.Annotations[othersMark] == otherLabels
	p = patchMap(p, "/metadata/labels", labels, oldLabels, listed && labelled)
	p = patchMap(p, "/metadata/annotations", annotations, oldAnnotations, listed)
	return json.Marshal(p)
}

// setOrRemove adds the operations that set the value at a path, or remove it. What may be absent cannot be removed
// before it is added.
func setOrRemove(p []operation, path string, value any, set bool) []operation {
	p = append(p, operation{"add", path, value})
	if !set {
		p = append(p, operation{Op: "remove", Path: path})
	}
	return p
}

// patchMap adds the operations that set entries of a map and remove others. keep says that the object has the map, and
// keeps its other entries.
func patchMap(p []operation, path string, set map[string]string, remove []string, keep bool) []operation {
	escape := strings.NewReplacer("~", "~0", "/", "~1")
	if !keep {
		p = append(p, operation{"add", path, map[string]string{}})
	}
	for _, k := range slices.Sorted(maps.Keys(set)) {
		p = append(p, operation{"add", path + "/" + escape.Replace(k), set[k]})
	}
	for _, k := range remove {
		p = setOrRemove(p, path+"/"+escape.Replace(k), "", false)
	}
	return p
}

// merged adds the entries of more to base, which may be nil, and returns base.
func merged(base, more map[string]string) map[string]string {
	if base == nil {
		base = map[string]string{}
	}
	maps.Copy(base, more)
	return base
}
