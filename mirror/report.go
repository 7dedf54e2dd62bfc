package mirror

import (
	"context"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/mirror-controller/mirror-controller/mirror/internal/outbox"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// conditions are the events that say how a source stands, but for Expiring and Mirrored, in the order of reporting. text
// describes the condition of a source at targets in this state, which are sorted. Without a state it returns an empty
// string if the condition does not hold.
var conditions = []struct {
	reason string
	kind   string
	state  plan.State
	text   func(s *summary, targets []string) string
}{
	{plan.ReasonReservedName, corev1.EventTypeWarning, plan.StateNone, reservedText},
	{plan.ReasonInvalidAnnotation, corev1.EventTypeWarning, plan.StateNone, frozenText},
	{plan.ReasonForeign, corev1.EventTypeWarning, plan.StateForeign, foreignText},
	{plan.ReasonSuperseded, corev1.EventTypeWarning, plan.StateNone, supersededText},
	{plan.ReasonWriteFailed, corev1.EventTypeWarning, plan.StateRejected, rejectedText},
	{plan.ReasonFight, corev1.EventTypeWarning, plan.StateFight, fightText},
	{plan.ReasonOutOfScope, corev1.EventTypeWarning, plan.StateOutOfScope, outOfScopeText},
	{plan.ReasonNoTargets, corev1.EventTypeWarning, plan.StateNone, noTargetsText},
	{plan.ReasonHeld, corev1.EventTypeNormal, plan.StateNone, heldText},
}

// summary is the status of one source at all its targets.
type summary struct {
	key    key
	source *plan.Source      // nil: it is gone
	object *corev1.ConfigMap // what events refer to
	counts [plan.States]int
	wrote  time.Time               // when the last copy was written since the last summary; zero: none was
	at     map[plan.State][]string // namespaces of the states that are problems, sorted
	notes  map[string]note         // by namespace

	rules     *plan.Rules
	selection *selection             // nil: it is not known, and not needed
	unclaimed map[plan.Loss][]string // namespaces of copies that expire
	expires   time.Time              // when the first of them is deleted
	losses    int                    // the number of the newest of these losses
}

// reporter reports about sources.
type reporter struct {
	*decider
	outbox  *outbox.Outbox
	metrics *controllerMetrics
}

// news is what is new about one source.
type news struct {
	*summary
	events  []message
	arrived bool          // a change of the source has reached every target
	took    time.Duration // since it was seen
}

// message is one event about a source, which is also logged.
type message struct {
	kind, reason, note string
	annotations        map[string]string
	again              bool // the same was said before
}

// report reports what is new about the sources of a name, as they are in v. It returns when to report again; 0: at the next
// change.
func (r *reporter) report(ctx context.Context, name string, v *plan.View) (wait time.Duration) {
	n := r.status.lock(name)
	n.meet(v)
	wait, due := n.reportDue(v)
	if !due {
		n.unlock()
		return wait
	}
	var selections map[key]*selection
	if len(v.Sources) > 1 || n.withoutTargets() {
		selections = r.selectAll(v, n.selections) // in the lock: a namespace that changes later makes the status dirty again
	}
	all, wait := r.news(n, v, selections)
	n.unlock()
	for _, s := range all {
		for _, m := range s.events {
			klog.FromContext(ctx).V(m.verbosity()).Info(m.note, "source", s.key, "type", m.kind, "reason", m.reason)
			if r.takesEvents(s.summary) {
				r.outbox.Put(outbox.Event{Regarding: s.key, UID: s.object.UID,
					Type: m.kind, Reason: m.reason, Note: m.note, Annotations: m.annotations})
			}
		}
		if s.arrived {
			r.metrics.propagation.Observe(s.took.Seconds())
		}
	}
	return wait
}

// verbosity returns the verbosity of the log from which on the message is logged.
func (m *message) verbosity() int {
	if m.again {
		return 2
	}
	return 0
}

// takesEvents reports whether the namespace of a source takes events: the API server refuses those in one that is being
// deleted, or gone.
func (r *reporter) takesEvents(sum *summary) bool {
	ns := r.cache.Namespace(sum.key.Namespace)
	return ns == nil && sum.source != nil || ns != nil && !plan.Terminating(ns)
}

// news returns what is new about the sources of a name, and records it as reported. While targets are queued it returns only
// announcements; while the targets are not compared with v, nothing. The status is locked.
func (r *reporter) news(n *nameStatus, v *plan.View, selections map[key]*selection) (all []news, wait time.Duration) {
	if wait, due := n.reportDue(v); !due {
		return nil, wait
	}
	now := time.Now()
	n.reported = now
	n.meet(v)
	n.supersede(selections)
	summaries := r.summarize(n, v, now)
	all, wait = r.announce(n, summaries, now)
	if busy := n.busyFor(); busy > 0 {
		return all, sooner(wait, busy)
	}
	n.dirty, n.busy = false, now
	for k, sum := range summaries {
		src, out := n.source(k), news{summary: sum}
		src.wrote = time.Time{}
		events, later := src.news(sum, now)
		out.events = events
		if sum.source != nil {
			out.took, out.arrived = src.propagated(sum, n.fanout)
		} else if quiet := src.quietIn(now); quiet > 0 { // it may come back, and its messages keep their spacing
			later = sooner(later, quiet)
		} else if sum.counts == [plan.States]int{} {
			delete(n.sources, k)
		}
		wait = sooner(wait, later)
		all = append(all, out)
	}
	n.dirty = wait > 0
	return all, wait
}

// sooner returns the shorter of two waits, of which 0 is none.
func sooner(a, b time.Duration) time.Duration {
	if a == 0 || b > 0 && b < a {
		return b
	}
	return a
}

// announce returns the announcements of copies that expire.
func (r *reporter) announce(n *nameStatus, summaries map[key]*summary, now time.Time) (all []news, wait time.Duration) {
	for k, sum := range summaries {
		src := n.source(k)
		src.begin(sum.object.UID, n.unseen)
		m, later := src.announce(sum, now)
		if m != nil {
			all = append(all, news{summary: sum, events: []message{*m}})
		}
		wait = sooner(wait, later)
	}
	if wait == 0 {
		n.announced = n.losses
	}
	return all, wait
}

// summarize returns a summary of each source of the view, and of those that are gone.
func (r *reporter) summarize(n *nameStatus, v *plan.View, now time.Time) map[key]*summary {
	all := map[key]*summary{}
	for k, src := range n.sources {
		all[k] = &summary{key: k, object: objectOf(k, src.uid), counts: src.counts, wrote: src.wrote, rules: r.rules,
			selection: n.selections[k]}
	}
	for _, source := range v.All() {
		all[source.Key].source, all[source.Key].object = source, source.ConfigMap
	}
	for namespace, rec := range n.targets {
		r.summarizeTarget(all, key{Namespace: namespace, Name: n.name}, rec, now)
	}
	return all
}

// summarizeTarget adds one target to the summaries.
func (r *reporter) summarizeTarget(all map[key]*summary, k key, rec *record, now time.Time) {
	ns := r.cache.Namespace(k.Namespace)
	if rec.state.IsProblem() && !r.isOver(rec, ns) {
		all[rec.countsFor].add(rec.state, k.Namespace, r.noteOf(rec, k, ns))
	}
	if at := rec.unclaimed.since.Add(r.grace); rec.state == plan.StateExpiring && at.After(now) && ns != nil && !plan.Terminating(ns) {
		all[rec.countsFor].expire(rec.unclaimed, k.Namespace, at)
	}
}

// isOver reports whether the cache shows that a copy is in scope again, and its record does not yet.
func (r *reporter) isOver(rec *record, ns *corev1.Namespace) bool {
	return rec.state == plan.StateOutOfScope && ns != nil && r.rules.Scope(rec.countsFor, ns) == plan.NotExcluded
}

// objectOf returns what an event about a source refers to that the cache does not have.
func objectOf(k key, uid types.UID) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: k.Namespace, Name: k.Name, UID: uid}}
}

