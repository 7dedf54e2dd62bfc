package mirror

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// Reasons of the events on a source. Dashboards and scripts match them: they do not change.
const (
	ReasonMirrored          = "Mirrored"
	ReasonForeign           = "Foreign"
	ReasonSuperseded        = "Superseded"
	ReasonReservedName      = "ReservedName"
	ReasonInvalidAnnotation = "InvalidAnnotation"
	ReasonWriteFailed       = "WriteFailed"
	ReasonFight             = "Fight"
	ReasonOutOfScope        = "OutOfScope"
	ReasonPruneBlocked      = "PruneBlocked"
	ReasonNoTargets         = "NoTargets"
	ReasonExpiring          = "Expiring"
)

// problems are the reasons of Warning events, in the order of reporting. text describes the problem of a source at targets in
// this state, which are sorted. Without a state it returns an empty string if the source does not have the problem.
var problems = []struct {
	reason string
	state  plan.State
	text   func(s *summary, targets []string) string
}{
	{ReasonReservedName, plan.StateNone, reservedText},
	{ReasonInvalidAnnotation, plan.StateNone, frozenText},
	{ReasonForeign, plan.StateForeign, foreignText},
	{ReasonSuperseded, plan.StateSuperseded, supersededText},
	{ReasonWriteFailed, plan.StateFailed, failedText},
	{ReasonFight, plan.StateFight, fightText},
	{ReasonOutOfScope, plan.StateOutOfScope, outOfScopeText},
	{ReasonNoTargets, plan.StateNone, noTargetsText},
	{ReasonExpiring, plan.StateNone, expiringText},
}

// summary is the status of one source at all its targets.
type summary struct {
	key    key
	source *plan.Source      // nil: it is gone
	object *corev1.ConfigMap // what events refer to
	counts [plan.States]int
	wrote  time.Time               // when the last copy was written since the last summary; zero: none was
	would  tally                   // the changes that a dry run withheld
	at     map[plan.State][]string // namespaces of the states that are problems, sorted
	notes  map[string]string       // by namespace: an error, or the source that has the target

	rules     *plan.Rules
	excluded  map[plan.Exclusion]int // namespaces that the flags allow, if the source has no target: what keeps it from them
	deleted   losses                 // copies that were deleted without an announcement
	unclaimed losses                 // copies that expire
	expires   time.Time              // when the first of them is deleted
}

// losses say, by the namespaces of copies that no source claims, what keeps their source away; [plan.NotExcluded]: it is gone.
type losses map[string]plan.Exclusion

// shortestAnnounced is the deletion grace from which on copies that expire are reported at once. With a shorter one they are
// reported when they are deleted: nobody could act before.
const shortestAnnounced = 10 * time.Second

// EventRecorder records events on sources, as the recorders of client-go's tools/record do. It must not block.
type EventRecorder interface {
	AnnotatedEventf(regarding runtime.Object, annotations map[string]string, eventtype, reason, format string, args ...any)
}

// reporter writes the events about sources.
type reporter struct {
	*decider
	recorder EventRecorder
	metrics  *controllerMetrics
	dryRun   bool
}

// report reports what is new about the sources of a name, as they are in v. It returns when to report again; 0: at the next
// change.
func (r *reporter) report(ctx context.Context, name string, v *plan.View) (wait time.Duration) {
	n := r.status.lock(name)
	all, wait := r.news(n, v)
	n.unlock()
	for _, s := range all {
		logger := klog.FromContext(ctx).WithValues("source", s.key)
		if s.line.text != "" {
			logger.V(s.line.level).Info(s.line.text)
		}
		for _, e := range s.events {
			r.write(logger, s.object, e)
		}
		if s.arrived {
			r.metrics.propagation.Observe(s.took.Seconds())
		}
	}
	return wait
}

// write logs a message about a source, and writes the event.
func (r *reporter) write(logger klog.Logger, source *corev1.ConfigMap, m message) {
	logger.V(m.level).Info(m.note, "type", m.kind, "reason", m.reason)
	r.recorder.AnnotatedEventf(source, nil, m.kind, m.reason, "%s", m.note)
}

