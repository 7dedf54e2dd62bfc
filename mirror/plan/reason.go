package plan

import (
	"iter"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// Decisions in words. Values of labels and annotations are in them as they stand: a tenant may have written these.

// Reason returns why the target is in its state, in words; empty if it is in sync, or no copy is wanted. c was decided
// by v.
func (r *Rules) Reason(v *View, c Change) string {
	switch c.State {
	case StatePending:
		return r.pendingReason(c)
	case StateExpiring:
		why, _ := r.Explain(c.Why)
		return why
	case StateForeign, StateOutOfScope:
		return c.Note
	case StateFrozen:
		return "an annotation of " + c.Owner.String() + " is malformed or not known: the copy stays as it is"
	case StateHeld:
		by, _ := v.Find(c.Owner).Hold()
		return c.Owner.String() + " holds the target, which stays as it is, by the annotation " + by
	}
	return ""
}

// repairs say what another client did to a copy.
var repairs = map[string]string{
	CauseDeleted:    "the copy was deleted",
	CauseEdited:     "the copy was edited",
	CauseUnlabelled: "the copy has lost its label",
	CauseMetadata:   "labels or annotations of the copy were edited",
	"":              "the source has changed",
}

func (r *Rules) pendingReason(c Change) string {
	if c.Op == OpCreate {
		return "there is no copy yet"
	}
	why := repairs[r.RepairCause(c, false)]
	switch {
	case c.CopyOf.Name == "": // foreign
		why = "its owner has handed it over: its data is replaced"
	case c.CopyOf != c.Source.Key:
		why = "it is a copy of " + c.CopyOf.String() + ", whose place the source takes"
	}
	if c.Op == OpRecreate {
		why += "; it is immutable, so it is deleted and created again"
	}
	return why
}

// Restored is the text about a copy that the change restored. cause is that of [Rules.RepairCause], and not empty.
func (r *Rules) Restored(c Change, cause string) string {
	return "Restored from the source " + c.Source.Key.String() + ", because " + repairs[cause] +
		". To change it, change the source. To keep a ConfigMap of your own, give it another name. Or, if you may patch " +
		"the namespace, label it " + r.label + "=" + OptOutValue + ", which removes all copies from it."
}

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

// Clip shortens a text to so many bytes, with an ellipsis at its end.
func Clip(text string, longest int) string {
	if len(text) <= longest {
		return text
	}
	return strings.ToValidUTF8(text[:longest-len("…")], "") + "…"
}

// withoutMiddle shortens an error that may quote a long value: the cause is at its begin or at its end.
func withoutMiddle(text string) string {
	const head, tail = 150, 300
	if len(text) <= head+tail {
		return text
	}
	return Clip(text, head) + strings.ToValidUTF8(text[len(text)-tail:], "")
}

// Explain returns why no source claims a copy, and how its owner can keep it or get it back.
func (r *Rules) Explain(u Unclaimed) (why, remedy string) {
	x := exclusions[u.Rule]
	return strings.NewReplacer("{label}", r.label, "{annotation}", u.Annotation).Replace(x.why), x.remedy
}

// ExplainExclusion is [Rules.Explain] of what keeps the source from the namespace.
func (r *Rules) ExplainExclusion(s *Source, ns *corev1.Namespace) (why, remedy string) {
	return r.Explain(s.unclaimedBy(r.Exclusion(s, ns)))
}

// AnySource returns a source that narrows nothing: what keeps it from a namespace keeps each source from it.
func AnySource() *Source { return &Source{selector: labels.Everything()} }

// Excluded returns the rules that keep the source from the namespaces that the flags allow, sorted; nil if it has a
// target. It returns [ExcludedName] alone if the flags allow no namespace, and [ExcludedTerminating] alone if each is
// being deleted, or its labels are too many.
func (r *Rules) Excluded(s *Source, namespaces iter.Seq[*corev1.Namespace]) []Exclusion {
	all := map[Exclusion]bool{}
	for ns := range namespaces {
		e := r.Exclusion(s, ns)
		switch e {
		case NotExcluded:
			return nil
		case ExcludedByPrefix, ExcludedTerminating, ExcludedByOptOut, ExcludedBySelector, ExcludedOwn:
			if r.selector.Matches(labels.Set(ns.Labels)) {
				all[e] = true
			}
		}
	}
	if len(all) == 0 {
		return []Exclusion{ExcludedName}
	} else if len(all) > 1 {
		delete(all, ExcludedTerminating)
	}
	return slices.Sorted(maps.Keys(all))
}

// ExplainExcluded returns what keeps a source from all namespaces, as [Rules.Excluded] returned it, and the remedy.
func (r *Rules) ExplainExcluded(s *Source, excluded []Exclusion) (why, remedy string) {
	switch {
	case slices.Equal(excluded, []Exclusion{ExcludedName}):
		return r.noNamespace(), "create such a namespace, or start the controller with other flags"
	case slices.Equal(excluded, []Exclusion{ExcludedTerminating}):
		return "each that the flags allow is being deleted", "create another one"
	case slices.Contains(excluded, ExcludedOwn):
		return "the only namespace that is selected, " + s.Key.Namespace + ", is that of the source",
			exclusions[ExcludedOwn].remedy
	}
	var by, wrong []string
	for _, e := range excluded {
		if u := s.unclaimedBy(e); u.Annotation != "" {
			by, wrong = append(by, "the source's annotation "+u.Annotation), []string{"the source's annotations"}
		} else {
			by = append(by, "its label "+r.label+"="+OptOutValue)
		}
	}
	if !slices.Equal(excluded, []Exclusion{ExcludedByPrefix}) {
		wrong = append(wrong, "the labels of a namespace")
	}
	why = "each that the flags allow is ruled out by " + strings.Join(by, " or ")
	return why, "correct " + strings.Join(wrong, " or ")
}

// WithoutTarget says why the flags allow none of the namespaces; empty if they allow one.
func (r *Rules) WithoutTarget(namespaces iter.Seq[*corev1.Namespace]) string {
	for ns := range namespaces {
		if r.AllowsTarget(ns.Name) && r.selector.Matches(labels.Set(ns.Labels)) {
			return ""
		}
	}
	return "No namespace is a target: " + r.noNamespace()
}

// noNamespace says, by the flags, which namespace there is none of if nothing can be a target.
func (r *Rules) noNamespace() string {
	const excluded = ", apart from those that --exclude-namespace names"
	text := "there is no namespace" + excluded
	if !slices.Equal(r.prefixes, []string{""}) {
		text = "no namespace begins with " + strings.Join(r.prefixes, " or ") + excluded
	}
	if !r.selector.Empty() {
		text += ", and has labels that match --namespace-selector=" + Clip(r.selector.String(), maxQuoted)
	}
	return text
}
