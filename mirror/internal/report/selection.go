package report

import (
	"iter"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// Selection is what a source selects and does not have.
type Selection struct {
	Superseded int // namespaces that the source selects and another source has

	selects  bool
	first    []string             // the first of these namespaces
	winner   types.NamespacedName // in the first one
	excluded []plan.Exclusion     // if the source selects no namespace: the rules that keep it from all
}

// named is how many namespaces a text names.
const named = 5

// Select returns the selection of each source. owner returns the source that has a namespace, or the zero key.
func Select(rules *plan.Rules, namespaces iter.Seq[*corev1.Namespace], sources []*plan.Source,
	owner func(namespace string) types.NamespacedName) map[types.NamespacedName]*Selection {
	sorted := slices.SortedFunc(namespaces, func(a, b *corev1.Namespace) int { return strings.Compare(a.Name, b.Name) })
	all := map[types.NamespacedName]*Selection{}
	for _, s := range sources {
		all[s.Key] = &Selection{}
	}
	for _, ns := range sorted {
		if !rules.AllowsTarget(ns.Name) {
			continue
		}
		has := owner(ns.Name)
		for _, s := range sources {
			if rules.Exclusion(s, ns) != plan.NotExcluded {
				continue
			}
			x := all[s.Key]
			x.selects = true
			if has == s.Key || has.Name == "" {
				continue
			}
			if x.Superseded == 0 {
				x.winner = has
			}
			if x.Superseded++; len(x.first) < named {
				x.first = append(x.first, ns.Name)
			}
		}
	}
	for _, s := range sources {
		if x := all[s.Key]; !x.selects {
			x.excluded = rules.Excluded(s, slices.Values(sorted))
		}
	}
	return all
}
