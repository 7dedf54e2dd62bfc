package mirror

import (
	"cmp"
	"context"
	"slices"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/mirror-controller/mirror-controller/mirror/internal/report"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// reporter sends the messages about sources. It makes them from what holds when their name's turn comes.
type reporter struct {
	*base
	events EventSender
}

const (
	// reportWorkers is how many names are reported at a time.
	reportWorkers = 4
	// reportEnd bounds the time in which a process that stops waits for the messages on their way.
	reportEnd = 3 * time.Second
	// reportPause is how many times longer than a report the pause after it is: many sources of one name make reports
	// expensive.
	reportPause = 20
)

// report sends the messages about the sources of a name that are due. The log has all of them before the first is sent.
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

// message is a message about a source.
type message struct {
	report.Message
	about    key
	sent     *report.Sent
	gone     bool                 // the view of the last fan-out does not have the source
	announce map[string]unclaimed // the copies whose deletion it announces, by namespace
}

// deliver sends a message, and records that it was sent, or refused. A source that is gone gets one try. A namespace
// that is gone or terminating counts as a try: the API server refuses events there.
func (r *reporter) deliver(ctx context.Context, name string, m message) {
	var err error
	ns := r.cache.Namespace(m.about.Namespace)
	if isClosed := ns == nil && m.gone || ns != nil && plan.Terminating(ns); !isClosed {
		err = r.events.Send(ctx, Event{Regarding: m.about, UID: m.sent.UID(),
			Type: m.Type, Reason: m.Reason, Note: m.Note, Annotations: m.Annotations})
	}
	n := r.targets.lock(name)
	defer n.unlock()
	if err != nil && !m.gone {
		m.sent.Refused(m.Message, time.Now())
		n.reportIn(n.reportGap)
		return
	}
	m.sent.Record(m.Message, time.Now())
	for namespace, u := range m.announce {
		if known := n.known[namespace]; known != nil && known.unclaimed == u {
			t := *known
			t.unclaimed.announced = true
			n.set(namespace, t)
		}
	}
}

// collect returns the messages about the sources of a name that are due, announcements of deletions first, and has the
// name reported again when others are. While a fan-out compares the targets it returns none, and asks again.
func (r *reporter) collect(name string, now time.Time) (due []message) {
	n := r.targets.lock(name)
	defer n.unlock()
	n.reportAt, n.reportGap = time.Time{}, 0
	if n.comparing || n.view == nil && len(r.cache.View(name).All()) > 0 {
		n.reportIn(runGap)
		return nil
	}
	v := cmp.Or(n.view, plan.NewView(nil))
	selections := r.countSuperseded(n, v)
	for k, s := range r.summarize(n, v, selections, now) {
		src := n.ofSource(k)
		sent := n.sentAbout(src, s)
		if s.Source != nil {
			r.propagated(n, src, s)
		}
		messages, wait := sent.Due(s.Messages(now), now)
		for _, m := range messages {
			if m.Reason == plan.ReasonExpiring {
				due = slices.Insert(due, 0, message{m, k, sent, s.Source == nil, n.expiring(k)})
			} else {
				due = append(due, message{m, k, sent, s.Source == nil, nil})
			}
		}
		if s.Source == nil && s.Counts == [plan.States]int{} {
			wait = report.Sooner(wait, n.forget(k, src, now))
		}
		if wait > 0 {
			n.reportIn(wait)
		}
	}
	n.reportGap = min(max(runGap, reportPause*time.Since(now)), report.Spacing)
	return due
}

// sentAbout returns what was sent about a source, or about all sources that this process has never seen.
func (n *nameTargets) sentAbout(src *sourceTargets, s *report.Summary) *report.Sent {
	sent, uid := &src.sent, src.sent.UID()
	if s.Source != nil {
		uid = s.Source.ConfigMap.UID
	} else if uid == "" {
		sent, uid = &n.unseen, n.unseen.UID()
	}
	sent.Begin(uid)
	return sent
}

// forget forgets a source that is gone and has no targets, or returns when to ask again: messages keep their spacing.
func (n *nameTargets) forget(k key, src *sourceTargets, now time.Time) (wait time.Duration) {
	wait = src.sent.QuietIn(now)
	if wait <= 0 && !src.changeAt.After(n.fanOutAt) { // else it has just come, and a fan-out will show that
		delete(n.sources, k)
	}
	return wait
}

// expiring returns the copies of a source that expire, by namespace.
func (n *nameTargets) expiring(source key) map[string]unclaimed {
	all := map[string]unclaimed{}
	for namespace, t := range n.known {
		if t.state == plan.StateExpiring && t.owner == source {
			all[namespace] = t.unclaimed
		}
	}
	return all
}

// countSuperseded counts in how many namespaces each source is superseded. It returns what each one selects if there
// are several, or one may select no target.
func (r *reporter) countSuperseded(n *nameTargets, v *plan.View) (selections map[key]*report.Selection) {
	isWithoutTargets := func(s *plan.Source) bool {
		counts := n.ofSource(s.Key).counts
		for _, state := range []plan.State{plan.StateSuperseded, plan.StateExpiring, plan.StateOutOfScope} {
			counts[state] = 0
		}
		return counts == [plan.States]int{}
	}
	if len(v.Sources) > 1 || slices.ContainsFunc(v.Sources, isWithoutTargets) {
		owner := func(namespace string) key {
			if t := n.known[namespace]; t != nil && v.Find(t.owner) != nil {
				return t.owner
			}
			return key{}
		}
		// In the lock: a namespace that changes later asks for another report.
		selections = report.Select(r.rules, r.cache.Namespaces(), v.Sources, owner)
	}
	for k, src := range n.sources {
		superseded := cmp.Or(selections[k], &report.Selection{}).Superseded
		n.add(k, plan.StateSuperseded, superseded-src.counts[plan.StateSuperseded])
	}
	return selections
}

// summarize returns a summary of each source that is known. Those outside of the view are gone, or have just come.
func (r *reporter) summarize(n *nameTargets, v *plan.View, selections map[key]*report.Selection, now time.Time) (
	all map[key]*report.Summary) {
	all = map[key]*report.Summary{}
	for k, src := range n.sources {
		all[k] = &report.Summary{Key: k, Source: v.Find(k), Counts: src.counts, Rules: r.rules, Selection: selections[k]}
	}
	for namespace, t := range n.known {
		ns := r.cache.Namespace(namespace)
		if t.state.IsProblem() {
			all[t.owner].Add(t.state, namespace, t.note, t.adoptable)
		}
		at := t.unclaimed.since.Add(r.grace)
		if t.state == plan.StateExpiring && at.After(now) && ns != nil && !plan.Terminating(ns) {
			all[t.owner].Expire(t.unclaimed.why, t.unclaimed.announced, namespace, at)
		}
	}
	return all
}

// propagated observes how long the changes of a source took, from the oldest on, to reach every target. Of a change
// after the last fan-out it knows nothing.
func (r *reporter) propagated(n *nameTargets, src *sourceTargets, s *report.Summary) {
	changeAt, writeAt := src.changeAt, src.writeAt
	if s.Pending() || changeAt.After(n.fanOutAt) {
		return
	}
	src.changeAt, src.writeAt = time.Time{}, time.Time{}
	if !changeAt.IsZero() && !writeAt.Before(changeAt) {
		r.metrics.propagation.Observe(writeAt.Sub(changeAt).Seconds())
	}
}

// Event is one event about a ConfigMap. Type, Reason, Note and Annotations are those of the Kubernetes event.
type Event struct {
	Regarding          types.NamespacedName
	UID                types.UID // of the ConfigMap; empty if it was never seen
	Type, Reason, Note string
	Annotations        map[string]string
}

// EventSender sends events to the API server.
type EventSender interface {
	// Send returns when the API server has the event, or the error for which it has not. The caller retries.
	Send(ctx context.Context, e Event) error
}

// restoredRate, a second, and restoredBurst bound the events about restored copies: a client may edit thousands.
const restoredRate, restoredBurst = 20, 100

// restored are the events about restored copies that wait to be sent. They are best effort.
type restored chan Event

// put adds an event, and does not wait. It drops the event if many wait.
func (r restored) put(e Event) {
	select {
	case r <- e:
	default:
	}
}

// work sends events until ctx ends.
func (r restored) work(ctx context.Context, events EventSender) {
	limiter := rate.NewLimiter(restoredRate, restoredBurst)
	for limiter.Wait(ctx) == nil {
		select {
		case <-ctx.Done():
		case e := <-r:
			_ = events.Send(ctx, e) // the copy is restored, and its owner can do without the event
		}
	}
}
