package plan

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
)

// Exclusion is the first rule that keeps a source from a namespace.
type Exclusion int

// The rules, in the order in which they are asked.
const (
	NotExcluded                 Exclusion = iota
	SourceGone                            // no ConfigMap of that key asks to be mirrored
	ExcludedSource                        // the source is out of scope of the flags, has a reserved name, or is frozen
	ExcludedName                          // --namespace-prefix does not allow the namespace
	ExcludedExplicitly                    // --exclude-namespace names the namespace
	ExcludedByPrefix                      // by the annotation of the source
	ExcludedTerminating                   // the namespace is being deleted
	ExcludedByOptOut                      // by the label of the namespace
	ExcludedBySelector                    // by the annotation of the source
	ExcludedByNamespaceSelector           // by the flag
	ExcludedOwn                           // the namespace is that of the source
)

// at is a source and a namespace, to be judged by the rules. The rules of flags need no source.
type at struct {
	r  *Rules
	s  *Source
	ns *corev1.Namespace
}

// exclusions has, of each rule by which a source has a copy in a namespace: whether it holds, why there is no copy
// where it does not hold, and what its owner can do about that.
var exclusions = [...]struct {
	holds       func(at) bool
	why, remedy string
}{
	SourceGone: {nil, "the source is deleted, or has lost its label {label}=true",
		"create the source again, or label it again"},
	ExcludedSource: {func(a at) bool { return !a.s.OutOfScope && !a.s.Reserved && a.s.Frozen == nil },
		"--source-namespace does not allow the source", "start the controller with other flags"},
	ExcludedName: {func(a at) bool { return hasAnyPrefix(a.ns.Name, a.r.prefixes) },
		"--namespace-prefix does not allow the namespace", "start the controller with other flags"},
	ExcludedExplicitly: {func(a at) bool { return !matchKey(a.r.opts.ExcludeNamespaces, a.ns.Name) },
		"--exclude-namespace names the namespace", "start the controller with other flags"},
	ExcludedByPrefix: {func(a at) bool { return a.s.prefixes == nil || hasAnyPrefix(a.ns.Name, a.s.prefixes) },
		"the source's annotation {annotation} rules the namespace out", "correct the annotation namespace-prefix"},
	ExcludedTerminating: {func(a at) bool { return !Terminating(a.ns) },
		"the namespace is being deleted", "create it again when it is gone"},
	ExcludedByOptOut: {func(a at) bool { return a.ns.Labels[a.r.label] != OptOutValue },
		"the namespace has the label {label}=false", "remove that label"},
	ExcludedBySelector: {func(a at) bool { return a.s.selector.Matches(labels.Set(a.ns.Labels)) },
		"the source's annotation {annotation} does not match the namespace",
		"correct the annotation namespace-selector, or the labels of the namespace"},
	ExcludedByNamespaceSelector: {func(a at) bool { return a.r.selector.Matches(labels.Set(a.ns.Labels)) },
		"the controller's --namespace-selector does not match the namespace", "correct the labels of the namespace"},
	ExcludedOwn: {func(a at) bool { return a.ns.Name != a.s.Key.Namespace },
		"the namespace is that of the source", "have the source select another namespace, or move it"},
}

// Exclusion returns what keeps the source from the namespace.
func (r *Rules) Exclusion(s *Source, ns *corev1.Namespace) Exclusion {
	for e := ExcludedSource; e <= ExcludedOwn; e++ {
		if !exclusions[e].holds(at{r, s, ns}) {
			return e
		}
	}
	return NotExcluded
}

// Scope returns the flag that rules out copies of this source, which may be gone, in the namespace: [ExcludedSource],
// [ExcludedName], [ExcludedExplicitly] or [ExcludedByNamespaceSelector]; [NotExcluded] if they are in scope.
func (r *Rules) Scope(source types.NamespacedName, ns *corev1.Namespace) Exclusion {
	if !r.AllowsSource(source.Namespace) {
		return ExcludedSource
	}
	for _, e := range [...]Exclusion{ExcludedName, ExcludedExplicitly, ExcludedByNamespaceSelector} {
		if !exclusions[e].holds(at{r, nil, ns}) {
			return e
		}
	}
	return NotExcluded
}

// Terminating reports whether the namespace is being deleted.
func Terminating(ns *corev1.Namespace) bool {
	return ns.DeletionTimestamp != nil || ns.Status.Phase == corev1.NamespaceTerminating
}

// Unclaimed is why no source claims a copy, as it was judged.
type Unclaimed struct {
	Rule       Exclusion
	Annotation string // of the source, by which Rule excludes the namespace, as key="value"
}

// unclaimed returns why s, nil if it is gone, has no copy in the namespace. scope is the scope of that copy.
func (r *Rules) unclaimed(s *Source, scope Exclusion, ns *corev1.Namespace) Unclaimed {
	switch {
	case scope != NotExcluded:
		return Unclaimed{Rule: scope}
	case s == nil:
		return Unclaimed{Rule: SourceGone}
	}
	return s.unclaimedBy(r.Exclusion(s, ns))
}

// StillHolds reports whether no source claims a copy for this reason, perhaps beside others. source is the one of the
// copy; nil: it is gone.
func (r *Rules) StillHolds(u Unclaimed, source *Source, ns *corev1.Namespace) bool {
	if source == nil || u.Rule == SourceGone {
		return source == nil && u.Rule == SourceGone
	}
	return u == source.unclaimedBy(u.Rule) && !exclusions[u.Rule].holds(at{r, source, ns})
}

func (s *Source) unclaimedBy(rule Exclusion) Unclaimed { return Unclaimed{rule, s.quoted[rule]} }

// Explain returns why no source claims a copy, and how its owner can keep it or get it back.
func (r *Rules) Explain(u Unclaimed) (why, remedy string) {
	x := exclusions[u.Rule]
	return strings.NewReplacer("{label}", r.label, "{annotation}", u.Annotation).Replace(x.why), x.remedy
}

// ExplainExclusion is [Rules.Explain] of what keeps the source from the namespace.
func (r *Rules) ExplainExclusion(s *Source, ns *corev1.Namespace) (why, remedy string) {
	return r.Explain(s.unclaimedBy(r.Exclusion(s, ns)))
}