// noteOf returns the note about a target: what the foreign object there is, why it is out of scope, or the error.
func (r *reporter) noteOf(rec *record, k key, ns *corev1.Namespace) note {
	switch have := r.cache.ConfigMap(k); {
	case rec.state == plan.StateForeign && have != nil:
		why, adoptable := r.rules.Foreign(have)
		return note{why, adoptable}
	case rec.state == plan.StateOutOfScope && ns != nil:
		why, _ := r.rules.Explain(plan.Loss{Rule: r.rules.Scope(rec.countsFor, ns)})
		return note{text: why}
	}
	return note{rec.retry.note, rec.retry.adoptable}
}

// note is about one target.
type note struct {
	text      string
	adoptable bool // the owner of the foreign object there can hand it over
}

// expire adds a copy that expires at a time.
func (s *summary) expire(u unclaimed, namespace string, at time.Time) {
	if s.unclaimed == nil {
		s.unclaimed = map[plan.Loss][]string{}
	}
	s.unclaimed[u.why] = append(s.unclaimed[u.why], namespace)
	s.losses = max(s.losses, u.nth)
	if s.expires.IsZero() || at.Before(s.expires) {
		s.expires = at
	}
}

// pending reports whether something is to be done or awaited at a target.
func (s *summary) pending() bool {
	for state, n := range s.counts {
		if n > 0 && plan.State(state).IsPending() {
			return true
		}
	}
	return false
}

