package mirror

import (
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// noEvents records no events.
type noEvents struct{}

func (noEvents) Eventf(_, _ runtime.Object, _, _, _, _ string, _ ...any) {}

// withhold records a change that a dry run did not make, and returns the time until the target is compared again without an
// event.
func (rec *record) withhold(res result, now time.Time) time.Duration {
	wait := seldom.backoff(1)
	rec.settle(plan.StatePending, countsFor(res.change), content{}, now)
	rec.reason, rec.would, rec.notBefore, rec.tried = withheld, res.change.Op, now.Add(wait), res.tried
	return wait
}

// tally is a number of changes for each operation.
type tally [plan.OpDelete + 1]int

// String lists the operations that are not zero; empty if all are.
func (t tally) String() string {
	var parts []string
	for op, n := range t {
		if n > 0 {
			parts = append(parts, fmt.Sprintf("%v %d", plan.Op(op), n))
		}
	}
	return strings.Join(parts, ", ")
}

// withheldLine is a log line about the changes for one source that a dry run withheld.
type withheldLine struct {
	source key
	level  int
	text   string
}

// logWithheld is the reason by which lines about withheld changes keep their spacing.
const logWithheld = "DryRun"

// withheldNews returns a line for each source of a name, also for one that is gone, if a dry run would do something else
// than the last line says. A source whose targets are not all compared has no line yet. due says that a line is to be said
// again at level 0, after logSpacing.
func (s *status) withheldNews(name string) (out []withheldLine, due bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.names[name]
	if n == nil || !n.dirty {
		return nil, false
	}
	would, open := map[key]tally{}, map[key]int{}
	for _, r := range n.targets {
		if r.would != plan.OpNone {
			t := would[r.countsFor]
			t[r.would]++
			would[r.countsFor] = t
			open[r.countsFor]--
		}
	}
	for k, src := range n.sources {
		text := would[k].String()
		if text == src.would && !src.due || open[k]+src.counts[plan.StatePending] > 0 {
			continue
		}
		level, said := src.level(logWithheld), text == src.would
		src.would, src.due = text, level > 0
		if due = due || src.due; src.due && said {
			continue
		}
		if text == "" {
			text = "change nothing"
		}
		out = append(out, withheldLine{k, level, "Would " + text})
	}
	return out, due
}
