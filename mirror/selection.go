package mirror

import (
	"hash/maphash"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// selection is which namespaces a source selects, and which of them another source has. A report derives it, and keeps
// it until the source or a winner changes: n sources of one name would cost n times the namespaces at each report.
type selection struct {
	source   *plan.Source
	winners  uint64 // the sum of the winners that it was derived from
	selected bool   // the source selects a namespace
	lost     int    // namespaces that another source has
	first    []string
	winner   key              // of the first one
	excluded []plan.Exclusion // if it selects none: the rules that keep it from all namespaces
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
func (d *decider) newContest(v *plan.View) *contest {
	c := &contest{rules: d.rules}
	for ns := range d.cache.Namespaces() {
		if d.rules.AllowsTarget(ns.Name) && !plan.LabelsTruncated(ns) {
			c.namespaces = append(c.namespaces, ns)
		}
	}
	slices.SortFunc(c.namespaces, func(a, b *corev1.Namespace) int { return strings.Compare(a.Name, b.Name) })
	for _, ns := range c.namespaces {
		winner := d.rules.Winner(v, ns)
		c.winners = append(c.winners, winner)
		entry := contested{ns.Name, "", hashOf(ns.Labels), plan.Terminating(ns)}
		if winner != nil {
			entry.winner = winner.Key.Namespace
		}
		c.sum += maphash.Comparable(contestSeed, entry)
	}
	return c
}

// selectAll returns the selection of each source. last are those of the last report.
func (d *decider) selectAll(v *plan.View, last map[key]*selection) map[key]*selection {
	c, all := d.newContest(v), make(map[key]*selection, len(v.Sources))
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
func (c *contest) selectBy(s *plan.Source) *selection {
	out := &selection{source: s, winners: c.sum}
	for i, ns := range c.namespaces {
		if c.rules.Exclusion(s, ns) != plan.NotExcluded {
			continue
		}
		out.selected = true
		if c.winners[i] == s {
			continue
		}
		out.lost++
		if len(out.first) < named {
			out.first = append(out.first, ns.Name)
		}
		if out.lost == 1 {
			out.winner = c.winners[i].Key
		}
	}
	if !out.selected {
		out.excluded = c.rules.Excluded(s, slices.Values(c.namespaces))
	}
	return out
}
