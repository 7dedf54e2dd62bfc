package plan

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
)

// Exclusion is a rule by which a source has no copy in a namespace. The table
// exclusions has everything that depends on the rule.
type Exclusion int

// The rules, in the order in which they are asked: the first one that applies is
// the reason that users read.
const (
	NotExcluded Exclusion = iota
	SourceGone
	ExcludedSource
	ExcludedReserved
	ExcludedFrozen
	ExcludedName
	ExcludedExplicitly
	ExcludedByPrefix
	ExcludedTerminating
	ExcludedByOptOut
	ExcludedBySelector
	ExcludedByNamespaceSelector
	ExcludedOwn
)

// placement is a source and a namespace that may get its copy.
type placement struct {
	rules     *Rules
	source    *Source
	namespace *corev1.Namespace
}

const otherFlags = "start the controller with other flags"

// exclusions are the rules. In their texts {label} stands for the key of the
// mirror label, and {annotation} for the annotation of the source, as
// key="value".
var exclusions = [...]struct {
	// allows reports whether the rule lets the source have a copy in the
	// namespace. Nil: the rule is about a source that is gone.
	allows func(placement) bool
	// why and remedy explain a namespace without a copy.
	why, remedy string
	// isScope is set if the flags rule the copy out: a copy that no source claims
	// is out of scope then, and stays.
	isScope bool
	// annotation is the key of the source's annotation that the rule is about.
	annotation string
}{
	SourceGone: {
		why:    "the source is deleted, or has lost its label {label}=true",
		remedy: "create the source again, or label it again",
	},
	ExcludedSource: {
		allows:  func(p placement) bool { return !p.source.OutOfScope },
		why:     "--source-namespace does not allow the source",
		remedy:  otherFlags,
		isScope: true,
	},
	ExcludedReserved: {
		allows: func(p placement) bool { return !p.source.Reserved },
		why:    "another controller writes a ConfigMap of this name into every namespace",
		remedy: "give the source another name",
	},
	ExcludedFrozen: {
		allows: func(p placement) bool { return p.source.Frozen == nil },
		why:    "an annotation of the source is malformed or not known",
		remedy: "correct the annotation",
	},
	ExcludedName: {
		allows:  func(p placement) bool { return hasAnyPrefix(p.namespace.Name, p.rules.prefixes) },
		why:     "--namespace-prefix does not allow the namespace",
		remedy:  otherFlags,
		isScope: true,
	},
	ExcludedExplicitly: {
		allows: func(p placement) bool {
			return !matchKey(p.rules.opts.ExcludeNamespaces, p.namespace.Name)
		},
		why:     "--exclude-namespace names the namespace",
		remedy:  otherFlags,
		isScope: true,
	},
	ExcludedByPrefix: {
		allows: func(p placement) bool {
			return p.source.prefixes == nil || hasAnyPrefix(p.namespace.Name, p.source.prefixes)
		},
		why:        "the source's annotation {annotation} rules the namespace out",
		remedy:     "correct the annotation namespace-prefix",
		annotation: PrefixAnnotation,
	},
	ExcludedTerminating: {
		allows: func(p placement) bool { return !Terminating(p.namespace) },
		why:    "the namespace is being deleted",
		remedy: "create it again when it is gone",
	},
	ExcludedByOptOut: {
		allows: func(p placement) bool { return p.namespace.Labels[p.rules.label] != OptOutValue },
		why:    "the namespace has the label {label}=false",
		remedy: "remove that label",
	},
	ExcludedBySelector: {
		allows: func(p placement) bool {
			return p.source.selector.Matches(labels.Set(p.namespace.Labels))
		},
		why:        "the source's annotation {annotation} does not match the namespace",
		remedy:     "correct the annotation namespace-selector, or the labels of the namespace",
		annotation: SelectorAnnotation,
	},
	ExcludedByNamespaceSelector: {
		allows: func(p placement) bool {
			return p.rules.selector.Matches(labels.Set(p.namespace.Labels))
		},
		why:     "the controller's --namespace-selector does not match the namespace",
		remedy:  "correct the labels of the namespace",
		isScope: true,
	},
	ExcludedOwn: {
		allows: func(p placement) bool { return p.namespace.Name != p.source.Key.Namespace },
		why:    "the namespace is that of the source",
		remedy: "have the source select another namespace, or move it",
	},
}

// Exclusion returns what keeps the source from the namespace.
func (r *Rules) Exclusion(s *Source, ns *corev1.Namespace) Exclusion {
	return placement{r, s, ns}.excludedBy(false)
}

// scope returns the flag that rules out copies of this source, which may be gone,
// in the namespace; [NotExcluded] if they are in scope.
func (r *Rules) scope(source types.NamespacedName, ns *corev1.Namespace) Exclusion {
	s := &Source{Key: source, OutOfScope: !r.AllowsSource(source.Namespace)}
	return placement{r, s, ns}.excludedBy(true)
}

// excludedBy returns the first rule, or the first flag, that does not allow the
// copy.
func (p placement) excludedBy(flagsOnly bool) Exclusion {
	for e := ExcludedSource; int(e) < len(exclusions); e++ {
		x := &exclusions[e]
		if (x.isScope || !flagsOnly) && !x.allows(p) {
			return e
		}
	}
	return NotExcluded
}

// Terminating reports whether the namespace is being deleted.
func Terminating(ns *corev1.Namespace) bool {
	return ns.DeletionTimestamp != nil || ns.Status.Phase == corev1.NamespaceTerminating
}

// Unclaimed is why no source claims a copy, as it was judged. The source may have
// changed since.
type Unclaimed struct {
	Rule Exclusion
	// Annotation is the annotation of the source by which Rule excludes the
	// namespace, as key="value"; empty if Rule is about something else.
	Annotation string
}

// StillHolds reports whether no source claims a copy for this reason, perhaps
// beside others. source is the one of the copy; nil: it is gone.
func (r *Rules) StillHolds(u Unclaimed, source *Source, ns *corev1.Namespace) bool {
	if source == nil || u.Rule == SourceGone {
		return source == nil && u.Rule == SourceGone
	}
	return u == source.unclaimedBy(u.Rule) && !exclusions[u.Rule].allows(placement{r, source, ns})
}

func (s *Source) unclaimedBy(rule Exclusion) Unclaimed {
	return Unclaimed{rule, s.quoted[exclusions[rule].annotation]}
}

// Explain returns why no source claims a copy, and how its owner can keep it or
// get it back.
func (r *Rules) Explain(u Unclaimed) (why, remedy string) {
	x := &exclusions[u.Rule]
	texts := strings.NewReplacer("{label}", r.label, "{annotation}", u.Annotation)
	return texts.Replace(x.why), x.remedy
}

// ExplainExclusion is [Rules.Explain] of what keeps the source from the namespace.
func (r *Rules) ExplainExclusion(s *Source, ns *corev1.Namespace) (why, remedy string) {
	return r.Explain(s.unclaimedBy(r.Exclusion(s, ns)))
}