// reportLast reports at the end which copies were deleted and not reported yet: the next leader cannot know.
func (r *reporter) reportLast(ctx context.Context) {
	for _, name := range r.status.all() {
		v := r.caches.view(name)
		n := r.status.lock(name)
		for k, src := range n.sources {
			if len(src.deleted) == 0 {
				continue
			}
			sum := &summary{object: objectOf(k, src.uid), source: v.FindAny(k), rules: r.rules, deleted: src.deleted}
			if sum.source != nil {
				sum.object = sum.source.ConfigMap
			}
			r.write(klog.FromContext(ctx).WithValues("source", k), sum.object,
				message{corev1.EventTypeWarning, ReasonExpiring, clip(expiringText(sum, nil)), 0})
		}
		n.unlock()
	}
}

// news is what is new about one source.
type news struct {
	*summary
	events  []message
	line    line
	arrived bool          // a change of the source has reached every target
	took    time.Duration // since it was seen
}

// news returns what is new about the sources of a name, and takes note that it is reported. While targets are queued, or the
// targets are not compared with v, it returns nothing. The status is locked.
func (r *reporter) news(n *nameStatus, v *plan.View) (all []news, wait time.Duration) {
	now := time.Now()
	if !n.dirty || n.view != nil && n.view != v {
		return nil, 0
	}
	if wait := max(n.reportableIn(), n.reported.Add(runGap).Sub(now)); wait > 0 {
		return nil, wait
	}
	n.dirty, n.reported, n.busy = false, now, now
	for k, sum := range r.summarize(n, v, now) {
		src, out := n.source(k), news{summary: sum}
		var held bool
		deleted := sum.deleted != nil
		if out.events, held = src.reported.news(sum); !held {
			n.announced(sum)
			if deleted {
				src.deleted = nil // said
			}
		}
		if held || len(src.deleted) > 0 {
			n.dirty, wait = true, logSpacing
		}
		if r.dryRun {
			var due bool
			if out.line, due = src.dryRunNews(sum); due {
				n.dirty, wait = true, logSpacing
			}
		}
		if sum.source != nil {
			out.took, out.arrived = src.propagated(sum, n.fanout)
		} else if now.Sub(src.lastLine()) < logSpacing { // it may come back, and its log lines keep their spacing
			n.dirty, wait = true, logSpacing
		} else if sum.counts == [plan.States]int{} {
			delete(n.sources, k)
		}
		all = append(all, out)
	}
	return all, wait
}

// summarize returns a summary of each source of the view, and of those that are gone.
func (r *reporter) summarize(n *nameStatus, v *plan.View, now time.Time) map[key]*summary {
	all := map[key]*summary{}
	for _, source := range v.All() {
		n.source(source.Key)
	}
	for k, src := range n.sources {
		all[k] = &summary{key: k, object: objectOf(k, src.uid), counts: src.counts, wrote: src.wrote, at: map[plan.State][]string{}, notes: map[string]string{},
			rules: r.rules}
		src.wrote = time.Time{}
		if src.counts[plan.StateExpiring] == 0 || now.Sub(src.lost) >= reportAfter { // else more of them follow soon
			all[k].deleted = src.deleted
		}
	}
	for _, source := range v.All() {
		all[source.Key].source, all[source.Key].object = source, source.ConfigMap
	}
	for namespace, rec := range n.targets {
		if rec.state.IsProblem() {
			all[rec.countsFor].add(rec.state, namespace, r.noteOf(rec, key{Namespace: namespace, Name: n.name}))
		}
		at, ns := rec.unclaimed.since.Add(r.grace), r.caches.namespace(namespace)
		if rec.state == plan.StateExpiring && r.announces() && at.After(now) && ns != nil && !plan.Terminating(ns) {
			all[rec.countsFor].expire(r.rules.ExclusionOf(all[rec.countsFor].source, ns), namespace, at)
		}
		if rec.would != plan.OpNone {
			all[rec.countsFor].would[rec.would]++
		}
		for _, loser := range rec.losers {
			all[loser].add(plan.StateSuperseded, namespace, rec.countsFor.String())
		}
	}
	for _, sum := range all {
		if sum.source != nil && sum.counts[plan.StateSynced] == 0 {
			sum.excluded = r.rules.Excluded(sum.source, r.caches.Namespaces())
		}
	}
	return all
}

// objectOf returns what an event about a source refers to that the cache does not have.
func objectOf(k key, uid types.UID) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: k.Namespace, Name: k.Name, UID: uid}}
}

// announces reports whether copies that expire are reported at once.
func (r *reporter) announces() bool { return r.grace >= shortestAnnounced && !r.dryRun }

// noteOf returns the note about a target: whether the foreign object there is a source, or the error.
func (r *reporter) noteOf(rec *record, k key) string {
	if have := r.caches.configMap(k); rec.state == plan.StateForeign && have != nil && r.rules.AsksToBeMirrored(have) {
		return anotherSource
	}
	return rec.note
}

