package report

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
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
	last   time.Time // when the last of them is deleted
}

// Add adds a copy at a place, which is deleted at a time.
func (x Expiry) Add(why plan.Unclaimed, place string, at time.Time) {
	e := x[why]
	if e == nil {
		e = &expiring{}
		x[why] = e
	}
	e.add([]string{place}, at, at)
}

// add adds copies at some places, which are deleted between two times.
func (e *expiring) add(places []string, first, last time.Time) {
	e.places = append(e.places, places...)
	if e.first.IsZero() || first.Before(e.first) {
		e.first = first
	}
	if last.After(e.last) {
		e.last = last
	}
}

// annotations returns the number of the copies, and the time in which they are
// deleted: the text has all of it.
func (x Expiry) annotations() map[string]string {
	all := expiring{}
	for _, e := range x {
		all.add(e.places, e.first, e.last)
	}
	return map[string]string{
		plan.EventAnnotation(plan.StateExpiring): strconv.Itoa(len(all.places)),
		plan.EventFrom:                           all.first.UTC().Format(time.RFC3339),
		plan.EventUntil:                          all.last.UTC().Format(time.RFC3339),
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

// when returns when copies are deleted. Most have one time: that of the line
// that announces them.
func (e *expiring) when() string {
	first := e.first.UTC().Format(time.DateTime)
	last := e.last.UTC().Format(time.DateTime)
	if first == last {
		return first + " UTC on"
	}
	return first + " UTC on, the last from " + last + " UTC on"
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
			"%s in %s will be deleted from %s: %s. To keep %s, %s before then.",
			copies, namespaces(e.places, named), e.when(), cause, them, remedy))
	}
	text := strings.Join(sentences, " ")
	return strings.ToUpper(text[:1]) + text[1:]
}

func compareUnclaimed(a, b plan.Unclaimed) int {
	return cmp.Or(cmp.Compare(a.Rule, b.Rule), cmp.Compare(a.Annotation, b.Annotation))
}
