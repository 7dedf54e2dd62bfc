package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"

	"github.com/mirror-controller/mirror-controller/mirror"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// agreement is what a flag allows beyond the annotation of its name, and the annotation beyond the flag.
type agreement struct{ wider, narrower bool }

// setting is a flag of the Deployment beside the annotation of its name on the ClusterRoleBinding.
type setting struct {
	flag        string
	have, known string // values, as an annotation has them
	agreement
	also string // what else there is to do if they disagree
}

// settingLines compare the flags with the annotations, by which the policies judge.
func (f *facts) settingLines() (lines []checkLine) {
	l, unread := f.notInstalled()
	known, err := f.annotations()
	switch {
	case f.binding.missing != "":
		l, unread = notAllowed(f.binding.missing), true
	case !unread && f.binding.value == nil:
		l, unread = unknown("there is no ClusterRoleBinding"), true
	case !unread && f.process.invalid != nil:
		l, unread = unknown("the arguments of the Deployment are invalid"), true
	case !unread && err != nil:
		l, unread = todo("correct the annotation", "ClusterRoleBinding %s: %v", f.binding.value.Name, err), true
	}
	if unread {
		return []checkLine{l.named("settings")}
	}
	for _, s := range f.settings(known) {
		lines = append(lines, f.settingLine(s).named("settings/"+s.flag))
	}
	return lines
}

// annotations returns the settings as the policies read them.
func (f *facts) annotations() (*mirror.Options, error) {
	s := &settings{Options: mirror.NewOptions()}
	if f.binding.value == nil {
		return s.Options, nil
	}
	return s.Options, s.readAnnotations(f.binding.value.Annotations)
}

func (f *facts) settingLine(s setting) checkLine {
	advice := fmt.Sprintf("give the annotation %s/%s of ClusterRoleBinding %s the value %q", plan.Domain, s.flag, f.binding.value.Name, s.have) + s.also
	detail := fmt.Sprintf("the flag has %q, and the annotation %q", s.have, s.known)
	switch {
	case s.wider && s.narrower:
		return todo(advice, "%s: the API server refuses some writes, and the policies allow others that the flags do not ask for", detail)
	case s.wider:
		return todo(advice, "%s: the flag is wider, and the API server refuses the writes", detail)
	case s.narrower:
		return todo(advice, "%s: the flag is narrower, and the policies are looser than it", detail)
	}
	return fine("flag and annotation agree on %q", s.have)
}

func (f *facts) settings(known *mirror.Options) []setting {
	have := f.process.Options
	text := func(name, fallback string) string {
		return cmp.Or(f.binding.value.Annotations[plan.Domain+"/"+name], fallback)
	}
	list := func(flag string, have, known []string, covers func(a, b string) bool) setting {
		return setting{flag: flag, have: strings.Join(have, ","), known: strings.Join(known, ","), agreement: compareLists(have, known, covers)}
	}
	excluded := list("exclude-namespace", have.ExcludeNamespaces, known.ExcludeNamespaces, coversPattern)
	excluded.wider, excluded.narrower = excluded.narrower, excluded.wider // what is excluded is not allowed
	same := func(flag, have, known string) setting {
		return setting{flag: flag, have: have, known: known, agreement: agreement{wider: have != known}}
	}
	prefixes := list(prefixesOf(have, known))
	if known.AllNamespaces && !have.AllNamespaces {
		prefixes.known, prefixes.also = "all-namespaces", ", and take the annotation all-namespaces out"
	}
	all := []setting{
		prefixes,
		{flag: "namespace-selector", have: selectorLines(have.NamespaceSelector), known: selectorLines(known.NamespaceSelector), agreement: agreement{
			wider: !implies(have.NamespaceSelector, known.NamespaceSelector), narrower: !implies(known.NamespaceSelector, have.NamespaceSelector)}},
		excluded,
		same("mirror-label", have.Label, known.Label),
		same("instance", have.Instance, known.Instance),
		list("copy-label", have.CopyLabels, known.CopyLabels, coversPattern),
		list("copy-annotation", have.CopyAnnotations, known.CopyAnnotations, coversPattern),
	}
	if f.process.leaderElect {
		all = append(all,
			same("leader-elect-resource-name", f.process.leaseName, text("leader-elect-resource-name", "mirror-controller")),
			same("leader-elect-resource-namespace", f.process.leaseNamespace, text("leader-elect-resource-namespace", f.account.Namespace)))
	}
	return all
}

