package mirror

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/mirror-controller/mirror-controller/mirror/internal/cache"
	"github.com/mirror-controller/mirror-controller/mirror/internal/outbox"
	"github.com/mirror-controller/mirror-controller/mirror/internal/report"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// reporter reports about sources.
type reporter struct {
	rules   *plan.Rules
	cache   *cache.Cache
	status  *status
	grace   time.Duration // the deletion grace
	outbox  *outbox.Outbox
	metrics *controllerMetrics
}

// sourceReport is what a report says of one source.
type sourceReport struct {
	*report.Summary
	uid      types.UID
	messages []*report.Message
	arrived  bool          // a change of the source has reached every target
	took     time.Duration // since the controller saw the change
}

// report reports about the sources of a name, as they are in v. It returns when to report again; 0: at the next change.
func (r *reporter) report(ctx context.Context, name string, v *plan.View) (wait time.Duration) {
	n := r.status.lock(name)
	n.meet(v)
	wait, due := n.reportDue(v)
	if !due {
		n.unlock()
		return wait
	}
	var selections map[key]*report.Selection
	if len(v.Sources) > 1 || n.withoutTargets() {
		// In the lock: a namespace that changes later makes the status dirty again.
		selections = report.Select(r.rules, r.cache.Namespaces(), v, n.selections)
	}
	all, wait := r.collect(n, v, selections)
	n.unlock()
	for _, s := range all {
		r.send(ctx, s)
	}
	return wait
}

// send logs the messages of a report, and hands them over as events.
func (r *reporter) send(ctx context.Context, s sourceReport) {
	for _, m := range s.messages {
		if !m.Again {
			klog.FromContext(ctx).Info(m.Note, "source", s.Key, "type", m.Type, "reason", m.Reason)
		}
		if r.takesEvents(s.Summary) {
			r.outbox.Put(outbox.Event{Regarding: s.Key, UID: s.uid,
				Type: m.Type, Reason: m.Reason, Note: m.Note, Annotations: m.Annotations})
		}
	}
	if s.arrived {
		r.metrics.propagation.Observe(s.took.Seconds())
	}
}

// takesEvents reports whether the namespace of a source takes events: the API server refuses those in one that is being
// deleted, or gone.
func (r *reporter) takesEvents(sum *report.Summary) bool {
	ns := r.cache.Namespace(sum.Key.Namespace)
	return ns == nil && sum.Source != nil || ns != nil && !plan.Terminating(ns)
}

// collect returns the reports that are due about the sources of a name, and records them. While targets are queued it
// returns only announcements; while the targets are not compared with v, nothing. The status is locked.
func (r *reporter) collect(n *nameStatus, v *plan.View, selections map[key]*report.Selection) (
	all []sourceReport, wait time.Duration) {
	if wait, due := n.reportDue(v); !due {
		return nil, wait
	}
	now := time.Now()
	n.reported = now
	n.meet(v)
	n.supersede(selections)
	summaries := r.summarize(n, v, now)
	all, wait = announce(n, summaries, now)
	if busy := n.busyFor(); busy > 0 {
		return all, report.Sooner(wait, busy)
	}
	n.dirty, n.busySince = false, now
	for k, sum := range summaries {
		src, out := n.source(k), sourceReport{Summary: sum}
		out.uid = src.UID()
		messages, later := src.Messages(sum, now)
		out.messages = messages
		if sum.Source != nil {
			out.took, out.arrived = src.propagated(sum, n.fanout)
		} else if quiet := src.QuietIn(now); quiet > 0 { // it may come back, and its messages keep their spacing
			later = report.Sooner(later, quiet)
		} else if sum.Counts == [plan.States]int{} {
			delete(n.sources, k)
		}
		wait = report.Sooner(wait, later)
		all = append(all, out)
	}
	n.dirty = wait > 0
	return all, wait
}

// announce returns the announcements of copies that expire.
func announce(n *nameStatus, summaries map[key]*report.Summary, now time.Time) (
	all []sourceReport, wait time.Duration) {
	for k, sum := range summaries {
		src := n.source(k)
		src.Begin(src.UID(), n.unseen) // of a source that is gone; meet has begun the others
		m, later := src.Announce(sum, now)
		if m != nil {
			all = append(all, sourceReport{Summary: sum, uid: src.UID(), messages: []*report.Message{m}})
		}
		wait = report.Sooner(wait, later)
	}
	if wait == 0 {
		n.announced = n.losses
	}
	return all, wait
}

// summarize returns a summary of each source of the view, and of those that are gone.
func (r *reporter) summarize(n *nameStatus, v *plan.View, now time.Time) map[key]*report.Summary {
	all := map[key]*report.Summary{}
	for k, src := range n.sources {
		all[k] = &report.Summary{Key: k, Counts: src.counts, Rules: r.rules, Selection: n.selections[k]}
	}
	for _, source := range v.All() {
		all[source.Key].Source = source
	}
	for namespace, rec := range n.targets {
		r.summarizeTarget(all, key{Namespace: namespace, Name: n.name}, rec, now)
	}
	return all
}

// summarizeTarget adds one target to the summaries.
func (r *reporter) summarizeTarget(all map[key]*report.Summary, k key, rec *record, now time.Time) {
	ns := r.cache.Namespace(k.Namespace)
	if rec.state.IsProblem() && !r.isOver(rec, ns) {
		all[rec.countsFor].Add(rec.state, k.Namespace, r.noteOf(rec, k, ns))
	}
	at := rec.unclaimed.since.Add(r.grace)
	if rec.state == plan.StateExpiring && at.After(now) && ns != nil && !plan.Terminating(ns) {
		all[rec.countsFor].Expire(rec.unclaimed.why, rec.unclaimed.nth, k.Namespace, at)
	}
}

// isOver reports whether the cache shows that a copy is in scope again, and its record does not yet.
func (r *reporter) isOver(rec *record, ns *corev1.Namespace) bool {
	return rec.state == plan.StateOutOfScope && ns != nil && r.rules.Scope(rec.countsFor, ns) == plan.NotExcluded
}

// noteOf returns the note about a target: what the foreign object there is, why it is out of scope, or the error.
func (r *reporter) noteOf(rec *record, k key, ns *corev1.Namespace) report.Note {
	switch have := r.cache.ConfigMap(k); {
	case rec.state == plan.StateForeign && have != nil:
		why, adoptable := r.rules.Foreign(have)
		return report.Note{Text: why, Adoptable: adoptable}
	case rec.state == plan.StateOutOfScope && ns != nil:
		why, _ := r.rules.Explain(plan.Loss{Rule: r.rules.Scope(rec.countsFor, ns)})
		return report.Note{Text: why}
	}
	return report.Note{Text: rec.retry.note, Adoptable: rec.retry.adoptable}
}

// propagated returns how long the last change of a source took to reach every target. ok is false if it has not yet, or
// if nothing was to be written. fanout is the begin of the last fan-out.
func (src *sourceStatus) propagated(sum *report.Summary, fanout time.Time) (took time.Duration, ok bool) {
	changed, wrote := src.changed, src.wrote
	if sum.Pending() || changed.After(fanout) { // of a later change this report knows nothing
		return 0, false
	}
	src.changed, src.wrote = time.Time{}, time.Time{}
	if changed.IsZero() || wrote.Before(changed) {
		return 0, false
	}
	return wrote.Sub(changed), true
}

// objectOf returns the ConfigMap that an event is about.
func objectOf(k key, uid types.UID) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: k.Namespace, Name: k.Name, UID: uid}}
}
