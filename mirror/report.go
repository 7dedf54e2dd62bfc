package mirror

import (
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
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
)

// Actions of events: what the controller was doing.
const (
	actionMirror = "Mirror"
	actionPrune  = "Prune"
)

// problems are the reasons of Warning events, in the order of reporting. text describes the problem of a source at targets in
// this state, which are sorted. Without a state it returns an empty string if the source does not have the problem.
var problems = []struct {
	reason, action string
	state          plan.State
	text           func(s *summary, targets []string) string
}{
	{ReasonReservedName, actionMirror, plan.StateNone, reservedText},
	{ReasonInvalidAnnotation, actionMirror, plan.StateNone, frozenText},
	{ReasonForeign, actionMirror, plan.StateForeign, foreignText},
	{ReasonSuperseded, actionMirror, plan.StateSuperseded, supersededText},
	{ReasonWriteFailed, actionMirror, plan.StateFailed, failedText},
	{ReasonFight, actionMirror, plan.StateFight, fightText},
	{ReasonOutOfScope, actionPrune, plan.StateOutOfScope, outOfScopeText},
}

// summary is the status of one source at all its targets.
type summary struct {
	source *plan.Source
	counts [plan.States]int
	wrote  time.Time               // when the last copy was written since the last summary; zero: none was
	at     map[plan.State][]string // namespaces of the states that are problems, sorted
	notes  map[string]string       // by namespace: an error, or the source that has the target
}

// reporter writes the events about sources.
type reporter struct {
	recorder events.EventRecorder
	status   *status
	metrics  *controllerMetrics
	dryRun   bool
}

// report reports what is new about the sources of a name. due says that there is more to log, after logSpacing.
func (r *reporter) report(ctx context.Context, name string, v *plan.View) (due bool) {
	if r.dryRun {
		var lines []withheldLine
		lines, due = r.status.withheldNews(name)
		for _, line := range lines {
			klog.FromContext(ctx).V(line.level).Info(line.text, "source", line.source)
		}
	}
	for _, s := range r.status.summarize(name, v) {
		for _, e := range r.status.news(s) {
			klog.FromContext(ctx).V(e.level).Info(e.note, "source", s.source.Key, "type", e.kind, "reason", e.reason)
			r.recorder.Eventf(s.source.ConfigMap, nil, e.kind, e.reason, e.action, "%s", e.note)
		}
		if took, ok := r.status.propagated(s); ok {
			r.metrics.propagation.Observe(took.Seconds())
		}
	}
	return due
}

// summarize returns a summary of each source of the view; none if there is nothing new. It forgets sources that are gone.
func (s *status) summarize(name string, v *plan.View) []*summary {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.names[name]
	if n == nil || !n.dirty {
		return nil
	}
	n.dirty = false
	var all []*summary
	byKey := map[key]*summary{}
	for _, source := range v.All() {
		src := n.source(source.Key)
		sum := &summary{source: source, counts: src.counts, wrote: src.wrote, at: map[plan.State][]string{}, notes: map[string]string{}}
		src.wrote = time.Time{}
		all, byKey[source.Key] = append(all, sum), sum
	}
	for k, src := range n.sources {
		if byKey[k] == nil && src.counts == [plan.States]int{} {
			delete(n.sources, k)
			s.keepLogged(k, src.logged)
		}
	}
	for namespace, r := range n.targets {
		if r.state.IsProblem() && byKey[r.countsFor] != nil {
			byKey[r.countsFor].add(r.state, namespace, r.note)
		}
		for _, loser := range r.losers {
			if byKey[loser] != nil {
				byKey[loser].add(plan.StateSuperseded, namespace, r.countsFor.String())
			}
		}
	}
	if len(n.sources)+len(n.targets) == 0 {
		delete(s.names, name)
	}
	return all
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

type keptLogged struct{ at map[string]time.Time }

// keepLogged keeps when there were lines about a source that is gone, for as long as that matters: it may be created again.
func (s *status) keepLogged(k key, logged map[string]time.Time) {
	if logged == nil {
		return
	}
	kept := &keptLogged{logged}
	s.loggedOfGone[k] = kept
	time.AfterFunc(logSpacing, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.loggedOfGone[k] == kept {
			delete(s.loggedOfGone, k)
		}
	})
}

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

// message is one event about a source, and the level at which it is logged.
type message struct {
	kind, reason, action, note string
	level                      int
}

// news returns what is new in a summary, and takes note that it is reported.
func (s *status) news(sum *summary) []message {
	s.mu.Lock()
	defer s.mu.Unlock()
	src := s.nameStatus(sum.source.Key.Name).source(sum.source.Key)
	if kept := s.loggedOfGone[sum.source.Key]; kept != nil && src.logged == nil {
		src.logged = kept.at
	}
	return src.reported.news(sum)
}

func (r *reported) news(sum *summary) (out []message) {
	if uid := sum.source.ConfigMap.UID; r.texts == nil || r.uid != uid { // a source that was re-created has no events yet
		*r = reported{uid: uid, texts: map[string]string{}, logged: r.logged}
	}
	ended := false
	for _, p := range problems {
		text := ""
		if targets := sum.at[p.state]; len(targets) > 0 || p.state == plan.StateNone {
			slices.Sort(targets)
			text = clip(p.text(sum, targets))
		}
		if text == r.texts[p.reason] {
			continue
		}
		r.texts[p.reason] = text
		if text == "" {
			ended = true
			continue
		}
		out = append(out, message{corev1.EventTypeWarning, p.reason, p.action, text, r.level(p.reason)})
	}
	r.solved = r.solved || ended && len(out) == 0
	if sum.pending() || sum.source.Reserved || sum.source.Frozen != nil {
		return out
	}
	// There is no event about a source that was in sync when the controller started, nor about each new namespace.
	if r.solved && sum.counts[plan.StateSynced] > 0 || !sum.wrote.IsZero() && r.checksum != sum.source.Checksum {
		text, level := mirroredText(sum), 2 // each edit of the source comes to this
		if text != r.synced {
			level = r.level(ReasonMirrored)
		}
		r.synced = text
		out = append(out, message{corev1.EventTypeNormal, ReasonMirrored, actionMirror, text, level})
	}
	r.checksum, r.solved = sum.source.Checksum, false
	return out
}

// propagated returns how long the last change of a source took to reach every target. ok is false if it has not yet, or if
// nothing was to be written.
func (s *status) propagated(sum *summary) (took time.Duration, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	src := s.nameStatus(sum.source.Key.Name).source(sum.source.Key)
	if sum.pending() {
		if src.wrote.IsZero() {
			src.wrote = sum.wrote
		}
		return 0, false
	}
	changed := src.changed
	if changed.After(s.nameStatus(sum.source.Key.Name).fanout) {
		return 0, false // the summary is older
	}
	src.changed = time.Time{}
	if changed.IsZero() || sum.wrote.Before(changed) {
		return 0, false
	}
	return sum.wrote.Sub(changed), true
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
	if n == nil {
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

// noEvents records no events.
type noEvents struct{}

func (noEvents) Eventf(_, _ runtime.Object, _, _, _, _ string, _ ...any) {}
