package main

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/mirror-controller/mirror-controller/e2e/storm/model"
)

// kept finds what an update took from the metadata of other people, or put there.
func (j *judgement) kept(t transition) {
	if t.after == nil || !ours(t.after) {
		return
	}
	if !t.gap && t.after.DeletionTimestamp == nil {
		if problem := j.sums.check(t.after); problem != "" {
			j.problem(t, problem)
		}
	}
	if t.appeared() || t.gap || t.ended() {
		return
	}
	if problem := disowned(t.before, t.after); problem != "" {
		j.problem(t, problem)
	}
}

// disowned says what is not as it was in the metadata that is neither ours nor copied.
func disowned(before, after *corev1.ConfigMap) string {
	labels, annotations := copied(before, after)
	theirLabels := func(cm *corev1.ConfigMap) map[string]string {
		return without(cm.Labels, append(labels, model.Label, model.ManagedBy))
	}
	theirAnnotations := func(cm *corev1.ConfigMap) map[string]string {
		return without(cm.Annotations, append(annotations, model.SourceAnnotation, model.CopyAnnotation, model.ChecksumAnnotation,
			model.InstanceAnnotation, model.CopiedAnnotation, model.AdoptAnnotation))
	}
	switch {
	case !maps.Equal(theirLabels(before), theirLabels(after)):
		return fmt.Sprintf("labels of others were changed: %v, then %v", theirLabels(before), theirLabels(after))
	case !maps.Equal(theirAnnotations(before), theirAnnotations(after)):
		return fmt.Sprintf("annotations of others were changed: %v, then %v", theirAnnotations(before), theirAnnotations(after))
	case !slices.Equal(before.Finalizers, after.Finalizers):
		return "finalizers of others were changed"
	case len(after.OwnerReferences) != len(before.OwnerReferences):
		return "owner references were changed"
	}
	return ""
}

// copied returns the keys of labels and annotations that any of the objects lists as copied.
func copied(of ...*corev1.ConfigMap) (labels, annotations []string) {
	for _, cm := range of {
		l, a := model.Copied(cm.Annotations[model.CopiedAnnotation])
		labels, annotations = append(labels, l...), append(annotations, a...)
	}
	return labels, annotations
}

func without(of map[string]string, keys []string) map[string]string {
	out := map[string]string{}
	for k, v := range of {
		if !slices.Contains(keys, k) {
			out[k] = v
		}
	}
	return out
}

// sums are the checksums of all contents that the controller wrote in a storm, and the contents of all checksums.
type sums struct{ of, from map[string]string }

func newSums() *sums { return &sums{map[string]string{}, map[string]string{}} }

// check says what is wrong with the checksum of a copy, in the form of the history, that the controller wrote: equal
// contents have equal ones, different contents different ones.
func (s *sums) check(cm *corev1.ConfigMap) string {
	labels, annotations := copied(cm)
	only := func(of map[string]string, keys []string) map[string]string {
		out := map[string]string{}
		for _, k := range keys {
			if v, ok := of[k]; ok {
				out[k] = v
			}
		}
		return out
	}
	content := fmt.Sprintf("%s %v %q %q", cm.Data[digestKey], immutable(cm), only(cm.Labels, labels), only(cm.Annotations, annotations))
	sum := cm.Annotations[model.ChecksumAnnotation]
	if known, ok := s.of[content]; ok && known != sum {
		return fmt.Sprintf("has the checksum %s, and the same content had %s before", sum, known)
	}
	if known, ok := s.from[sum]; ok && known != content {
		return fmt.Sprintf("has the checksum of another content, %s: %s", known, content)
	}
	s.of[content], s.from[sum] = sum, content
	return ""
}