// prefixesOf returns what to compare: all namespaces are those with the empty prefix.
func prefixesOf(have, known *mirror.Options) (flag string, a, b []string, covers func(a, b string) bool) {
	covers = func(a, b string) bool { return strings.HasPrefix(b, a) }
	if have.AllNamespaces == known.AllNamespaces {
		return "namespace-prefix", have.NamespacePrefixes, known.NamespacePrefixes, covers
	}
	if have.AllNamespaces {
		return "all-namespaces", []string{"true"}, []string{"false"}, func(a, _ string) bool { return a == "true" }
	}
	return "namespace-prefix", have.NamespacePrefixes, []string{""}, covers
}

// compareLists compares two lists of what is allowed.
func compareLists(have, known []string, covers func(a, b string) bool) (a agreement) {
	covered := func(item string, by []string) bool {
		return slices.ContainsFunc(by, func(b string) bool { return covers(b, item) })
	}
	for _, item := range have {
		a.wider = a.wider || !covered(item, known)
	}
	for _, item := range known {
		a.narrower = a.narrower || !covered(item, have)
	}
	return a
}

// coversPattern reports whether a, a name or a prefix ending in '*', matches all that b does.
func coversPattern(a, b string) bool {
	prefix, pattern := strings.CutSuffix(a, "*")
	return a == b || pattern && strings.HasPrefix(b, prefix)
}

// selectorLines returns a selector as the annotation has it: one requirement a line.
func selectorLines(selector string) string {
	var lines []string
	for _, r := range requirementsOf(selector) {
		words := []string{r.Key()}
		switch r.Operator() {
		case selection.Exists:
			words = append(words, "Exists")
		case selection.DoesNotExist:
			words = append(words, "DoesNotExist")
		case selection.NotIn, selection.NotEquals:
			words = append(words, "NotIn", strings.Join(r.ValuesUnsorted(), ","))
		default:
			words = append(words, "In", strings.Join(r.ValuesUnsorted(), ","))
		}
		lines = append(lines, strings.Join(words, " "))
	}
	return strings.Join(lines, "\n")
}

// requirementsOf returns those of a valid selector, sorted.
func requirementsOf(selector string) labels.Requirements {
	out, _ := labels.ParseToRequirements(selector) // it was validated
	return out
}

// implies reports whether every namespace that a selects is selected by b: each requirement of b follows from one of a.
func implies(a, b string) bool {
	have := requirementsOf(a)
	for _, want := range requirementsOf(b) {
		if !slices.ContainsFunc(have, func(r labels.Requirement) bool { return follows(want, r) }) {
			return false
		}
	}
	return true
}

// follows reports whether want holds wherever given does.
func follows(want, given labels.Requirement) bool {
	if want.Key() != given.Key() {
		return false
	}
	positive := func(r labels.Requirement) bool {
		return r.Operator() == selection.In || r.Operator() == selection.Equals || r.Operator() == selection.DoubleEquals
	}
	values, allowed := given.ValuesUnsorted(), want.Values()
	switch want.Operator() {
	case selection.Exists:
		return given.Operator() == selection.Exists || positive(given)
	case selection.DoesNotExist:
		return given.Operator() == selection.DoesNotExist
	case selection.NotIn, selection.NotEquals:
		switch {
		case given.Operator() == selection.DoesNotExist:
			return true
		case positive(given):
			return !slices.ContainsFunc(values, allowed.Has)
		}
		return (given.Operator() == selection.NotIn || given.Operator() == selection.NotEquals) && given.Values().HasAll(want.ValuesUnsorted()...)
	}
	return positive(given) && allowed.HasAll(values...)
}
