package report

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// Expiry are copies that expire, by the reasons why no source claims them.
type Expiry map[plan.Unclaimed]*expiring

// expiring are the copies that expire for one reason.
type expiring struct {
	places []string
	first  time.Time // when the first of them is deleted
}

// Add adds a copy at a place, which is deleted at a time.
func (x Expiry) Add(why plan.Unclaimed, place string, at time.Time) {
	e := x[why]
	if e == nil {
		e = &expiring{first: at}
		x[why] = e
	}
	e.places = append(e.places, place)
	if at.Before(e.first) {
		e.first = at
	}
}

// isUrgent reports whether a copy is deleted before Spacing is over.
func (x Expiry) isUrgent(now time.Time) bool {
	for _, e := range x {
		if e.first.Before(now.Add(Spacing)) {
			return true
		}
	}
	return false
}

// Text announces the deletions, with a sentence for each reason. It names the
// first so many places. If the copies are not all counted yet, it says so.
func (x Expiry) Text(rules *plan.Rules, named int, isIncomplete bool) string {
	var sentences []string
	for _, why := range slices.SortedFunc(maps.Keys(x), compareUnclaimed) {
		e := x[why]
		slices.Sort(e.places)
		copies := number(len(e.places), "copy", "copies")
		if isIncomplete {
			copies = "at least " + copies
		}
		them := "them"
		if len(e.places) == 1 {
			them = "it"
		}
		cause, remedy := rules.Explain(why)
		sentences = append(sentences, fmt.Sprintf(
			"%s in %s will be deleted from %s UTC on: %s. To keep %s, %s before then.",
			copies, namespaces(e.places, named), e.first.UTC().Format(time.DateTime), cause, them, remedy))
	}
	text := strings.Join(sentences, " ")
	return strings.ToUpper(text[:1]) + text[1:]
}

func compareUnclaimed(a, b plan.Unclaimed) int {
	return cmp.Or(cmp.Compare(a.Rule, b.Rule), cmp.Compare(a.Annotation, b.Annotation))
}
