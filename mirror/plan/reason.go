package plan

import (
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// Decisions in words. Values of labels and annotations are in them as they stand: a tenant may have written these.

// Reason returns why the target is in its state, in words; empty if it is in sync, or no copy is wanted. c was decided by v and
// t.
func (r *Rules) Reason(v *View, t Target, c Change) string {
	switch c.Status() {
	case StatePending:
		return r.pendingReason(t, c)
	case StateExpiring, StateOutOfScope:
		why, _ := r.Explain(c.Why)
		return why
	case StateForeign:
		return r.foreignReason(t.Have)
	case StateFrozen:
		return "an annotation of " + c.CopyOf.String() + " is malformed or not known: the copy stays as it is"
	}
	return ""
}

// repairs say what another client did to a copy.
var repairs = map[string]string{
	CauseEdited:     "the copy was edited",
	CauseUnlabelled: "the copy has lost its label",
	CauseMetadata:   "labels or annotations of the copy were edited",
	"":              "the source has changed",
}

func (r *Rules) pendingReason(t Target, c Change) string {
	switch {
	case c.Op == OpCreate:
		return "there is no copy yet"
	case c.Op == OpNone && len(t.Have.Finalizers) > 0:
		return "it is being deleted, and held by the finalizer " + t.Have.Finalizers[0]
	case c.Op == OpNone:
		return "it is being deleted"
	}
	why := repairs[r.RepairCause(c, false)]
	switch {
	case c.CopyOf.Name == "": // foreign
		why = "its owner has handed it over: its data is replaced"
	case c.CopyOf != c.Source.Key:
		why = "it is a copy of " + c.CopyOf.String() + ", whose place the source takes"
	}
	if c.Op == OpRecreate {
		why += "; " + c.WhyRecreated() + ", so it is deleted and created again"
	}
	return why
}

// WhyRecreated returns why the change deletes the object and creates it again, in words. Its Op is OpRecreate.
func (c Change) WhyRecreated() string {
	if forbidsContent(c.Source, c.Have) {
		return "it is immutable"
	}
	return "its metadata takes more than 8 KiB"
}

func (r *Rules) foreignReason(have *corev1.ConfigMap) string {
	why := "a foreign ConfigMap of this name is there"
	switch owner := have.Annotations[InstanceAnnotation]; {
	case r.AsksToBeMirrored(have):
		why = "another source of this name is there"
	case owner != "" && have.Labels[ManagedByLabel] == ManagedByValue:
		why += ", made by instance " + owner
	}
	switch {
	case have.Annotations[AdoptAnnotation] == "":
		return why
	case len(have.Finalizers) > 0:
		return why + ", and it cannot be handed over: it has the finalizer " + have.Finalizers[0]
	}
	return why + ", and it cannot be handed over"
}

// exclusions say, of each rule that keeps a source from a namespace, why there is no copy, and what its owner can do about that.
var exclusions = map[Exclusion]struct{ why, remedy string }{
	SourceGone:                  {"the source is deleted, or has lost its label {label}=true", "create the source again, or label it again"},
	ExcludedSource:              {"--source-namespace does not allow the source", "start the controller with other flags"},
	ExcludedName:                {"--namespace-prefix or --exclude-namespace rules the namespace out", "start the controller with other flags"},
	ExcludedByPrefix:            {"the source's annotation {annotation} rules the namespace out", "correct the annotation"},
	ExcludedByOptOut:            {"the namespace has the label {label}=false", "remove that label"},
	ExcludedBySelector:          {"the source's annotation {annotation} does not match the namespace", "correct the annotation, or the labels of the namespace"},
	ExcludedByNamespaceSelector: {"the controller's --namespace-selector does not match the namespace", "correct the labels of the namespace"},
}

// Explain returns why no source claims a copy, and how its owner can keep it or get it back.
func (r *Rules) Explain(l Loss) (why, remedy string) {
	x := exclusions[l.Rule]
	return strings.NewReplacer("{label}", r.label, "{annotation}", l.Annotation).Replace(x.why), x.remedy
}

// Excluded counts, by what keeps the source from them, the namespaces that the flags allow. It returns nil if the source has a
// target.
func (r *Rules) Excluded(s *Source, namespaces iter.Seq[*corev1.Namespace]) map[Exclusion]int {
	all := map[Exclusion]int{}
	for ns := range namespaces {
		switch e := r.Exclusion(s, ns); e {
		case NotExcluded:
			return nil
		case ExcludedByPrefix, ExcludedByOptOut, ExcludedBySelector:
			if r.Selects(ns) {
				all[e]++
			}
		}
	}
	return all
}

// ExplainExcluded says what keeps a source from all namespaces that the flags allow, and what its owner can do about that.
// excluded is what [Rules.Excluded] counted.
func (r *Rules) ExplainExcluded(s *Source, excluded map[Exclusion]int) (why, remedy string) {
	var reasons, remedies []string
	for _, e := range slices.Sorted(maps.Keys(excluded)) {
		why, remedy := r.Explain(s.lossBy(e))
		reasons, remedies = append(reasons, fmt.Sprintf("in %d %s", excluded[e], why)), append(remedies, remedy)
	}
	return strings.Join(reasons, ", "), strings.Join(remedies, "; ")
}
