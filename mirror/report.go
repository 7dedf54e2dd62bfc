package mirror

import (
	"context"
	"time"

	"github.com/mirror-controller/mirror-controller/mirror/internal/report"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// reporter reports how sources stand: it announces deletions in the log, and
// sends messages as events. Both are made from what holds at that moment.
type reporter struct {
	*decider
	metrics *controllerMetrics
	events  EventSender
	due     *dueSources
	// linesAt is when deletions were last announced. It needs no lock: the queue
	// gives nextLines to one worker at a time.
	linesAt time.Time
}

const (
	// reportWorkers is how many names are reported at a time.
	reportWorkers = 4
	// reportPause is how many times longer than a report the pause after it is:
	// many sources of one name make reports expensive.
	reportPause = 20
)

// report queues those sources of a name about which a message is due. Of nextLines
// it announces deletions. It never waits for the API server.
func (r *reporter) report(ctx context.Context, name string) {
	if name == nextLines {
		r.announce(ctx)
		return
	}
	now := time.Now()
	n := r.records.lock(name)
	defer n.unlock()
	n.reportAt = time.Time{}
	n.reportGap = 0
	if r.isEarly(n) {
		n.reportIn(reportDelay)
		return
	}
	for k, s := range r.summarize(n, n.sources, now) {
		r.queueIfDue(n, k, s, now)
	}
	n.reportGap = min(max(reportDelay, reportPause*time.Since(now)), report.Spacing)
}

// isEarly reports whether it is too early for a message about a source of the name:
// it would count a part of the targets, or come before a line about deletions.
func (r *reporter) isEarly(n *nameRecords) bool {
	return r.isIncomplete(n) || !n.announceBy.IsZero()
}

// isIncomplete reports whether the records of a name show a part of its targets: a
// fan-out is running, or the first one is yet to come.
func (r *reporter) isIncomplete(n *nameRecords) bool {
	return n.comparing || n.view == nil && len(r.cache.View(n.name).All) > 0
}

// queueIfDue queues a source about which a message is due. If one is due later,
// the name is reported again then.
func (r *reporter) queueIfDue(n *nameRecords, k key, s *report.Summary, now time.Time) {
	status := n.status(k)
	if s.Source != nil {
		r.propagated(n, status, s)
	}
	next, wait := n.sentAbout(status).Next(s.Messages(now), now)
	if next != nil {
		r.due.add(k)
	} else if s.Source == nil && s.Counts == (plan.Counts{}) {
		wait = status.sent.QuietIn(now)                  // messages keep their spacing
		hasJustCome := status.changeAt.After(n.fanOutAt) // and a fan-out will show that
		if wait <= 0 && !hasJustCome {
			n.forget(k)
		}
	}
	if wait > 0 {
		n.reportIn(wait)
	}
}

// sentAbout returns what was sent about a source, or about all sources that this
// process has never seen.
func (n *nameRecords) sentAbout(status *sourceStatus) *report.Sent {
	if status.hasSeen() {
		return &status.sent
	}
	n.sentOfUnseen.Begin("")
	return &n.sentOfUnseen
}

// hasSeen reports whether this process has seen the source, which may be gone.
func (s *sourceStatus) hasSeen() bool { return s.sent.UID() != "" }

// excluded returns what keeps a source without targets from all namespaces. It
// looks at these once after each fan-out. Events about namespaces add to that.
func (r *reporter) excluded(s *plan.Source, status *sourceStatus) []plan.Exclusion {
	if s == nil || s.OutOfScope || !status.counts.IsWithoutTargets() {
		return nil
	}
	if status.excluded == nil {
		status.excluded = r.rules.Excluded(s, r.cache.Namespaces())
	}
	return status.excluded
}

// summarize returns summaries of these sources of a name. A source outside of the
// view of the last fan-out is gone, or has just come.
func (r *reporter) summarize(
	n *nameRecords, sources map[key]*sourceStatus, now time.Time) map[key]*report.Summary {
	all := map[key]*report.Summary{}
	for k, status := range sources {
		s := &report.Summary{Rules: r.rules, Counts: status.counts}
		if n.view != nil {
			s.Source = n.view.Find(k)
		}
		s.Excluded = r.excluded(s.Source, status)
		all[k] = s
	}
	for namespace, known := range n.byNamespace {
		owner := all[known.owner]
		if owner != nil {
			r.addTo(owner, sources[known.owner], namespace, known, now)
		}
		if known.superseded == "" {
			continue
		}
		if owner != nil {
			owner.Waiting++
		}
		for k, s := range all {
			if known.superseded.has(sources[k].number) {
				s.Supersede(namespace, known.owner)
			}
		}
	}
	return all
}

// addTo adds a target to the summary of a source: its warning, and the time of
// the deletion of the copy there.
func (r *reporter) addTo(
	s *report.Summary, status *sourceStatus, namespace string, known *record, now time.Time) {
	if known.state.IsWarned() {
		s.Add(known.state, namespace, known.note, known.adoptable)
	}
	u := &known.unclaimed
	if known.state != plan.StateExpiring {
		return
	}
	end := u.since.Add(r.grace) // past, if no line has begun it
	ns := r.cache.Namespace(namespace)
	if end.After(now) && ns != nil && !plan.Terminating(ns) {
		s.Expire(u.why, namespace, end, u.line <= status.reported)
	}
}

// propagated observes how long the changes of a source took, from the oldest on,
// to reach every target. Of a change after the last fan-out it knows nothing.
func (r *reporter) propagated(n *nameRecords, status *sourceStatus, s *report.Summary) {
	changeAt := status.changeAt
	writeAt := status.writeAt
	if s.Pending() || changeAt.After(n.fanOutAt) {
		return
	}
	status.changeAt = time.Time{}
	if !changeAt.IsZero() && !writeAt.Before(changeAt) {
		r.metrics.propagation.Observe(writeAt.Sub(changeAt).Seconds())
	}
}