func (s *summary) add(state plan.State, namespace string, about note) {
	if s.at == nil {
		s.at, s.notes = map[plan.State][]string{}, map[string]note{}
	}
	s.at[state] = append(s.at[state], namespace)
	s.notes[namespace] = about
}

// reported is what was reported about a source.
type reported struct {
	uid       types.UID
	texts     map[string]string    // by reason, of the conditions that hold
	at        map[string]time.Time // by reason: the last message
	announced int                  // the number of the newest loss that was announced
	mirrored  mirrored             // what the last Mirrored said
	ended     bool                 // a Mirrored is due when no warning holds, because a condition is over
	repeat    time.Time            // what holds, and was said before this time, is said again
}

// mirrored is on what a Mirrored depends: another one is due when it changes.
type mirrored struct {
	checksum      string
	held, blocked int
}

// spacing is the least time between two messages about one source and reason. A tenant can change what there is to report many
// times a second. The newest state is always reported in the end.
const spacing = 10 * time.Second

// urgentSpacing is the spacing of announcements of copies that are deleted before spacing is over.
const urgentSpacing = time.Second

// dueIn returns how long a message with this reason has to wait.
func (r *reported) dueIn(reason string, spacing time.Duration, now time.Time) time.Duration {
	return max(0, r.at[reason].Add(spacing).Sub(now))
}

// quietIn returns how long until every message may be repeated.
func (r *reported) quietIn(now time.Time) (wait time.Duration) {
	for reason := range r.at {
		wait = max(wait, r.dueIn(reason, spacing, now))
	}
	return wait
}

// isOld reports whether a message with this reason is to be repeated if it still holds.
func (r *reported) isOld(reason string) bool { return r.at[reason].Before(r.repeat) }

// say returns a message, and records that it is reported.
func (r *reported) say(kind, reason, note string, now time.Time) message {
	r.at[reason] = now
	return message{kind: kind, reason: reason, note: clip(note)}
}

// begin makes what was reported that of the source with this UID: one that was re-created has no events yet. Sources of a name
// that this process has never seen share their spacing, unseen: a tenant can name any ConfigMap as the source of a copy.
func (r *reported) begin(uid types.UID, unseen map[string]time.Time) {
	if r.texts == nil || r.uid != uid {
		*r = reported{uid: uid, texts: map[string]string{}, at: r.at}
	}
	switch {
	case r.uid == "":
		r.at = unseen
	case r.at == nil:
		r.at = map[string]time.Time{}
	}
}

// announce returns the announcement of the copies that expire, if it is new, or how long it has to wait.
func (r *reported) announce(sum *summary, now time.Time) (m *message, wait time.Duration) {
	if sum.losses == 0 {
		r.end(plan.ReasonExpiring)
	}
	again := sum.losses <= r.announced
	if sum.losses == 0 || again && !r.isOld(plan.ReasonExpiring) {
		return nil, 0
	}
	between := spacing
	if r.uid != "" && sum.expires.Before(r.at[plan.ReasonExpiring].Add(spacing)) {
		between = urgentSpacing
	}
	if wait := r.dueIn(plan.ReasonExpiring, between, now); wait > 0 {
		return nil, wait
	}
	r.announced, r.texts[plan.ReasonExpiring] = sum.losses, expiringText(sum)
	said := r.say(corev1.EventTypeWarning, plan.ReasonExpiring, r.texts[plan.ReasonExpiring], now)
	said.again = again
	return &said, 0
}

// warns reports whether a warning holds.
func (r *reported) warns() bool {
	for reason := range r.texts {
		if reason != plan.ReasonHeld {
			return true
		}
	}
	return false
}

// end records that a condition does not hold any more.
func (r *reported) end(reason string) {
	if r.texts[reason] != "" {
		r.ended = true
	}
	delete(r.texts, reason)
}

