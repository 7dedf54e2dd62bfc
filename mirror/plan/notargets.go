package plan

import (
	"iter"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// AnySource returns a source that narrows nothing: what keeps it from a namespace
// keeps each source from it.
func AnySource() *Source { return &Source{selector: labels.Everything()} }

// Excluded returns the rules that keep the source from the namespaces that the
// flags allow, sorted; nil if it has a target. It returns [ExcludedName] alone if
// the flags allow no namespace. That a namespace is being deleted counts only if
// nothing else keeps the source from any.
func (r *Rules) Excluded(s *Source, namespaces iter.Seq[*corev1.Namespace]) []Exclusion {
	excluded := []Exclusion{ExcludedName} // until a namespace comes that the flags allow
	for ns := range namespaces {
		if excluded = r.AlsoExcluded(excluded, s, ns); excluded == nil {
			return nil
		}
	}
	return excluded
}

// AlsoExcluded returns the rules that [Rules.Excluded] returned, with the one
// that keeps the source from one namespace more; nil if none does.
func (r *Rules) AlsoExcluded(excluded []Exclusion, s *Source, ns *corev1.Namespace) []Exclusion {
	if r.scope(s.Key, ns) != NotExcluded {
		return excluded
	}
	e := r.Exclusion(s, ns)
	switch {
	case e == NotExcluded:
		return nil
	case excluded[0] == ExcludedName, excluded[0] == ExcludedTerminating: // it stands alone
		return []Exclusion{e}
	case e == ExcludedTerminating, slices.Contains(excluded, e):
		return excluded
	}
	return slices.Sorted(slices.Values(append(slices.Clone(excluded), e)))
}

// ExplainExcluded returns what keeps a source from all namespaces, as
// [Rules.Excluded] returned it, and the remedy.
func (r *Rules) ExplainExcluded(s *Source, excluded []Exclusion) (why, remedy string) {
	switch {
	case slices.Contains(excluded, ExcludedName):
		return r.noNamespace(), "create such a namespace, or " + otherFlags
	case slices.Contains(excluded, ExcludedOwn):
		return "the only namespace that is selected, " + s.Key.Namespace +
			", is that of the source", exclusions[ExcludedOwn].remedy
	}
	var causes, remedies []string
	for _, e := range excluded {
		why, remedy := r.Explain(s.unclaimedBy(e))
		causes = append(causes, why)
		remedies = append(remedies, remedy)
	}
	return "each that the flags allow is excluded: " + strings.Join(causes, ", or "),
		strings.Join(remedies, ", or ")
}

// WithoutTarget returns a text about flags that allow none of the namespaces;
// empty if they allow one.
func (r *Rules) WithoutTarget(namespaces iter.Seq[*corev1.Namespace]) string {
	for ns := range namespaces {
		if r.AllowsTarget(ns.Name) && r.selector.Matches(labels.Set(ns.Labels)) {
			return ""
		}
	}
	return "No namespace is a target: " + r.noNamespace()
}

// noNamespace names the kind of namespace that the flags allow and that there is
// none of.
func (r *Rules) noNamespace() string {
	const excluded = ", apart from those that --exclude-namespace names"
	text := "there is no namespace" + excluded
	if !slices.Equal(r.prefixes, []string{""}) {
		text = "no namespace begins with " + strings.Join(r.prefixes, " or ") + excluded
	}
	if !r.selector.Empty() {
		text += ", and has labels that match --namespace-selector=" +
			Clip(r.selector.String(), maxQuoted)
	}
	return text
}