// expire adds a copy that expires at a time.
func (s *summary) expire(e plan.Exclusion, namespace string, at time.Time) {
	if s.unclaimed == nil {
		s.unclaimed = losses{}
	}
	s.unclaimed[namespace] = e
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

func (s *summary) add(state plan.State, namespace, note string) {
	s.at[state] = append(s.at[state], namespace)
	s.notes[namespace] = note
}

// logSpacing is the least time between two lines at level 0 about one source and reason. A tenant can change what there is to
// report many times a second. Events have the same spacing, and the last one is always written.
const logSpacing = 10 * time.Second

// level returns the level at which news are logged.
func (r *reported) level(reason string) int {
	now := time.Now()
	if r.logged == nil {
		r.logged = map[string]time.Time{}
	}
	if now.Sub(r.logged[reason]) < logSpacing {
		return 2
	}
	r.logged[reason] = now
	return 0
}

// lastLine returns when the last line at level 0 was logged.
func (r *reported) lastLine() (last time.Time) {
	for _, at := range r.logged {
		if at.After(last) {
			last = at
		}
	}
	return last
}

// message is one event about a source, and the level at which it is logged.
type message struct {
	kind, reason, note string
	level              int
}

// news returns the events about what is new in a summary, and takes note that they are reported. Copies that are lost within
// logSpacing are said together: held says that there are some to be said later.
func (r *reported) news(sum *summary) (out []message, held bool) {
	if uid := sum.object.UID; r.texts == nil || r.uid != uid { // a source that was re-created has no events yet
		*r = reported{uid: uid, texts: map[string]string{}, logged: r.logged}
	}
	ended := false
	for _, p := range problems {
		text := ""
		targets := sum.at[p.state]
		if (sum.source != nil || p.reason == ReasonExpiring) && (len(targets) > 0 || p.state == plan.StateNone) {
			slices.Sort(targets)
			text = clip(p.text(sum, targets))
		}
		if text == r.texts[p.reason] {
			continue
		}
		if p.reason == ReasonExpiring && time.Since(r.logged[p.reason]) < logSpacing {
			held = true
			continue
		}
		r.texts[p.reason] = text
		if text == "" {
			ended = true
			continue
		}
		out = append(out, message{corev1.EventTypeWarning, p.reason, text, r.level(p.reason)})
		if p.reason == ReasonExpiring {
			sum.deleted = nil // that is over by now
			r.texts[p.reason] = clip(p.text(sum, targets))
		}
	}
	r.solved = r.solved || ended && len(out) == 0
	if sum.source == nil {
		r.checksum = ""
		return out, held
	}
	if sum.pending() || sum.source.Reserved || sum.source.Frozen != nil {
		return out, held
	}
	// There is no event about a source that was in sync when the controller started, nor about each new namespace.
	if r.solved && sum.counts[plan.StateSynced] > 0 || !sum.wrote.IsZero() && r.checksum != sum.source.Checksum {
		text, level := mirroredText(sum), 2 // each edit of the source comes to this
		if text != r.synced {
			level = r.level(ReasonMirrored)
		}
		r.synced = text
		out = append(out, message{corev1.EventTypeNormal, ReasonMirrored, text, level})
	}
	r.checksum, r.solved = sum.source.Checksum, false
	return out, held
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

// line is a log line about the changes for one source that a dry run withheld.
type line struct {
	text  string // empty: there is none
	level int
}

// logWithheld is the reason by which lines about withheld changes keep their spacing.
const logWithheld = "DryRun"

// dryRunNews returns a line if a dry run would do something else than the last line says. A source whose targets are not all
// compared has no line yet. due says that the line is to be said again at level 0, after logSpacing.
func (src *sourceStatus) dryRunNews(sum *summary) (out line, due bool) {
	text, withheld := sum.would.String(), 0
	for _, n := range sum.would {
		withheld += n
	}
	if text == src.would && !src.due || sum.counts[plan.StatePending] > withheld {
		return line{}, false
	}
	level, said := src.level(logWithheld), text == src.would
	src.would, src.due = text, level > 0
	if src.due && said {
		return line{}, true
	}
	if text == "" {
		text = "change nothing"
	}
	return line{"Would " + text, level}, src.due
}

// noEvents records no events.
type noEvents struct{}

func (noEvents) AnnotatedEventf(runtime.Object, map[string]string, string, string, string, ...any) {}