// news returns the events about what is new in a summary, but for announcements, and records that they are reported. It returns
// how long those have to wait that are not due.
func (r *reported) news(sum *summary, now time.Time) (out []message, wait time.Duration) {
	for _, c := range conditions {
		text, targets := "", sum.at[c.state]
		if sum.source != nil && (len(targets) > 0 || c.state == plan.StateNone) {
			slices.Sort(targets)
			text = c.text(sum, targets)
		}
		again := text == r.texts[c.reason]
		switch due := r.dueIn(c.reason, spacing, now); {
		case again && (text == "" || !r.isOld(c.reason)):
		case text == "":
			r.end(c.reason)
		case due > 0:
			wait = sooner(wait, due)
		default:
			r.texts[c.reason] = text
			m := r.say(c.kind, c.reason, text, now)
			m.again = again
			out = append(out, m)
		}
	}
	return out, wait
}

func (src *sourceStatus) news(sum *summary, now time.Time) (out []message, wait time.Duration) {
	out, wait = src.reported.news(sum, now)
	for _, m := range []func(*summary, time.Time) (*message, time.Duration){src.deletedNews, src.mirroredNews} {
		m, later := m(sum, now)
		if m != nil {
			out = append(out, *m)
		}
		wait = sooner(wait, later)
	}
	return out, wait
}

// deletedNews returns the message that counts the copies that were deleted, or how long it has to wait: while more copies
// expire, it waits for those that follow soon.
func (src *sourceStatus) deletedNews(sum *summary, now time.Time) (*message, time.Duration) {
	if src.deleted.count == 0 {
		return nil, 0
	}
	wait := src.dueIn(plan.ReasonDeleted, spacing, now)
	if sum.counts[plan.StateExpiring] > 0 {
		wait = max(wait, src.deleted.since.Add(reportAfter).Sub(now))
	}
	if wait > 0 {
		return nil, wait
	}
	m := src.say(corev1.EventTypeNormal, plan.ReasonDeleted, deletedText(src.deleted.count), now)
	src.deleted = deletions{}
	return &m, 0
}

// mirroredNews returns the message that the source is in sync, or how long it has to wait. Without a target there is none.
func (src *sourceStatus) mirroredNews(sum *summary, now time.Time) (*message, time.Duration) {
	if sum.source == nil {
		src.mirrored, src.ended = mirrored{}, false
		return nil, 0
	}
	if sum.pending() || sum.source.Reserved || sum.source.Frozen != nil {
		return nil, 0
	}
	is := mirrored{sum.source.Checksum, sum.counts[plan.StateHeld], sum.blocked()}
	again := is == src.mirrored && src.took == nil && !(src.ended && !src.warns())
	if again && !src.isOld(plan.ReasonMirrored) || sum.counts[plan.StateSynced]+is.held+is.blocked == 0 {
		return nil, 0
	}
	if wait := src.dueIn(plan.ReasonMirrored, spacing, now); wait > 0 {
		return nil, wait
	}
	m := src.say(corev1.EventTypeNormal, plan.ReasonMirrored, mirroredText(sum, src.took), now)
	m.again = again
	m.annotations = map[string]string{
		plan.ChecksumAnnotation: is.checksum,
		plan.EventPayload:       sum.source.Payload(),
		plan.InstanceAnnotation: sum.rules.Instance(),
		plan.EventSynced:        strconv.Itoa(sum.counts[plan.StateSynced]),
		plan.EventHeld:          strconv.Itoa(is.held),
		plan.EventBlocked:       strconv.Itoa(is.blocked),
	}
	src.mirrored, src.ended, src.took = is, false, nil
	return &m, 0
}

// blocked returns in how many namespaces something keeps the source from a target.
func (s *summary) blocked() (sum int) {
	for state, n := range s.counts {
		if plan.State(state).IsBlocked() {
			sum += n
		}
	}
	return sum
}

// propagated returns how long the last change of a source took to reach every target. ok is false if it has not yet, or if
// nothing was to be written. fanout is the begin of the last fan-out.
func (src *sourceStatus) propagated(sum *summary, fanout time.Time) (took time.Duration, ok bool) {
	if sum.pending() {
		if src.wrote.IsZero() {
			src.wrote = sum.wrote
		}
		return 0, false
	}
	changed := src.changed
	if changed.After(fanout) {
		return 0, false // the summary is older
	}
	src.changed = time.Time{}
	if changed.IsZero() || sum.wrote.Before(changed) {
		return 0, false
	}
	return sum.wrote.Sub(changed), true
}
