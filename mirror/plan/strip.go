package plan

import (
	"unique"

	corev1 "k8s.io/api/core/v1"
)

// digestMark is the annotation in which a stripped ConfigMap keeps the digest of its payload. No object from the API can
// have it: a key with nothing before its '/' is invalid.
const digestMark = "/payload"

// Strip prepares a ConfigMap for the cache, in place. A source keeps its payload, which the controller writes. Everything
// else keeps the digest of its payload only, so that the memory for a copy does not depend on its size. Strip is
// idempotent: the cache applies it twice on a relist.
func (r *Rules) Strip(cm *corev1.ConfigMap) {
	cm.ManagedFields = nil
	if _, done := cm.Annotations[digestMark]; done || r.IsSource(cm) {
		return
	}
	sum := payloadDigest(cm)
	cm.Data, cm.BinaryData = nil, nil
	cm.Name, cm.Namespace = Intern(cm.Name), Intern(cm.Namespace)
	cm.Labels = interned(cm.Labels, len(cm.Labels))
	cm.Annotations = interned(cm.Annotations, len(cm.Annotations)+1)
	cm.Annotations[digestMark] = Intern(string(sum))
}

// interned returns a copy of m, with room for size entries, that shares its strings with all equal ones: a thousand
// copies of one source differ in little. The copy annotation has no equal, and a search for one is a third of the work.
func interned(m map[string]string, size int) map[string]string {
	out := make(map[string]string, size)
	for k, v := range m {
		if k != CopyAnnotation {
			v = Intern(v)
		}
		out[Intern(k)] = v
	}
	return out
}

// Intern returns s, sharing its memory with all equal strings.
func Intern(s string) string { return unique.Make(s).Value() }
