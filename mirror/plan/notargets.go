package plan

import (
	"iter"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
)

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
