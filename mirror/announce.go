package mirror

import (
	"context"
	"time"

	"k8s.io/klog/v2"

	"github.com/mirror-controller/mirror-controller/mirror/internal/report"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// Announcements. A line of the log announces each deletion, and begins its grace.
// So no copy is ever deleted that no line has counted, whatever becomes of the
// events about it.

const (
	// announceWithin is how long the line about a deletion waits for a fan-out: a
	// source may change all the time.
	announceWithin = time.Second
	// linesDelay is how long lines wait after a fan-out: those about sources that
	// change at the same moment come in one round.
	linesDelay = 10 * time.Millisecond
	// lineGap is the shortest time between the lines of one round and those of the
	// next. A round has one line for each source, and one for all sources that this
	// process has never seen: a tenant can make up any number of these.
	lineGap = time.Second
	// namedInLines is how many namespaces a line names.
	namedInLines = 10
	// nextLines stands for the next round of lines in the queue of names.
	nextLines = ""
)

// announcement is a line about copies that are to be deleted.
type announcement struct {
	report.Expiry
	isIncomplete bool
}

// announceSoon has a line of the log announce new deletions.
func (n *nameRecords) announceSoon(now time.Time) {
	if n.announceBy.IsZero() {
		n.announceBy = now.Add(announceWithin)
		n.all.reports.AddAfter(nextLines, reportDelay)
	}
}

// announce writes the lines about copies that no line has counted yet. Their
// graces begin.
func (r *reporter) announce(ctx context.Context) {
	now := time.Now()
	if left := r.linesAt.Add(lineGap).Sub(now); left > 0 {
		r.queues.reports.AddAfter(nextLines, left)
		return
	}
	lines := map[key]*announcement{}
	counted := map[string]map[string]unclaimed{} // by name and namespace
	for _, name := range r.records.names() {
		n := r.records.lock(name)
		if copies := r.countNew(n, lines, now); len(copies) > 0 {
			counted[name] = copies
		}
		n.unlock()
	}
	for source, line := range lines {
		var about any = source
		if source == (key{}) {
			about = "gone before this process began to lead"
		}
		klog.FromContext(ctx).Info(line.Text(r.rules, namedInLines, line.isIncomplete),
			"source", about, "type", "Warning", "reason", plan.ReasonExpiring)
		r.linesAt = time.Now()
	}
	for name, copies := range counted {
		n := r.records.lock(name)
		r.beginGraces(n, copies)
		n.reportIn(0)
		n.unlock()
	}
}

// countNew counts the copies of a name that no line has counted yet in the lines
// of their sources, and returns these copies, by namespace. A source that this
// process has never seen has an empty key. The lines wait for a running fan-out,
// or they would count a part of the copies.
func (r *reporter) countNew(
	n *nameRecords, lines map[key]*announcement, now time.Time) map[string]unclaimed {
	if n.announceBy.IsZero() {
		return nil
	}
	isIncomplete := r.isIncomplete(n)
	if isIncomplete && now.Before(n.announceBy) {
		r.queues.reports.AddAfter(nextLines, reportDelay)
		return nil
	}
	n.announceBy = time.Time{}
	copies := map[string]unclaimed{}
	for namespace, known := range n.byNamespace {
		u := known.unclaimed
		if known.state != plan.StateExpiring || u.uid == "" || u.line > 0 {
			continue
		}
		source := known.owner
		place := namespace
		if !n.status(source).hasSeen() {
			source = key{}
			place = namespace + "/" + n.name
		}
		line := lines[source]
		if line == nil {
			line = &announcement{Expiry: report.Expiry{}}
			lines[source] = line
		}
		begin := u.since // for another reason than before
		if begin.IsZero() {
			begin = now
		}
		line.Add(u.why, place, begin.Add(r.grace))
		line.isIncomplete = line.isIncomplete || isIncomplete
		copies[namespace] = u
	}
	return copies
}

// beginGraces begins the graces of those copies that have stayed unclaimed since
// a line counted them.
func (r *reporter) beginGraces(n *nameRecords, counted map[string]unclaimed) {
	now := time.Now()
	n.lines++
	for namespace, u := range counted {
		known := n.byNamespace[namespace]
		if known == nil || known.unclaimed != u {
			continue
		}
		begun := *known
		begun.unclaimed.line = n.lines
		if u.since.IsZero() {
			begun.unclaimed.since = now
			r.queues.copies.AddAfter(key{Namespace: namespace, Name: n.name}, r.grace)
		}
		n.set(namespace, begun)
	}
}
