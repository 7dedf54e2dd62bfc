package report

import (
	"hash/maphash"
	"iter"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// Selection says which namespaces a source selects, and which of them another source has. It holds until the source or
// a winner changes: n sources of one name would cost n times the namespaces at each report.
type Selection struct {
	Selected bool // the source selects a namespace
	Lost     int  // the number of namespaces that another source has

	source   *plan.Source
	winners  uint64               // the sum of the winners that it was derived from
	first    []string             // the first namespaces that another source has
	winner   types.NamespacedName // of the first one
	excluded []plan.Exclusion     // if the source selects no namespace: the rules that keep it from all
}

// named is how many namespaces a text names.
const named = 5

// contest is the winner of each namespace, for the sources of one name.
type contest struct {
	rules      *plan.Rules
	namespaces []*corev1.Namespace // sorted by name
	winners    []*plan.Source      // of these; nil: no source claims the namespace
	sum        uint64              // differs if a winner, a namespace or a label does
}

// contested is what the selections depend on in one namespace.
type contested struct {
	namespace, winner string
	labels            uint64
	terminating       bool
}

var contestSeed = maphash.MakeSeed()

// hashOf returns a hash of labels that does not depend on their order.
func hashOf(labels map[string]string) (sum uint64) {
	for k, v := range labels {
		sum += maphash.Comparable(contestSeed, [2]string{k, v})
	}
	return sum
}

// newContest determines the winners of all namespaces.
func newContest(rules *plan.Rules, namespaces iter.Seq[*corev1.Namespace], v *plan.View) *contest {
	c := &contest{rules: rules}
	for ns := range namespaces {
		if rules.AllowsTarget(ns.Name) && !plan.LabelsTruncated(ns) {
			c.namespaces = append(c.namespaces, ns)
		}
	}
	slices.SortFunc(c.namespaces, func(a, b *corev1.Namespace) int { return strings.Compare(a.Name, b.Name) })
	for _, ns := range c.namespaces {
		winner := rules.Winner(v, ns)
		c.winners = append(c.winners, winner)
		entry := contested{ns.Name, "", hashOf(ns.Labels), plan.Terminating(ns)}
		if winner != nil {
			entry.winner = winner.Key.Namespace
		}
		c.sum += maphash.Comparable(contestSeed, entry)
	}
	return c
}

// Select returns the selection of each source of the view. last are those of the last report.
func Select(rules *plan.Rules, namespaces iter.Seq[*corev1.Namespace], v *plan.View,
	last map[types.NamespacedName]*Selection) map[types.NamespacedName]*Selection {
	c, all := newContest(rules, namespaces, v), make(map[types.NamespacedName]*Selection, len(v.Sources))
	for _, s := range v.Sources {
		if l := last[s.Key]; l != nil && l.source == s && l.winners == c.sum {
			all[s.Key] = l
		} else {
			all[s.Key] = c.selectBy(s)
		}
	}
	return all
}

// selectBy derives the selection of one source.
func (c *contest) selectBy(s *plan.Source) *Selection {
	out := &Selection{source: s, winners: c.sum}
	for i, ns := range c.namespaces {
		if c.rules.Exclusion(s, ns) != plan.NotExcluded {
			continue
		}
		out.Selected = true
		if c.winners[i] == s {
			continue
		}
		out.Lost++
		if len(out.first) < named {
			out.first = append(out.first, ns.Name)
		}
		if out.Lost == 1 {
			out.winner = c.winners[i].Key
		}
	}
	if !out.Selected {
		out.excluded = c.rules.Excluded(s, slices.Values(c.namespaces))
	}
	return out
}
