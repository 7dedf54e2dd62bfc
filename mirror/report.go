package mirror

import (
	"cmp"
	"context"
	"slices"
	"time"

	"k8s.io/klog/v2"

	"github.com/mirror-controller/mirror-controller/mirror/internal/report"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// reporter sends the messages about sources. It makes them from what holds when
// the turn of their name comes.
type reporter struct {
	*decider
	metrics *controllerMetrics
	events  EventSender
}

const (
	// reportWorkers is how many names are reported at a time.
	reportWorkers = 4
	// reportEnd bounds the time in which a process that stops waits for the
	// messages on their way.
	reportEnd = 3 * time.Second
	// reportPause is how many times longer than a report the pause after it is:
	// many sources of one name make reports expensive.
	reportPause = 20
)

// message is a message about a source.
type message struct {
	report.Message
	about    key
	sent     *report.Sent
	isGone   bool                 // the last fan-out has not met the source
	announce map[string]unclaimed // the copies whose deletion it announces, by namespace
}

// report sends the messages about the sources of a name that are due. All of them
// are in the log before the first one is sent.
func (r *reporter) report(ctx context.Context, name string) {
	due := r.collect(name, time.Now())
	for _, m := range due {
		if m.Log {
			klog.FromContext(ctx).Info(m.Note, "source", m.about, "type", m.Type, "reason", m.Reason)
		}
	}
	for _, m := range due {
		r.deliver(ctx, name, m)
	}
}

// deliver sends a message, and records that it was sent, or refused.
func (r *reporter) deliver(ctx context.Context, name string, m message) {
	err := r.send(ctx, m)
	n := r.records.lock(name)
	defer n.unlock()
	if err != nil && !m.isGone { // a source that is gone gets one try
		m.sent.Refused(m.Message, time.Now())
		n.reportIn(n.reportGap)
		return
	}
	m.sent.Record(m.Message, time.Now())
	for namespace, u := range m.announce {
		known := n.byNamespace[namespace]
		if known != nil && known.unclaimed == u {
			announced := *known
			announced.unclaimed.announced = true
			n.set(namespace, announced)
		}
	}
}

// send sends a message, unless the namespace of the source is gone or is being
// deleted: the API server refuses events there.
func (r *reporter) send(ctx context.Context, m message) error {
	ns := r.cache.Namespace(m.about.Namespace)
	if ns == nil && m.isGone || ns != nil && plan.Terminating(ns) {
		return nil
	}
	return r.events.Send(ctx, Event{
		Regarding:   m.about,
		UID:         m.sent.UID(),
		Type:        m.Type,
		Reason:      m.Reason,
		Note:        m.Note,
		Annotations: m.Annotations,
	})
}

// collect returns the messages about the sources of a name that are due, and has
// the name reported again when others are. Announcements of deletions come first.
// While a fan-out compares the targets it returns none, and asks again.
func (r *reporter) collect(name string, now time.Time) (due []message) {
	n := r.records.lock(name)
	defer n.unlock()
	n.reportAt = time.Time{}
	n.reportGap = 0
	hasNoFanOut := n.view == nil && len(r.cache.View(name).All()) > 0
	if n.comparing || hasNoFanOut {
		n.reportIn(reportDelay)
		return nil
	}
	view := cmp.Or(n.view, plan.NewView(nil))
	selections := r.countSuperseded(n, view)
	var announcements []message
	for k, s := range r.summarize(n, view, selections, now) {
		announce, others := r.messagesAbout(n, k, s, now)
		announcements = append(announcements, announce...)
		due = append(due, others...)
	}
	n.reportGap = min(max(reportDelay, reportPause*time.Since(now)), report.Spacing)
	return append(announcements, due...)
}

// messagesAbout returns the messages about one source that are due, those that
// announce deletions apart from the others.
func (r *reporter) messagesAbout(n *nameRecords, k key, s *report.Summary, now time.Time) (
	announcements, others []message) {
	status := n.status(k)
	sent := n.sentAbout(status, s)
	if s.Source != nil {
		r.propagated(n, status, s)
	}
	messages, wait := sent.Due(s.Messages(now), now)
	for _, m := range messages {
		about := message{Message: m, about: k, sent: sent, isGone: s.Source == nil}
		if m.Reason == plan.ReasonExpiring {
			about.announce = n.expiring(k)
			announcements = append(announcements, about)
		} else {
			others = append(others, about)
		}
	}
	if s.Source == nil && s.Counts == (plan.Counts{}) {
		wait = report.Sooner(wait, n.forget(k, status, now))
	}
	if wait > 0 {
		n.reportIn(wait)
	}
	return announcements, others
}

// sentAbout returns what was sent about a source, or about all sources that this
// process has never seen.
func (n *nameRecords) sentAbout(status *sourceStatus, s *report.Summary) *report.Sent {
	sent := &status.sent
	uid := sent.UID()
	switch {
	case s.Source != nil:
		uid = s.Source.ConfigMap.UID
	case uid == "":
		sent = &n.sentOfUnseen
		uid = sent.UID()
	}
	sent.Begin(uid)
	return sent
}

// forget forgets a source that is gone and has no targets, or returns when to ask
// again: messages keep their spacing.
func (n *nameRecords) forget(k key, status *sourceStatus, now time.Time) (wait time.Duration) {
	wait = status.sent.QuietIn(now)
	isNew := status.changeAt.After(n.fanOutAt) // it has just come, and a fan-out will show that
	if wait <= 0 && !isNew {
		delete(n.sources, k)
	}
	return wait
}

// expiring returns the copies of a source that expire, by namespace.
func (n *nameRecords) expiring(source key) map[string]unclaimed {
	all := map[string]unclaimed{}
	for namespace, known := range n.byNamespace {
		if known.state == plan.StateExpiring && known.owner == source {
			all[namespace] = known.unclaimed
		}
	}
	return all
}

// countSuperseded counts in how many namespaces each source is superseded. It
// returns what each source selects, if there are several or one may select no
// target.
func (r *reporter) countSuperseded(n *nameRecords, view *plan.View) (selections map[key]*report.Selection) {
	if len(view.Sources) > 1 || slices.ContainsFunc(view.Sources, n.mayHaveNoTargets) {
		owner := func(namespace string) key {
			known := n.byNamespace[namespace]
			if known == nil || view.Find(known.owner) == nil {
				return key{}
			}
			return known.owner
		}
		// In the lock: a namespace that changes later asks for another report.
		selections = report.Select(r.rules, r.cache.Namespaces(), view.Sources, owner)
	}
	for k, status := range n.sources {
		superseded := 0
		if selection := selections[k]; selection != nil {
			superseded = selection.Superseded
		}
		n.count(k, plan.StateSuperseded, superseded-status.counts[plan.StateSuperseded])
	}
	return selections
}

// mayHaveNoTargets reports whether no target counts for the source, apart from
// those that the source no longer selects.
func (n *nameRecords) mayHaveNoTargets(s *plan.Source) bool {
	return n.status(s.Key).counts.Owned() == 0
}

// summarize returns a summary of each source that is known. A source outside of
// the view is gone, or has just come.
func (r *reporter) summarize(n *nameRecords, view *plan.View, selections map[key]*report.Selection, now time.Time) (
	all map[key]*report.Summary) {
	all = map[key]*report.Summary{}
	for k, status := range n.sources {
		all[k] = &report.Summary{
			Key:       k,
			Source:    view.Find(k),
			Counts:    status.counts,
			Rules:     r.rules,
			Selection: selections[k],
		}
	}
	for namespace, known := range n.byNamespace {
		if known.state.IsWarned() {
			all[known.owner].Add(known.state, namespace, known.note, known.adoptable)
		}
		if known.state != plan.StateExpiring {
			continue
		}
		end := known.unclaimed.since.Add(r.grace)
		ns := r.cache.Namespace(namespace)
		if end.After(now) && ns != nil && !plan.Terminating(ns) {
			all[known.owner].Expire(known.unclaimed.why, known.unclaimed.announced, namespace, end)
		}
	}
	return all
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
	status.writeAt = time.Time{}
	if !changeAt.IsZero() && !writeAt.Before(changeAt) {
		r.metrics.propagation.Observe(writeAt.Sub(changeAt).Seconds())
	}
}
