package plan

import (
	corev1 "k8s.io/api/core/v1"
)

// Foreign returns why have, a foreign object or one that is being deleted, is in the way of a copy, in words, and
// whether its owner can hand it over.
func (r *Rules) Foreign(have *corev1.ConfigMap) (why string, adoptable bool) {
	m := MarksOf(have)
	_, ours := r.SourceOf(have)
	const foreign = "a foreign ConfigMap of this name is there"
	switch {
	case have.DeletionTimestamp != nil && ours:
		return "a copy is there that is being deleted" + keptBy(have), false
	case have.DeletionTimestamp != nil:
		return foreign + " that is being deleted" + keptBy(have), false
	case r.AsksToBeMirrored(have):
		return "another source of this name is there", false
	case m.Itself && m.Instance == "":
		return "a copy of no instance is there", false
	case m.Itself && m.Instance != r.opts.Instance:
		return "a copy of instance " + Clip(m.Instance, maxQuoted) + " is there", false
	case len(have.Finalizers) > 0:
		return foreign + keptBy(have) + " from being handed over", false
	}
	return foreign, true
}

// keptBy names the finalizer that keeps have, if it has one.
func keptBy(have *corev1.ConfigMap) string {
	if len(have.Finalizers) == 0 {
		return ""
	}
	return ", and its finalizer " + Clip(have.Finalizers[0], maxQuoted) + " keeps it"
}

// adoptable reports whether the owner of cm, a foreign object, handed it over. A source and a copy of another instance
// cannot be adopted. Neither can an object with finalizers: a copy that replaces it could be held terminating.
func (r *Rules) adoptable(cm *corev1.ConfigMap) bool {
	if adopt, _ := valueOf(cm, AdoptAnnotation); adopt != AdoptValue || len(cm.Finalizers) > 0 {
		return false
	}
	if m := MarksOf(cm); m.Itself { // never a source, whatever its label says
		return m.Instance == r.opts.Instance
	}
	return cm.Labels[r.label] != SourceValue
}
